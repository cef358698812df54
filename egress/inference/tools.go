package inference

import "strings"

// clientRun are the types of tools that the client runs. Every other is one that
// the vendor runs, whatever it is. Gemini's tools have no type, but a member each.
//
// The lists are after platform.openai.com/docs/api-reference (responses/create,
// chat/create), docs.anthropic.com (agents-and-tools/tool-use/overview: client
// tools) and ai.google.dev/api/caching#Tool, as the vendors' SDKs of 2026 have
// them.
var clientRun = map[API][]string{
	Chat:      {"function", "custom"},
	Responses: {"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview"},
	Messages: {"custom", "bash_*", "text_editor_*", "computer_2*", "memory_*", "computer_toolset_*",
		"browser_toolset_*"},
	Gemini: {"functionDeclarations", "function_declarations", "computerUse", "computer_use"},
}

// tools judges a list of tools.
func (j *judge) tools(i int) error {
	switch j.kind(i) {
	case 'n':
		return nil
	case '[':
	default:
		return refuse(RefuseForm, quoted(j.name(i))+" is no list")
	}
	for t := range j.each(i) {
		if j.kind(t) != '{' {
			return refuse(RefuseForm, "a tool is no object")
		}
		err := error(nil)
		if j.out.API == Gemini {
			err = j.geminiTool(t)
		} else {
			err = j.tool(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (j *judge) geminiTool(t int) error {
	twins := map[string]bool{}
	for m := range j.each(t) {
		name := string(j.name(m))
		switch {
		case twins[folded(j.name(m))]:
			return refuse(RefuseForm, "a tool says "+quoted(name)+" twice, in two spellings")
		case listed(clientRun[Gemini], name):
		case listed(j.rules.Hosted, name):
			if err := j.hostedTool(m); err != nil {
				return err
			}
		default:
			return refuse(RefuseHosted, "the tool "+quoted(name)+" is run by the vendor")
		}
		twins[folded(j.name(m))] = true
	}
	return nil
}

func (j *judge) tool(t int) error {
	kind, err := j.typeOf(t)
	if err != nil {
		return err
	}
	run := listed(clientRun[j.out.API], kind)
	switch {
	case j.out.API == Messages && kind == "":
		run = true
	case j.out.API == Responses && kind == "namespace":
		if list := j.member(t, "tools"); list != 0 {
			return j.tools(list)
		}
		run = true
	case j.out.API == Responses && kind == "tool_search":
		run = j.is(j.member(t, "execution"), "client")
	case j.out.API == Responses && kind == "shell":
		place := j.member(t, "environment")
		run = place != 0 && j.is(j.member(place, "type"), "local")
	}
	if !run {
		if !listed(j.rules.Hosted, kind) {
			return refuse(RefuseHosted, "the tool "+quoted(kind)+" is run by the vendor")
		}
		return j.hostedTool(t)
	}
	if mark := j.member(t, "cache_control"); mark != 0 && j.out.API == Messages {
		return j.cache(mark)
	}
	return nil
}

// hostedTool judges what a tool that the vendor may run would fetch, and which
// model it would ask.
func (j *judge) hostedTool(i int) error {
	for m := range j.each(i) {
		name, err := folded(j.name(m)), error(nil)
		switch {
		case name == "model" && j.kind(m) == '"':
			err = j.isModel(string(j.str(m)))
		case meanings[name] == place && j.kind(m) == '"':
			err = j.place(m, true)
		default:
			err = j.hostedTool(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// typeOf is an object's type, empty where it has none or is null.
func (j *judge) typeOf(object int) (string, error) {
	kind := ""
	for m := range j.each(object) {
		name := j.name(m)
		if len(name) != len("type") || !strings.EqualFold(string(name), "type") {
			continue
		}
		switch {
		case string(name) != "type" || j.kind(m) != '"' && j.kind(m) != 'n':
			return "", refuse(RefuseForm, "a type is not written as types are")
		case j.kind(m) == '"':
			kind = string(j.str(m))
		}
	}
	return kind, nil
}

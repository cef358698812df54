package inference

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// blocks are the types of what a conversation is made of. One that is not here is
// not known, and may have the vendor do anything: it passes where Rules.Hosted
// names it.
var blocks = map[API][]string{
	Chat: {"text", "image_url", "video_url", "input_audio", "file", "refusal", "function", "custom",
		"thinking", "reasoning.text", "reasoning.summary", "reasoning.encrypted"},
	Responses: {"message", "reasoning", "agent_message", "function_call", "function_call_output", "custom_tool_call",
		"custom_tool_call_output", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
		"apply_patch_call", "apply_patch_call_output", "computer_call", "computer_call_output", "tool_search_call",
		"tool_search_output", "additional_tools", "compaction", "compaction_summary",
		"compaction_trigger", "context_compaction", "input_text", "output_text", "input_image", "input_file",
		"input_audio", "refusal", "summary_text", "reasoning_text", "text", "encrypted_content", "computer_screenshot"},
	Messages: {"text", "image", "document", "search_result", "thinking", "redacted_thinking", "tool_use", "tool_result",
		"tool_reference", "tool_addition", "tool_removal", "compaction"},
	Gemini: {"text", "thought", "thoughtsignature", "inlinedata", "filedata", "functioncall", "functionresponse",
		"executablecode", "codeexecutionresult", "videometadata", "mediaresolution", "partmetadata"}, // members of parts, folded
}

// records are of tools that the vendor has run, and pass as they are where it may
// run any.
var records = []string{"server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result",
	"bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result",
	"advisor_tool_result", "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing", "web_search_call", "file_search_call",
	"code_interpreter_call", "image_generation_call", "mcp_call", "mcp_list_tools", "mcp_approval_request",
	"mcp_approval_response", "program", "program_output", "toolcall", "toolresponse"}

// data are members whose value is made by a tool or a model and means nothing to
// the vendor; and marks of where a text is from.
var data = map[API]map[string]bool{
	Chat:      {"annotations": true, "metadata": true},
	Responses: {"annotations": true, "action": true, "arguments": true, "env": true, "logprobs": true},
	Messages:  {"input": true, "citations": true},
	Gemini:    {"args": true, "response": true, "partMetadata": true},
}

// meaning is what a member of the conversation may be, whatever the object.
type meaning byte

const (
	_        meaning = iota
	kept             // names what the vendor keeps from elsewhere
	place            // says where something is to be fetched
	thing            // is the thing itself, or says where it is
	caching          // cache_control
	toolList         // tools
	oneTool          // tool
	pieces           // Gemini's parts
	holding          // content and output: what is an object there is as an element of a list
)

// meanings are by folded name.
var meanings = map[string]meaning{
	"fileid": kept, "fileids": kept, "vectorstoreids": kept, "containerid": kept, "audio": kept, "previousresponseid": kept,
	"url": place, "uri": place, "fileuri": place, "gcsuri": place, "fileurl": place, "imageurl": place, "videourl": place,
	"audiourl": place, "serverurl": place, "data": thing, "filedata": thing, "image": thing, "video": thing,
	"cachecontrol": caching, "tools": toolList, "tool": oneTool, "parts": pieces,
	"content": holding, "output": holding,
}

// conversation judges what is said: a text, or whatever lists and objects there
// are.
func (j *judge) conversation(i int) error {
	for e := range j.each(i) {
		if err := j.said(i, e); err != nil {
			return err
		}
	}
	return nil
}

// said judges a member or an element of what is said.
func (j *judge) said(in, i int) error {
	if j.kind(i) == 'n' {
		return nil
	}
	if j.kind(in) == '[' {
		if j.kind(i) == '{' && j.out.API != Gemini {
			return j.block(i)
		}
		return j.conversation(i)
	}
	if data[j.out.API][string(j.name(i))] {
		return nil
	}
	var buf [32]byte
	switch m := meanings[string(fold(buf[:0], j.name(i)))]; {
	case m == kept:
		return refuse(RefuseHosted, "the request uses "+quoted(j.name(i))+", which the vendor keeps from elsewhere")
	case m == place || m == thing:
		return j.places(in, i, m)
	case m == caching && (j.out.API == Messages || j.out.API == Chat):
		return j.cache(i)
	case m == toolList && j.out.API == Responses:
		return j.tools(i)
	case m == oneTool && j.out.API == Messages && j.kind(i) == '{' && !j.is(j.member(i, "type"), "tool_reference"):
		return j.tool(i)
	case m == pieces && j.out.API == Gemini:
		return j.parts(i)
	case m == holding && j.kind(i) == '{' && j.out.API != Gemini:
		return j.block(i)
	}
	return j.conversation(i)
}

// places judges a member that may say where something is to be fetched: a string,
// a list of some, or an object that has it.
func (j *judge) places(in, i int, m meaning) error {
	switch {
	case j.kind(i) == '"' && string(j.name(i)) == "data" && j.is(j.member(in, "type"), "text"): // as it is
		return nil
	case j.kind(i) == '"':
		return j.place(i, m == place)
	case j.kind(i) != '[':
		return j.conversation(i)
	}
	for e := range j.each(i) {
		if err := j.place(e, true); err != nil {
			return err
		}
	}
	return nil
}

// block judges an element of a list by its type, and then what is in it.
func (j *judge) block(i int) error {
	kind, err := j.typeOf(i)
	switch {
	case err != nil:
		return err
	case j.out.API == Responses && j.keptItem(i, kind):
		return refuse(RefuseHosted, "the conversation refers to an item that the vendor keeps")
	case kind == "" || listed(blocks[j.out.API], kind):
		return j.conversation(i)
	case listed(j.rules.Hosted, kind) || len(j.rules.Hosted) > 0 && listed(records, kind):
		return nil
	}
	return refuse(RefuseHosted, "the conversation has something of the type "+quoted(kind)+", for which the vendor may use more than the request")
}

// parts judges those of Gemini's contents, each of which has a member for what it
// is.
func (j *judge) parts(i int) error {
	if j.kind(i) == '{' { // a list of one may be written without brackets
		return j.part(i)
	}
	for p := range j.each(i) {
		if err := j.part(p); err != nil {
			return err
		}
	}
	return nil
}

func (j *judge) part(p int) error {
	for m := range j.each(p) {
		name := folded(j.name(m))
		switch {
		case listed(blocks[Gemini], name):
		case listed(j.rules.Hosted, string(j.name(m))) || len(j.rules.Hosted) > 0 && listed(records, name):
			continue
		default:
			return refuse(RefuseHosted, "the conversation has something with "+quoted(j.name(m))+", for which the vendor may use more than the request")
		}
		if err := j.said(p, m); err != nil {
			return err
		}
	}
	return nil
}

// place judges a string that may say where something is to be fetched. Where it
// must, everything but a data: URL does; where it may also be the thing in base64,
// everything with a scheme.
func (j *judge) place(i int, must bool) error {
	text := j.str(i)
	scheme := taken(text, 128)
	switch {
	case scheme == "" || strings.HasPrefix(scheme, "data:"):
		return nil
	case !must && !strings.Contains(scheme, ":"):
		return nil
	case !strings.HasPrefix(scheme, "http://") && !strings.HasPrefix(scheme, "https://"):
		return refuse(RefuseHosted, "the request names something in "+quoted(j.name(i))+" that is neither in it nor a URL of the web")
	case strings.Contains(taken(text, len(text)), "generativelanguage.googleapis.com"):
		return refuse(RefuseHosted, "the request uses a file that the vendor keeps from elsewhere")
	case !j.rules.URLs:
		return refuse(RefuseURL, "the request has the vendor fetch a URL in "+quoted(j.name(i))+", which this run does not allow")
	}
	return nil
}

// taken is what readers of URLs take of a text, in small letters: they leave out
// blanks and line ends, wherever those stand. Of the rest it is the first most
// bytes or a few more.
func taken(text []byte, most int) string {
	var b strings.Builder
	for at := 0; at < len(text) && b.Len() < most; {
		r, size := utf8.DecodeRune(text[at:])
		at += size
		if r > ' ' && r != 0x7f && r != 0x85 && r != 0x2028 && r != 0x2029 && r != 0xfeff && !unicode.Is(unicode.Zs, r) {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// keptItem reports whether an item of Responses has an id and nothing of its own: the
// vendor may take the one that it keeps under that id.
func (j *judge) keptItem(i int, kind string) bool {
	if j.member(i, "id") == 0 {
		return false
	}
	own := []string{"content", "encrypted_content", "summary"}
	switch kind {
	case "", "message":
		own = own[:1]
	case "reasoning":
	case "compaction", "compaction_summary", "context_compaction":
		own = own[1:2]
	default:
		return false
	}
	for _, name := range own {
		if m := j.member(i, name); m != 0 && !j.nothing(m) && !j.is(m, "") {
			return false
		}
	}
	return true
}

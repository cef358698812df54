package run

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/rein-sh/rein/evidence"
)

var markdown = template.Must(template.New("report").Funcs(template.FuncMap{
	"ms":      func(n int64) string { return (time.Duration(n) * time.Millisecond).String() },
	"quote":   quoteText,
	"code":    inline,
	"line":    line,
	"hint":    hintText,
	"value":   value,
	"reached": func(hosts []HostReached) []HostReached { return sorted(hosts, true) },
	"denied":  func(hosts []HostReached) []HostReached { return sorted(hosts, false) },
	"fate":    Protected.fate,
	"braked":  braked,
	"date":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"sign":    func(ok bool) string { return map[bool]string{true: "passed", false: "FAILED"}[ok] },
}).Parse(`# Run {{.RunID}}

**{{line .Conclusion}}**

{{quote .Task}}

| | |
|---|---|
| reason | {{.Reason}} (exit code {{.ExitCode}}) |
| accepted | {{.Accepted}} |
| started | {{date .StartedAt}} |
| time | {{ms .Time.TotalMS}}: {{ms .Time.WorkingMS}} working, {{ms .Time.WaitingMS}} waiting |
| steps | {{.Steps}} |
| calls | {{.Calls.Total}}: {{.Calls.Succeeded}} succeeded, {{.Calls.Failed}} failed, {{.Calls.TimedOut}} timed out, {{.Calls.Denied}} denied |
| tokens | {{.Tokens.Total}}{{if .Tokens.Estimated}} (partly estimated){{end}}: {{.Tokens.Input}} in, {{.Tokens.Output}} out{{if .Tokens.CostUSD}}; ${{printf "%.4f" .Tokens.CostUSD}}{{end}}{{if .Tokens.PriceSource}} (price: {{.Tokens.PriceSource}}){{end}} |
{{with .Agent}}| agent | {{line .Name}}{{with .Package}}, {{line .}}{{end}}{{with .Version}} {{line .}}{{end}}{{with .Layer}}, SHA-256 {{.}}{{end}}{{with .ExitCode}}; exit code {{.}}{{end}}{{with .Signal}}; {{line .}}{{end}}{{if .Failure}}; {{line .Failure}}: {{line .Message}}{{else if .Finished}}; it says that it has finished{{end}}{{with .Flagged}}; **{{line .}}**{{end}} |
{{end}}| sandbox | {{if .SandboxID}}{{code .SandboxID}}{{else}}none{{end}}{{with .Target.Provider}}, provider {{.}}{{end}}{{with .Target.Runtime}}, {{.}}{{end}}{{with .Target.Image}}, image {{.}}{{end}}{{with .Target.ImageDigest}} ({{.}}){{end}}{{with .Target.Separation}}, separation {{.}}{{end}} |
| clean-up | {{if .Cleanup.OK}}ok: {{.Cleanup.Verified}}{{else}}FAILED: {{line .Cleanup.Error}}{{with .Cleanup.Remedy}}; {{code .}}{{end}}{{end}} |
{{range .Revocations}}| key of {{line .Secret}} | {{line .Says}}, {{ms .DurationMS}}{{if .Orphan}}; the rein that had it made had been ended{{end}}{{if not .OK}}{{with .Output}}: {{line .}}{{end}}{{end}} |
{{end}}| files | {{code .Dir}} |
{{if .Brake}}
Stopped by **{{.Brake.Limit}}**: {{.Brake.Amounts}}.{{if .Brake.Flag}} {{code .Brake.Flag}} raises it.{{end}}
{{end}}{{if not (braked .)}}{{if .Error}}
Error: {{line .Error}}
{{end}}{{with .Hint}}
Hint: {{hint .}}
{{end}}{{end}}{{if .Answer}}
## What the agent says

{{quote .Answer}}
{{end}}{{if or .Checks .Protected}}
## Checks
{{range .Checks}}
- {{sign .Passed}}: {{line .Name}}{{with .Command}}: {{code .}}{{end}}{{with .File}}: the file {{code .}}{{end}}{{with .ExitCode}}, exit code {{.}}{{end}}{{if .Timeout}}, timed out{{end}}, {{ms .DurationMS}}{{with .Error}}; could not be run: {{line .}}{{end}}
{{- if not .Passed}}{{with .Stdout}}

{{quote .}}{{end}}{{with .Stderr}}

{{quote .}}{{end}}{{end}}{{end}}{{range .Protected}}
- {{fate .}}: {{code .Path}}, SHA-256 {{with .Before}}{{line .}}{{else}}none{{end}}{{if not .Unchanged}} → {{with .After}}{{line .}}{{else}}none{{end}}{{end}}{{end}}
{{end}}{{with .Approvals}}
## Approvals

{{.Asked}} asked: {{.Approved}} approved, {{.Denied}} denied, {{.TimedOut}} not answered in time, {{.NoChannel}} with nobody to ask; {{.Granted}} by an earlier approval, {{.ByRule}} forbidden by a rule{{if .Other}}, {{.Other}} otherwise not done{{end}}; {{ms .WaitedMS}} waited.
{{range .List}}
- {{line .Code}}: {{code .Text}}{{with .Edited}}, edited to {{code .}}{{end}}{{with .Rule}}, rule {{code .}}{{end}}{{with .By}}, by {{line .}}{{end}}{{with .WaitedMS}}, after {{ms .}}{{end}}{{end}}
{{end}}
## Outputs
{{with .Patch}}
Patch {{code .Path}}, {{.Bytes}} bytes, SHA-256 {{.SHA256}}:
{{range .Files}}
- {{.Kind}} {{code .Path}}{{else}}
No file was changed.{{end}}{{range .Skipped}}
- left out: {{code .Path}}: {{line .Reason}}{{end}}
{{else}}
No patch.
{{end}}{{if or .Artifacts .Unfetched}}
Artifacts:
{{range .Artifacts}}
- {{code .Path}}, {{.Bytes}} bytes, SHA-256 {{.SHA256}}{{end}}{{range .Unfetched}}
- left out: {{code .Path}}: {{line .Reason}}{{end}}
{{end}}{{with .Output}}
Output directory {{code .Dir}}: {{.Files}} files, {{.Bytes}} bytes.
{{end}}{{if .Warnings}}
## Warnings
{{range .Warnings}}
- {{line .}}{{end}}
{{end}}
{{with .Models}}## Models

| model | host | requests | failed | refused | input | cached | output | cost |
|---|---|---|---|---|---|---|---|---|
{{range .}}| {{line .Model}} | {{line .Host}} | {{.Requests}} | {{.Failed}} | {{.Refused}} | {{.Input}} | {{.Cached}} | {{.Output}}{{if .Estimated}} (partly estimated){{end}} | ${{printf "%.4f" .CostUSD}} |
{{end}}
{{end}}## Network
{{with .ModelHosts}}
Requests to models, which are counted:
{{range .}}
- {{line .}}{{end}}
{{end}}{{if .NetworkRules}}
Open, by the policy at the end:
{{range .NetworkRules}}
- {{line .}}{{end}}
{{else if and .SandboxID (not .ModelHosts)}}
Closed by policy.
{{else if .SandboxID}}
Otherwise closed by policy.
{{end}}{{with .Secrets}}
Given to requests, and not in the sandbox:
{{range .}}{{$name := .Name}}{{range .To}}
- {{line $name}}: {{line .}}{{end}}{{end}}
{{end}}{{with .NetworkChanges}}{{range .}}
- changed while it worked: {{.Action}} {{line .Host}}{{with .Port}} port {{.}}{{end}}{{with .Proto}} ({{line .}}){{end}}, by uid {{.UID}} at {{date .Time}}{{end}}
{{end}}{{if .Network}}{{with reached .Hosts}}
| reached | rule | times | sent | received |
|---|---|---|---|---|
{{range .}}| {{.Proto}} {{line .Host}}{{with .Port}}:{{.}}{{end}} | {{line .Rule}}{{if ne .Verdict "allow"}}, and only reported{{end}} | {{.Count}} | {{.BytesOut}} B | {{.BytesIn}} B |
{{end}}{{end}}{{with denied .Hosts}}
| target | verdict | reason | times |
|---|---|---|---|
{{range .}}| {{.Proto}} {{line .Host}}{{with .Port}}:{{.}}{{end}} | {{.Verdict}} | {{line .Reason}} | {{.Count}} |
{{end}}{{end}}{{with .HostsLeft}}
And {{.}} more, in network.jsonl.
{{end}}{{else}}
{{if not .SandboxID}}No sandbox was created.{{else if .NetworkObserved}}No target was recorded.{{else}}Network targets: not observable. There is no record of the network.{{end}}
{{end}}
## Limits

| layer | limit | value | enforced by |
|---|---|---|---|
{{range .Limits}}| {{.Layer}} | {{.Name}} | {{value .}} | {{.EnforcedBy}} |
{{end}}{{range .LimitChanges}}
- changed while it worked: {{.Name}} from {{.Old}} to {{.New}}, by uid {{.UID}} at {{date .Time}}{{end}}

## Provenance

| | |
|---|---|
| rein | {{.Provenance.Rein}} |
| model | {{.Provenance.Model}} |
| inputs | {{.Inputs.Files}} files, {{.Inputs.Bytes}} bytes{{with .Inputs.Dir}} of {{code .}}{{end}}; {{.Inputs.Ignored}} ignored, {{len .Inputs.Secrets}} left out as secret |
| input tree | {{.Provenance.InputTree}} |
{{with .Provenance.Commit}}| git commit | {{.}} |
{{end}}{{with .Provenance.Changed}}| tracked files changed since | {{.}} |
{{end}}| configuration | {{.Provenance.ConfigHash}} |
| task | {{.Provenance.TaskHash}} |
| sandbox spec | {{.Provenance.SpecHash}} |
| audit head | {{.AuditHead.Hash}} (record {{.AuditHead.Seq}}) |
| trace | {{.TraceID}} |
`))

// WriteMarkdown writes the report for people. What models and sandboxes wrote
// stands in it as quotations, without characters that cannot be seen.
func (r *Report) WriteMarkdown(w io.Writer) error { return markdown.Execute(w, r) }

// braked reports whether an error says no more than the limit that was reached.
func braked(r *Report) bool {
	return r.Brake != nil && r.Reason == OverBudget && strings.HasPrefix(r.Error, "stopped by "+r.Brake.Limit+": ")
}

// value is a limit for people. A resource that is counted in bytes comes
// without a unit.
func value(l LimitInfo) string {
	n, err := strconv.ParseInt(l.Value, 10, 64)
	if err != nil || !slices.Contains([]string{"memory", "disk", "host_bytes", "host_max_upload_bytes"}, l.Name) {
		return l.Value
	}
	if n > 0 && n%(1<<20) == 0 {
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return l.Value + " B"
}

// sorted are the hosts that were reached, or those that were not.
func sorted(hosts []HostReached, reached bool) []HostReached {
	var out []HostReached
	for _, h := range hosts {
		if h.Reached() == reached {
			out = append(out, h)
		}
	}
	return out
}

// quoteText makes a text a quotation, line by line. Markdown ends a line at a
// carriage return, too. Nothing in it is loaded or run by what shows it, as
// images, which can carry to their address what the sandbox must not send, and
// HTML would be.
func quoteText(s string) string {
	s = evidence.Visible(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s))
	return "> " + strings.ReplaceAll(inert(strings.TrimRight(s, "\n")), "\n", "\n> ")
}

// inert puts a backslash before what begins an image or HTML in Markdown, unless
// there is one that counts.
func inert(s string) string {
	var b strings.Builder
	escaped := false
	for i := range len(s) {
		c := s[i]
		if c == '<' && !escaped || c == '[' && i > 0 && s[i-1] == '!' {
			b.WriteByte('\\')
		}
		escaped = c == '\\' && !escaped
		b.WriteByte(c)
	}
	return b.String()
}

// line makes a text, which may hold names that a sandbox chose, one line
// that is nothing but text: no heading, row, link or HTML of the report's.
func line(s string) string {
	return markup.Replace(evidence.Visible(strings.Join(strings.Fields(s), " ")))
}

var markup = strings.NewReplacer(`\`, `\\`, "`", "\\`", "[", `\[`, "<", `\<`, "|", `\|`, "#", `\#`)

// hintText makes a hint text, and code of those of its lines that would not be
// the same as text, so that they can be pasted.
func hintText(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i, l := range lines {
		if lines[i] = line(l); lines[i] != evidence.Visible(l) {
			lines[i] = inline(l)
		}
	}
	return strings.Join(lines, "  \n")
}

// inline makes a text code within a line, whatever backquotes it has.
func inline(s string) string {
	s = evidence.Visible(strings.Join(strings.Fields(s), " "))
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fmt.Sprintf("%s %s %s", fence, s, fence)
	}
	return fence + s + fence
}

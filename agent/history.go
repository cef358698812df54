package agent

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/tool"
)

// remember makes what the history keeps of a call and its result.
func remember(mc model.ToolCall, call tool.Call, res tool.Result, m *secret.Masker) history.Result {
	var args struct {
		Command, Path, Wait string
		Background          bool
	}
	_ = json.Unmarshal(call.Arguments, &args) // what is missing is not shown
	subject := cmp.Or(args.Command, args.Path, args.Wait)
	if custom := strings.TrimSpace(string(call.Arguments)); subject == "" && call.Name != tool.SandboxCreate && custom != "{}" {
		subject = custom // of a tool of the host's own
	}
	subject = m.String(subject) // before it is cut, which could split a value
	what := strings.TrimSpace(call.Name + " " + subject)
	r := history.Result{
		ToolResult: model.ToolResult{ID: mc.ID, Name: mc.Name, Content: wrap(call.Name, res), IsError: !res.OK},
		What:       what, Outcome: outcome(res),
		Shorten: func(bytes int) string { return shortened(call.Name, res, bytes) },
	}
	if !res.OK {
		r.Line = telling(res)
	}
	place(&r, res)
	r.Facts = facts(call.Name, subject, r, res)
	return r
}

// outcome says how a call ended.
func outcome(res tool.Result) string {
	switch {
	case res.Background != nil && res.Background.Running:
		return "running as " + res.Background.ID
	case res.Timeout:
		return "timeout"
	case res.Signal != "":
		return "signal " + res.Signal
	case res.ExitCode != nil:
		return fmt.Sprintf("exit %d", *res.ExitCode)
	case res.Err != nil:
		return string(res.Err.Class) + " " + res.Err.Code
	case res.OK:
		return "ok"
	}
	return "outcome not known"
}

// place says where the text of a result can be read again.
func place(r *history.Result, res tool.Result) {
	switch {
	case res.Background != nil && res.Background.LogPath != "":
		r.Path, r.Bytes, r.Lines = res.Background.LogPath, res.Background.Bytes, res.Background.Lines
	case res.Kept != nil:
		r.Path, r.Bytes, r.Lines = res.Kept.Path, res.Kept.Bytes, res.Kept.Lines
	case res.File != nil:
		r.Path, r.Bytes = res.File.Path, res.File.Bytes
		if n := res.File.NextOffset; n > 0 {
			r.Outcome += fmt.Sprintf(", read up to offset %d", n)
		}
	}
}

// excerptBytes bounds an excerpt: a little more than a reference shows of it.
const excerptBytes = 640

// excerpt is the beginning of what a result says, taken from its content: it is
// needed once the content is no longer sent, and not kept beside it until then.
func excerpt(content string) string {
	var res struct {
		Stdout, Stderr string
		Error          struct{ Message string }
	}
	_, data, _ := strings.Cut(content, "\n")
	data, _, _ = strings.Cut(data, "\n")
	if json.Unmarshal([]byte(data), &res) != nil {
		return "" // it is not one that wrap has made
	}
	text := res.Stdout + res.Stderr
	if res.Error.Message != "" {
		text = res.Error.Message + "\n" + text
	}
	return evidence.Cut(text, excerptBytes)
}

// facts are what a result has shown.
func facts(name, subject string, r history.Result, res tool.Result) []history.Fact {
	var all []history.Fact
	for _, n := range res.Network {
		if n.Verdict == "deny" {
			all = append(all, history.Fact{Kind: history.Denied, Name: cmp.Or(n.Name, n.Address), State: n.Reason})
		}
	}
	switch {
	case res.Err != nil && res.Err.Code == tool.CodeNotAccepted:
		return append(all, notAccepted(res.Err.Message))
	case res.Err != nil && res.Err.Code == tool.CodeNotExecuted || subject == "":
		return all
	case res.Background != nil:
		return append(all, history.Fact{Kind: history.Process, Name: res.Background.ID, State: r.Outcome, Open: res.Background.Running})
	case name == tool.WriteFile && res.OK:
		return append(all, history.Fact{Kind: history.Written, Name: res.File.Path, State: sized(res.File)})
	case name == tool.ReadFile && res.OK && !strings.HasPrefix(res.File.Path, execd.SpillDir+"/"):
		return append(all, history.Fact{Kind: history.Read, Name: res.File.Path, State: sized(res.File), Open: res.File.NextOffset > 0})
	case name == tool.ReadFile || name == tool.WriteFile:
		return all
	}
	return append(all, history.Fact{Kind: history.Command, Name: subject, State: r.Outcome, Open: !res.OK, Line: r.Line})
}

// notAccepted is the fact that the checks failed.
func notAccepted(why string) history.Fact {
	return history.Fact{Kind: history.Check, Name: "acceptance", State: why, Open: true}
}

func sized(f *tool.File) string {
	s := fmt.Sprintf("%d bytes", f.Bytes)
	if f.SHA256 != "" {
		s += ", sha256 " + evidence.Cut(f.SHA256, 16)
	}
	return s
}

// shortened is the content of a result in no more than so many bytes, or the
// shortest that shows anything.
func shortened(name string, res tool.Result, most int) string {
	frame := framed(name, res)
	for frame > most/2 && len(res.Network) > 1 { // that connected to much must not take the place of what was printed
		res = res.FewerRecords(len(res.Network) / 2)
		frame = framed(name, res)
	}
	content := wrap(name, res)
	for range 6 {
		text := len(res.Stdout) + len(res.Stderr)
		if len(content) <= most || text == 0 {
			break
		}
		// As much text as fits when it is escaped as often as what is shown now.
		fits := max(0, most-frame) * text / max(1, len(content)-frame)
		res = res.Shortened(max(1, min(fits, text-1)))
		content = wrap(name, res)
		frame += 16 // what is said about what is left out has grown
	}
	return content
}

// framed is how long a result is without its text.
func framed(name string, res tool.Result) int {
	res.Stdout, res.Stderr = "", ""
	return len(wrap(name, res))
}

// decisive finds the line of an output that says what went wrong.
var decisive = regexp.MustCompile(`(?im)^.*\b(error|fail(ed|ure)?|fatal|panic|assert\w*|exception|undefined|not found|cannot)\b.*$`)

// telling is that line, or the last one.
func telling(res tool.Result) string {
	if res.Err != nil {
		return res.Err.Message
	}
	for _, text := range []string{res.Stderr, res.Stdout} {
		if found := decisive.FindString(text); found != "" {
			return found
		}
	}
	text := strings.TrimSpace(cmp.Or(res.Stderr, res.Stdout))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// quote puts text between marks that it cannot know, as wrap does, in fewer
// words: it stands in the conversation many times.
func quote(name, text string) string {
	var b bytes.Buffer
	mark := rand.Text()[:12]
	fmt.Fprintf(&b, "Untrusted, from %s, up to %s:\n%s\n%s.", strings.Map(plain, name), mark, text, mark)
	return b.String()
}

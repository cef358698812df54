package wrap

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress"
)

// expansion makes texts of templates, and keeps the first error.
type expansion struct {
	values Values
	err    error
}

func (e *expansion) text(s string) string {
	out, err := e.values.Expand(s)
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("the template %q: %w", s, err)
	}
	return out
}

func (e *expansion) each(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = e.text(s)
	}
	return out
}

// argv is the command line, of which all but the user's own arguments are templates.
func (r Recipe) argv(each func([]string) []string, mode Mode, v Vendor, own []string) []string {
	if len(own) > 0 && len(mode.Args) > 0 && own[0] == mode.Args[0] && !strings.HasPrefix(own[0], "-") {
		own = own[1:] // the user has said the subcommand, too
	}
	return slices.Concat(each(r.Command), each(mode.Args), each(v.Args), own)
}

// CommandLine is what is started, as a line of a shell: without what is only known
// inside, such as the home directory, of which templates stay as they are.
func (r Recipe) CommandLine(mode Mode, v Vendor, model string, own []string) string {
	p := expansion{values: Values{Model: model, BaseURL: v.origin() + v.Base, Origin: v.origin()}}
	return shown(r.argv(func(list []string) []string {
		out := make([]string, len(list))
		for i, s := range list {
			if out[i] = s; !inside.MatchString(s) {
				out[i] = p.text(s)
			}
		}
		return out
	}, mode, v, own))
}

// inside are what templates name and is known in the sandbox alone.
var inside = regexp.MustCompile(`\.(Home|Work|Bin|Key)\b`)

// bare is a word that a shell takes as it is.
var bare = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shown is a command line for people, with quotes where they are needed.
func shown(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		if words[i] = w; !bare.MatchString(w) {
			words[i] = quote(w)
		}
	}
	return strings.Join(words, " ")
}

// origin is the vendor's API as the agent reaches it, without Base.
func (v *Vendor) origin() string {
	if v.Route == TLS {
		return "https://" + v.Host
	}
	return fmt.Sprintf("http://%s:%d/%s", egress.Gateway4, egress.ModelPort, v.Host)
}

// arguments is a command line as the arguments of a call.
func arguments(argv []string) json.RawMessage {
	b, _ := json.Marshal(map[string]string{"command": quoted(argv)}) // text always encodes
	return b
}

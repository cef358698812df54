package wrap

import (
	"encoding/json"
	"fmt"

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

package tool_test

import (
	"testing"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// What a person is told opens what was refused, and nothing where nothing would.
func TestOpens(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    sandbox.NetworkRecord
		want string
	}{
		{sandbox.NetworkRecord{Proto: "dns", Name: "a.example", Rule: "default"}, "a.example"},
		{sandbox.NetworkRecord{Proto: "tcp", Name: "a.example", Port: 22, Rule: "default"}, "a.example:22/tcp"},
		{sandbox.NetworkRecord{Proto: "tls", Name: "a.example", Port: 443, Rule: "rules[0]"}, ""},
		{sandbox.NetworkRecord{Proto: "tls", Name: "a.example", Address: "10.0.0.7", Port: 443, Rule: "address.private"}, "10.0.0.7:443"},
		{sandbox.NetworkRecord{Proto: "tcp", Address: "fd00::7", Port: 22, Rule: "address.own"}, "[fd00::7]:22/tcp"},
		{sandbox.NetworkRecord{Proto: "tls", Name: "a.example", Port: 443, Rule: "address.private"}, ""},
		{sandbox.NetworkRecord{Proto: "http", Address: "169.254.169.254", Port: 80, Rule: "address.metadata"}, ""},
	} {
		c.n.Verdict, c.n.Count = "deny", 1
		c.n.CallID = "call_1"
		if got := (tool.Result{CallID: "call_1", Network: []sandbox.NetworkRecord{c.n}}).Opens(); got != c.want {
			t.Errorf("%+v: %q, not %q", c.n, got, c.want)
		}
	}
}

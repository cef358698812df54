package mcphosts_test

import (
	"strings"
	"testing"
	"time"
)

// conformance is the protocol's own suite.
const conformance = "@modelcontextprotocol/conformance@0.1.16"

// offered are its scenarios of what rein offers. The others are of completions,
// resources, prompts and logging, which it does not, or need tools of the suite's own,
// by which it tries what is tried here by clients: progress, errors, questions.
var offered = []string{"server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"}

// The protocol's suite passes for what is offered.
func TestConformance(t *testing.T) {
	if !*all {
		t.Skip("make test-clients runs it")
	}
	p := newPlace(t, conformance)
	url := p.serve(t, "--runtime", "runc")
	for _, name := range offered {
		r := p.run(t, 2*time.Minute, "conformance", "server", "--url", url, "--scenario", name)
		if r.err != nil || !strings.Contains(r.stdout, ", 0 failed, 0 warnings") {
			t.Errorf("%s: %v: %s%s", name, r.err, r.stdout, r.stderr)
			continue
		}
		row(t, "conformance suite 0.1.16", name, "passed")
	}
}

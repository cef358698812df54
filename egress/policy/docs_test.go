package policy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	yaml "github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/rein-sh/rein/egress/policy"
)

// docs/egress.md lists the bundles, and each host of them.
func TestBundlesDocument(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/egress.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range policy.Bundles() {
		if strings.HasPrefix(name, "github") {
			name = "github-read"
		}
		var hosts []string
		for _, h := range policy.Bundle(name) {
			hosts = append(hosts, h.Host)
		}
		row := strings.Join(hosts, ", ")
		if !strings.Contains(string(doc), "`"+name+"`") || !strings.Contains(string(doc), " | "+row) && !strings.Contains(string(doc), "| "+row) {
			t.Errorf("docs/egress.md does not have the hosts of %s: %s", name, row)
		}
	}
	for _, text := range []string{policy.Names4, policy.Names6} {
		if !strings.Contains(string(doc), text) {
			t.Errorf("docs/egress.md does not name %s", text)
		}
	}
}

// Every key is described, and the origin is none.
func TestSchema(t *testing.T) {
	t.Parallel()
	s, err := jsonschema.For[policy.Document](nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"default", "mode", "report_only", "bundles", "rules", "limits"} {
		if p := s.Properties[key]; p == nil || p.Description == "" {
			t.Errorf("%s is not described", key)
		}
	}
	if len(s.Properties) != 6 {
		t.Errorf("%d keys", len(s.Properties))
	}
}

// The example in docs/egress.md compiles, and does what the document says.
func TestExample(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/egress.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "## Rules\n\n```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Targets map[string]struct {
			Network policy.Document `json:"network"`
		} `json:"targets"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	p := compile(t, config.Targets["default"].Network)
	for _, c := range []struct {
		name string
		port uint16
		want bool
	}{
		{"pypi.org", 443, true}, {"api.example.org", 443, true}, {"api.example.org", 80, true}, {"a.b.example.net", 443, true}, {"example.net", 443, false},
		{"git.example.org", 22, true}, {"git.example.org", 443, false}, {"logs.example.net", 443, false}, {"mirror.example.org", 80, true}, {"mirror.example.org", 443, false},
	} {
		if v := p.Connect(c.name, c.port); v.Allowed() != c.want {
			t.Errorf("%s port %d: %+v", c.name, c.port, v)
		}
	}
}

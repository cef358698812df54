package script_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rein-sh/rein/model/script"
)

// TestDocumentation plays every script of the documentation with the results
// below it.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(yaml|json)\n(.*?)^```$").FindAllStringSubmatch(string(data), -1)
	played := 0
	for i, b := range blocks {
		if b[1] != "yaml" {
			continue
		}
		var results []string
		if i+1 < len(blocks) && blocks[i+1][1] == "json" {
			results = strings.Split(strings.TrimSpace(blocks[i+1][2]), "\n")
		}
		played++
		t.Run(fmt.Sprint(played), func(t *testing.T) { playDocumented(t, b[2], results) })
	}
	if played < 6 {
		t.Errorf("%d scripts found", played)
	}
}

func playDocumented(t *testing.T, src string, results []string) {
	c := start(t, src)
	endless := strings.Contains(src, "next: spin")
	for range 20 {
		turn := c.ask()
		if turn.Fault != nil {
			continue
		}
		c.req.Messages = append(c.req.Messages, turn.Reply.Message)
		switch n := len(turn.Reply.Message.Calls); {
		case n > 0 && endless:
			c.results("{}")
		case n > len(results):
			t.Fatalf("step %q: %d calls, but %d results are left", turn.Step, n, len(results))
		case n > 0:
			c.results(results[:n]...)
			results = results[n:]
		}
		if _, err := c.player.Next(&c.req); err != nil && strings.Contains(err.Error(), "the script is over") {
			if len(results) > 0 {
				t.Errorf("%d results are left", len(results))
			}
			return
		}
	}
	if !endless {
		t.Error("no end")
	}
}

// TestDocumentationIsComplete looks for everything the format has: what a
// message lists as allowed is in the documentation.
func TestDocumentationIsComplete(t *testing.T) {
	data, err := os.ReadFile("../../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{
		"zzzzzzzzzz: 1",
		"steps: [{zzzzzzzzzz: 1}]",
		"steps: [{stop: zzzzzzzzzz}]",
		"steps: [{usage: {zzzzzzzzzz: 1}}]",
		"steps: [{faults: [zzzzzzzzzz]}]",
		"steps: [{faults: [{zzzzzzzzzz: 1}]}]",
		"steps: [{next: [{zzzzzzzzzz: 1}]}]",
		"steps: [{calls: [{zzzzzzzzzz: 1}]}]",
		"steps: [{calls: [{tool: t, expect: {a: {zzzzzzzzzz: 1}}}]}]",
		"steps: [{calls: [{tool: t, capture: {a: {zzzzzzzzzz: 1}}}]}]",
		"steps: [{calls: [{tool: t, capture: {a: {from: b, type: zzzzzzzzzz}}}]}]",
		"steps: [{calls: [{tool: t, capture: {a: {from: b, replace: [{zzzzzzzzzz: 1}]}}}]}]",
	} {
		_, err := script.Load([]byte(src), "s.yaml")
		if err == nil {
			t.Fatalf("%s: no error", src)
		}
		m := regexp.MustCompile(`\((?:it has|one of) (.*)\)$`).FindStringSubmatch(err.Error())
		if m == nil {
			t.Errorf("no list in %s", err)
			continue
		}
		for _, word := range strings.Split(m[1], ", ") {
			if !regexp.MustCompile(`\b` + word + `\b`).Match(data) {
				t.Errorf("%s: %q is not documented", src, word)
			}
		}
	}
}

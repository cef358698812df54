package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// symptoms are the rows of docs/troubleshooting.md: the lines that rein prints,
// by the row's anchor.
func symptoms() (map[string][]string, error) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "troubleshooting.md"))
	if err != nil {
		return nil, err
	}
	anchor, span := regexp.MustCompile(`^ <a id="([a-z0-9]+)"></a>`), regexp.MustCompile("`([^`]+)`")
	rows := map[string][]string{}
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) != 5 {
			continue
		}
		if m := anchor.FindStringSubmatch(cells[1]); m != nil {
			for _, s := range span.FindAllStringSubmatch(cells[2], -1) {
				rows[m[1]] = append(rows[m[1]], strings.ReplaceAll(s[1], "\x00", "|"))
			}
		}
	}
	return rows, nil
}

// documented ROW... checks that the last command printed every line of these
// rows of docs/troubleshooting.md.
func documented(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: documented ROW...")
	}
	rows, err := symptoms()
	ts.Check(err)
	printed := strings.Split(ts.ReadFile("stderr")+"\n"+ts.ReadFile("stdout"), "\n")
	for _, row := range args {
		if len(rows[row]) == 0 {
			ts.Fatalf("docs/troubleshooting.md has no lines in a row %q", row)
		}
		for _, line := range rows[row] {
			want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
			if !slices.ContainsFunc(printed, want.MatchString) {
				ts.Fatalf("row %s: no line is\n%s", row, line)
			}
		}
	}
}

// Every row of the page is one that a script has seen.
func TestTroubleshooting(t *testing.T) {
	t.Parallel()
	rows, err := symptoms()
	if err != nil || len(rows) < 9 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	script, err := os.ReadFile(filepath.Join("testdata", "troubleshooting.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for row, lines := range rows {
		if len(lines) == 0 || !regexp.MustCompile(`(?m)^documented (.* )?`+row+`( .*)?$`).Match(script) {
			t.Errorf("row %s, with %d lines: no script sees it", row, len(lines))
		}
	}
}

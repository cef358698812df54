package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// No line of a question goes on at the terminal's edge.
func TestFolded(t *testing.T) {
	for _, tt := range []struct {
		line  string
		width int
		want  []string
	}{
		{"", 80, []string{"  | "}},
		{"ls -l", 80, []string{"  | ls -l"}},
		{strings.Repeat("a", 200), 0, []string{"  | " + strings.Repeat("a", 200)}},
		{"abcdefgh", 10, []string{"  | abcde", "  ……fgh"}},
		{"abcde  why: no", 10, []string{"  | abcde", "  ……  why", "  ……: no"}},
		{"日本語", 10, []string{"  | 日本", "  ……語"}},
		{"a\tb", 10, []string{"  | a", "  ……\t", "  ……b"}},
		{"abc", 3, []string{"  | ab", "  ……c"}},
	} {
		if d := cmp.Diff(tt.want, folded("  | ", tt.line, tt.width)); d != "" {
			t.Errorf("%q in %d columns: (-want +got)\n%s", tt.line, tt.width, d)
		}
	}
}

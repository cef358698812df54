package wrap

import (
	"slices"
	"testing"
)

func TestLines(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  []string
	}{
		{"", 10, nil},
		{"one two", 10, []string{"one two"}},
		{"one two three", 8, []string{"one two", "three"}},
		{"alpha beta", 9, []string{"alpha", "beta"}}, // 10 with the space
		{"incomprehensible is long", 8, []string{"incomprehensible", "is long"}},
	} {
		if got := Lines(c.text, c.width); !slices.Equal(got, c.want) {
			t.Errorf("Lines(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

package spelling_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/internal/spelling"
)

func TestNearest(t *testing.T) {
	names := []string{"run_command", "read_file", "write_file", "ttl"}
	for word, want := range map[string]string{
		"run_comand":                 "run_command", // a letter is missing
		"raed_file":                  "read_file",   // two are swapped
		"Write_File":                 "write_file",
		"tll":                        "ttl",
		"":                           "",
		"exec":                       "",
		strings.Repeat("x", 100_000): "",
	} {
		if got := spelling.Nearest(word, names); got != want {
			t.Errorf("%.20q: %q, want %q", word, got, want)
		}
	}
	if got := spelling.Nearest("x", nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

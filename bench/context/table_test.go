package main

import (
	"strings"
	"testing"
)

func TestEnd(t *testing.T) {
	for _, c := range []struct {
		name        string
		played      int
		whole, sent int64
		chosen      bool
		want        string // part of the error; empty: none
	}{
		{"as promised", 10, 1000, 500, false, ""},
		{"too many tokens", 10, 1000, 501, false, "50.1%"},
		{"too few trajectories", 9, 1000, 100, false, "9 trajectories were played, and 10"},
		{"chosen ones", 1, 1000, 900, true, ""},
		{"none", 0, 0, 0, false, "no trajectory"},
		{"none of those chosen", 0, 0, 0, true, "no trajectory"},
	} {
		err := (&table{strategy: "reference", played: c.played, whole: c.whole, sent: c.sent}).end(c.chosen)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

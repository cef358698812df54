package command_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rein-sh/rein/command"
)

// The work of reading a line grows with its length, whatever may be a command line
// in it: a program given ends in every word, and shells in shells.
func TestStartersBounded(t *testing.T) {
	nested := "x y"
	for range 7 {
		nested = "bash -c " + command.Quote(nested)
	}
	for name, c := range map[string]struct {
		line string
		read bool
	}{
		"every word a command line": {"zip " + strings.Repeat("-TT ", 20000), false},
		"every word a script":       {"git bisect " + strings.Repeat("run ", 10000), true},
		"every word in two words":   {"env -Z " + strings.Repeat("'a b' ", 15000), false},
		"shells in shells":          {strings.Repeat(nested+"\n", 35), true},
		"shells in one shell":       {nested, true},
		"many names":                {"zip -TT 'unzip -tqq' " + strings.Repeat("a.txt ", 1500), true},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := command.Parse(c.line)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<31 {
			t.Errorf("%s: %d bytes took %d MiB", name, len(c.line), took>>20)
		}
		if _, is := errors.AsType[*command.Error](err); is == c.read {
			t.Errorf("%s: read %v, %v", name, !is, err)
		}
	}
}

// What a program starts by its own words is listed where it can be seen, and
// the program marked.
func TestStarters(t *testing.T) {
	for _, tt := range []struct{ line, started string }{
		{`git -c alias.x='!rm y' x`, "rm"},
		{`git -c core.pager='rm y' log`, "rm"},
		{`git rebase --exec 'rm y' main`, "rm"},
		{`git config alias.x '!rm y'`, "rm"},
		{`git frobnicate`, ""},
		{`tar --checkpoint-action=exec='rm y' -cf a b`, "rm"},
		{`tar -cI 'rm y' -f a b`, "rm"},
		{`sed -n '1{p;e rm y
}' a`, ""},
		{"sed '2,3e rm y' a", "rm"},
		{`awk '{system("rm y")}' a`, "rm"},
		{`make --eval 'x: ; rm' x`, "rm"},
		{`make CC='rm y'`, "rm"},
		{`sort --compress-program=rm a`, "rm"},
		{`rsync -ae 'rm y' a b`, "rm"},
		{`go test -exec='rm y' .`, "rm"},
		{`gcc-12 -wrapper rm,y a.c`, "rm"},
		{`socat - SYSTEM:'rm y'`, "rm"},
	} {
		s, err := command.Parse(tt.line)
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		parts := s.Simple()
		if !parts[0].Unseen || !parts[0].Hidden() || s.Effects().Kind == command.ReadOnly {
			t.Errorf("%s: %+v, %+v", tt.line, parts[0], s.Effects())
		}
		if tt.started != "" && !slices.ContainsFunc(parts, func(c command.Simple) bool { return c.Name() == tt.started }) {
			t.Errorf("%s: %s is not listed: %+v", tt.line, tt.started, parts)
		}
	}
	for line, file := range map[string]string{"make -ksf x.mk all": "x.mk", "make --file x.mk": "x.mk", "sed -nf x.sed a": "x.sed", "sed --file=x.sed a": "x.sed",
		"awk -F: -f x.awk a": "x.awk"} {
		s, err := command.Parse(line)
		if err != nil || !slices.Contains(s.Executes(), file) {
			t.Errorf("%s: %v, %v", line, s.Executes(), err)
		}
		if c := s.Simple()[0]; c.Unseen {
			t.Errorf("%s: %+v", line, c)
		}
	}
}

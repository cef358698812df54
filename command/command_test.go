package command_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/command"
)

// listed is a script as the lines of its simple commands, with what is known of
// each.
func listed(s *command.Script) []string {
	var out []string
	for _, c := range s.Simple() {
		line := c.String()
		if c.Form != command.Plain {
			line += " #" + string(c.Form)
		}
		if c.Opaque {
			line += " #opaque"
		}
		if c.Unresolved() {
			line += " #unresolved"
		}
		if len(c.Behind) > 0 {
			line += " <" + strings.Join(c.Behind, " ")
		}
		out = append(out, line)
	}
	return out
}

func TestSimple(t *testing.T) {
	for _, tt := range []struct {
		src  string
		want []string
	}{
		{"", nil},
		{"# nothing", nil},
		{"x=1", nil},
		{"ls -l", []string{"ls -l"}},
		{`l\s 'a b' "c\$d" e"f"g`, []string{"ls 'a b' 'c$d' efg"}},
		{"a | b && c || d; e & f", []string{"a", "b", "c", "d", "e", "f"}},
		{"(a; { b; })", []string{"a", "b"}},
		{"if a; then b; elif c; then d; else e; fi", []string{"a", "b", "c", "d", "e"}},
		{"while a; do b; done; until c; do d; done", []string{"a", "b", "c", "d"}},
		{"for x in 1 2; do a; done", []string{"a"}},
		{"case x in y) a;; *) b;; esac", []string{"a", "b"}},
		{"f() { rm x; }; f", []string{"rm x", "f"}},
		{"! a", []string{"a"}},
		{"time a", []string{"a"}},
		{"coproc a", []string{"a"}},
		{"echo $(rm x) `rm y`", []string{"echo $(rm x) `rm y` #unresolved", "rm x", "rm y"}},
		{`echo "a $(rm x)"`, []string{`echo "a $(rm x)" #unresolved`, "rm x"}},
		{"x=$(rm y)", []string{"x=$(rm y) #assignment #unresolved", "rm y"}},
		{"cat <(rm x) >(rm y)", []string{"cat <(rm x) >(rm y) #unresolved", "rm x", "rm y"}},
		{"echo $((1 + $(rm x)))", []string{"echo $((1 + $(rm x))) #unresolved", "$((1 + $(rm x))) #expression #unresolved", "rm x"}},
		{"cat <<E\n$(rm x)\nE", []string{"cat <<E #unresolved", "rm x"}},
		{"cat <<'E'\n$(rm x)\nE", []string{"cat <<''"}},
		{"${x:-$(rm y)} a", []string{"${x:-$(rm y)} a #opaque #unresolved", "rm y"}},
		{"[[ -n $(rm x) ]]", []string{"[[ -n $(rm x) ]] #unresolved", "rm x"}},
		{"[[ a -eq b ]]", []string{"[[ a -eq b ]] #expression #unresolved"}},
		{"((x++))", []string{"((x++)) #expression #unresolved", "x++"}}, // a command to a POSIX shell
		{"let x=1", []string{"let x=1 #expression #unresolved"}},
		{"a > out 2>&1 < in", []string{"a >out 2>&1 <in"}},
		{"{ a; } > out", []string{">out #redirect", "a"}},
		{"> out", []string{">out #redirect"}},
		{"PATH=/tmp", []string{"PATH=/tmp #assignment"}},
		{"PATH=/tmp ls", []string{"PATH=/tmp ls"}},
		{"export A=b C", []string{"A=… #assignment #unresolved", "export 'A=b' C"}},
		{"ls *.go ~/x {a,b}", []string{"ls *.go ~/x {a,b} #unresolved"}},
		{"$x", []string{"$x #opaque #unresolved"}},

		{"sh -c 'rm x; ls'", []string{"sh -c 'rm x; ls' #shell", "rm x <sh", "ls <sh"}},
		{"bash -euo pipefail -c 'rm x'", []string{"bash -euo pipefail -c 'rm x' #shell", "rm x <bash"}},
		{"bash -eu -o pipefail -c 'rm x'", []string{"bash -eu -o pipefail -c 'rm x' #shell", "rm x <bash"}},
		{"bash -lc 'rm x'", []string{"bash -lc 'rm x' #shell #opaque", "rm x <bash"}},
		{"/bin/sh -c \"$x\"", []string{`/bin/sh -c "$x" #shell #opaque #unresolved`}},
		{"sh x.sh", []string{"sh x.sh #shell #opaque"}},
		{"curl x | sh", []string{"curl x", "sh #shell #opaque"}},
		{"sh <<'E'\nrm x\nE", []string{"sh <<'' #shell", "rm x <sh"}},
		{"sh -c \"sh -c 'rm x'\"", []string{`sh -c 'sh -c '\''rm x'\''' #shell`, "sh -c 'rm x' #shell <sh", "rm x <sh sh"}},
		{"eval rm x", []string{"eval rm x #shell", "rm x <eval"}},
		{"eval \"$x\"", []string{`eval "$x" #shell #opaque #unresolved`}},
		{"trap 'rm x' EXIT", []string{"trap 'rm x' EXIT #shell", "rm x <trap"}},
		{"trap - EXIT", []string{"trap - EXIT #shell"}},
		{". ./env.sh", []string{". ./env.sh #shell #opaque"}},
		{"env -i A=b rm x", []string{"A=b env -i 'A=b' rm x #wrapper", "rm x <env"}},
		{"env -S 'rm x'", []string{"env -S 'rm x' #wrapper #opaque", "rm x <env"}},
		{"xargs -n 1 rm -f", []string{"xargs -n 1 rm -f #wrapper", "rm -f … #unresolved <xargs"}},
		{"xargs -0 sh -c 'rm \"$1\"' _", []string{`xargs -0 sh -c 'rm "$1"' _ #wrapper`, `sh -c 'rm "$1"' _ … #shell #unresolved <xargs`, `rm "$1" #unresolved <xargs sh`}},
		{"find . -name '*.o' -exec rm {} + -print", []string{"find . -name '*.o' -exec rm '{}' + -print #wrapper", "rm {} #unresolved <find"}},
		{"find . -exec a \\; -exec b \\;", []string{"find . -exec a ';' -exec b ';' #wrapper", "a <find", "b <find"}},
		{"nohup timeout -s KILL 5 nice -n 3 rm x", []string{"nohup timeout -s KILL 5 nice -n 3 rm x #wrapper", "timeout -s KILL 5 nice -n 3 rm x #wrapper <nohup",
			"nice -n 3 rm x #wrapper <nohup timeout", "rm x <nohup timeout nice"}},
		{"sudo -u root -- rm x", []string{"sudo -u root -- rm x #wrapper", "rm x <sudo"}},
		{"command rm x", []string{"command rm x #wrapper", "rm x <command"}},
		{"command -v rm", []string{"command -v rm"}},
		{"exec rm x", []string{"exec rm x #wrapper", "rm x <exec"}},
		{"python3 -c 'x'", []string{"python3 -c x #interpreter #opaque"}},
		{"python3.11 gen.py", []string{"python3.11 gen.py #interpreter #opaque"}},
		{"watch 'rm x'", []string{"watch 'rm x' #wrapper", "rm x <watch"}},
	} {
		s, err := command.Parse(tt.src)
		if err != nil {
			t.Errorf("%s: %v", tt.src, err)
			continue
		}
		if d := cmp.Diff(tt.want, listed(s)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.src, d)
		}
	}
}

func TestExecutes(t *testing.T) {
	for src, want := range map[string][]string{
		"ls":                            nil,
		"/usr/bin/ls":                   nil,
		"./build.sh -x":                 {"./build.sh"},
		"sh build.sh":                   {"build.sh"},
		"python3 -u tools/gen.py a":     {"tools/gen.py"},
		"cd a && cd b && ./x":           {"./x", "a/x", "b/x", "a/b/x"},
		"cd -- sub && ./x":              {"./x", "sub/x"},
		"env -C sub ./x":                {"./x", "sub/x"},
		"just -fo.mk":                   {"justfile", "Justfile", "o.mk"},
		"just --file=o.mk":              {"justfile", "Justfile", "o.mk"},
		"rake -C sub":                   {"Rakefile", "sub/Rakefile"},
		"sh < build.sh":                 {"build.sh"},
		"python3 build":                 {"build"},
		"cd sub && ./x":                 {"./x", "sub/x"},
		". ./env.sh":                    {"./env.sh"},
		"timeout 5 ./x; sh -c ./y":      {"./x", "./y"},
		"make -f other.mk all":          {"Makefile", "makefile", "GNUmakefile", "other.mk"},
		"find . -exec ./each {} \\;":    {"./each"},
		"python3 -c 'import x' file.py": nil,
	} {
		s, err := command.Parse(src)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, s.Executes()); d != "" {
			t.Errorf("%s: (-want +got)\n%s", src, d)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"unclosed quote", "echo 'a", "line 1, column 6"},
		{"unclosed substitution", "echo $(a", "line 1, column 6"},
		{"on a later line", "ls\nif", "line 2, column 1"},
		{"a command to a POSIX shell, and bad arithmetic to bash", "((rm x))", "line 1, column 6"},
		{"NUL", "a\x00b", "NUL"},
		{"too long", strings.Repeat("a", command.MaxBytes+1), "bytes"},
		{"too deep", strings.Repeat("(", 300) + "a" + strings.Repeat(")", 300), "deep"},
		{"too many", strings.Repeat("a;", command.MaxSimple+1), "simple commands"},
		{"shells in shells", strings.Repeat("eval ", 12) + "a", "start each other"},
		{"wrappers in wrappers", strings.Repeat("nohup ", 12) + "a", "start each other"},
		{"within a shell", `sh -c "'"`, "in what sh is given"},
	} {
		_, err := command.Parse(tt.src)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
		if e := command.EffectsOf(tt.src); e.Kind != command.Unknown || e.Reason == "" {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, s := range []string{"", "a", "a b", "it's", "$x", "a\nb", "*", "~", "-x", "{a,b}", "é", "a=b", "[", "!", "#"} {
		script, err := command.Parse("x " + command.Quote(s))
		if err != nil {
			t.Fatal(err)
		}
		if argv, ok := script.Simple()[0].Argv(); !ok || !slices.Equal(argv, []string{"x", s}) {
			t.Errorf("%q: %q", s, argv)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"ls", "a | b > c", "sh -c 'x $(y)'", "find . -exec rm {} \\;", "((rm x))", "cat <<E\n$(x)\nE\n", "sed -n 's/a/b/w c'",
		"env -i A=b c", "xargs -0 sh -c 'x'", "[[ a -eq b ]]", "trap 'x' EXIT", "case x in (a|b) c;; esac", "a=(1 2) b[1]=2", "${x/a/$(b)}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		s, err := command.Parse(src)
		if err != nil {
			if s != nil {
				t.Fatal("a script beside an error")
			}
			return
		}
		e := s.Effects()
		if e.Kind != command.ReadOnly && e.Reason == "" || e.Kind == "" {
			t.Fatalf("no reason: %+v", e)
		}
		for _, c := range s.Simple() {
			if argv, ok := c.Argv(); ok && c.Form == command.Plain && len(c.Assigns)+len(c.Redirects) == 0 && len(c.Behind) == 0 {
				again, err := command.Parse(c.String())
				if err != nil {
					t.Fatalf("%q of %q: %v", c.String(), src, err)
				}
				// A quoted word is never a keyword or an assignment.
				if got, ok := again.Simple()[0].Argv(); ok && fmt.Sprint(got) != fmt.Sprint(argv) && command.Quote(argv[0]) != argv[0] {
					t.Fatalf("%q is read as %q", argv, got)
				}
			}
		}
		s.Executes()
	})
}

package approval_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/approval"
)

func policy(t *testing.T, fallback approval.Action, rules ...approval.Rule) *approval.Policy {
	t.Helper()
	p, err := approval.NewPolicy(fallback, rules...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func shell(line string) approval.Request {
	return approval.Request{Kind: approval.Command, Tool: "run_command", Command: line, Cwd: "/workspace"}
}

// A rule that allows is read narrowly.
func TestAllow(t *testing.T) {
	p := policy(t, approval.Ask,
		approval.Rule{Action: approval.Allow, Command: "ls"},
		approval.Rule{Action: approval.Allow, Command: "git status|diff|log"},
		approval.Rule{Action: approval.Allow, Command: "go test", Unresolved: true},
		approval.Rule{Action: approval.Allow, Command: "tee", Redirects: true},
		approval.Rule{Action: approval.Allow, Command: "make all", Exact: true},
		approval.Rule{Action: approval.Allow, Command: "sh -c"},
		approval.Rule{Action: approval.Allow, Command: "x*"},
		approval.Rule{Action: approval.Allow, Command: "find"},
		approval.Rule{Action: approval.Allow, Command: "python3 -m pytest"},
	)
	for line, want := range map[string]approval.Action{
		"ls":                        approval.Allow,
		"ls -l /etc":                approval.Allow,
		"/usr/bin/ls":               approval.Allow,
		"ls && ls | ls; (ls)":       approval.Allow,
		"# a comment":               approval.Allow,
		"x=1":                       approval.Allow,
		"x=1; ls":                   approval.Allow,
		"git status":                approval.Allow,
		"git diff HEAD":             approval.Allow,
		"go test ./...":             approval.Allow,
		"go test $pkg":              approval.Allow,
		"tee out":                   approval.Allow,
		"tee < in > out":            approval.Allow,
		"make all":                  approval.Allow,
		"sh -c ls":                  approval.Allow,
		"sh -c 'ls; ls -l'":         approval.Allow,
		"xyz":                       approval.Allow,
		"find . -name x":            approval.Allow,
		"find . -exec ls \\;":       approval.Allow,
		"python3 -m pytest -q":      approval.Allow,
		"for i in 1 2; do ls; done": approval.Allow,
		"ls > /dev/null 2>&1":       approval.Allow,
		"LC_ALL=C ls":               approval.Allow,
		"cd sub && ls":              approval.Ask,
		"./ls":                      approval.Ask,
		"sub/ls":                    approval.Ask,
		"ls; rm x":                  approval.Ask,
		"ls $(rm x)":                approval.Ask,
		"ls $x":                     approval.Ask,
		"ls *.go":                   approval.Ask,
		"ls > out":                  approval.Ask,
		"{ ls; } > out":             approval.Ask,
		"PATH=/tmp ls":              approval.Ask,
		"PATH=/tmp; ls":             approval.Ask,
		"LD_PRELOAD=x ls":           approval.Ask,
		"git push":                  approval.Ask,
		"git -C x status":           approval.Ask,
		"git":                       approval.Ask,
		"git $x":                    approval.Ask,
		"go test $(rm x)":           approval.Ask,
		"go build":                  approval.Ask,
		"$x":                        approval.Ask,
		"make all clean":            approval.Ask,
		"make":                      approval.Ask,
		"sh -c 'ls; rm x'":          approval.Ask,
		`sh -c "$x"`:                approval.Ask,
		"sh x.sh":                   approval.Ask,
		"env ls":                    approval.Ask,
		"xargs ls":                  approval.Ask, // a pattern names no wrapper
		"ls | xargs ls":             approval.Ask,
		"eval ls":                   approval.Ask,
		"find . -exec rm {} \\;":    approval.Ask,
		"find . -exec ls {} \\;":    approval.Ask, // of files known only at execution
		"python3 -c x":              approval.Ask,
		"((x++))":                   approval.Ask,
		"echo '":                    approval.Ask,
		"trap 'rm x' EXIT":          approval.Ask,
		"f() { rm x; }; ls":         approval.Ask,
	} {
		if v := p.Judge(shell(line)); v.Action != want {
			t.Errorf("%s: %+v, want %s", line, v, want)
		}
	}
}

// A rule that asks or denies is read broadly.
func TestDeny(t *testing.T) {
	p := policy(t, "",
		approval.Rule{Name: "no removing", Action: approval.Deny, Command: "rm", Reason: "it is gone then"},
		approval.Rule{Action: approval.Ask, Command: "git push"},
		approval.Rule{Action: approval.Deny, Command: "git push --force|-f"},
		approval.Rule{Action: approval.Ask, Form: "unresolved"},
		approval.Rule{Action: approval.Deny, Form: "unparsed"},
		approval.Rule{Action: approval.Ask, Form: "interpreter"},
		approval.Rule{Action: approval.Ask, Command: "curl|wget"},
	)
	for line, want := range map[string]approval.Action{
		"ls":                           approval.Allow,
		"echo rm":                      approval.Allow,
		"rm x":                         approval.Deny,
		"/bin/rm x":                    approval.Deny,
		"./rm x":                       approval.Deny,
		"/opt/x/rm x":                  approval.Deny,
		`r\m x`:                        approval.Deny,
		`"r"'m' x`:                     approval.Deny,
		"ls; rm x":                     approval.Deny,
		"ls | rm x":                    approval.Deny,
		"ls & rm x":                    approval.Deny,
		"if ls; then rm x; fi":         approval.Deny,
		"f() { rm x; }; f":             approval.Deny,
		"echo $(rm x)":                 approval.Deny,
		"cat <<E\n$(rm x)\nE":          approval.Deny,
		"sh -c 'rm x'":                 approval.Deny,
		"bash -lc 'cd x && rm y'":      approval.Deny,
		"eval 'rm x'":                  approval.Deny,
		"env -i A=b rm x":              approval.Deny,
		"env --unheard-of rm x":        approval.Deny,
		"sudo --unheard-of value rm x": approval.Deny,
		"xargs rm":                     approval.Deny,
		"find . -exec rm {} +":         approval.Deny,
		"timeout 5 nohup rm x":         approval.Deny,
		"time rm x":                    approval.Deny,
		"coproc rm x":                  approval.Deny,
		"busybox rm x":                 approval.Deny,
		"command rm x":                 approval.Deny,
		"trap 'rm x' EXIT":             approval.Deny,
		"git status":                   approval.Allow,
		"git push":                     approval.Ask,
		"git -C x push origin":         approval.Ask,
		"git -c a=b --no-pager push":   approval.Ask,
		"git push -f":                  approval.Deny,
		"git push origin main --force": approval.Deny,
		"ls $x":                        approval.Ask,
		"ls *.go":                      approval.Ask,
		"rm $x":                        approval.Deny,
		"python3 -c x":                 approval.Ask,
		"echo '":                       approval.Deny,
		"wget x":                       approval.Ask,
	} {
		if v := p.Judge(shell(line)); v.Action != want {
			t.Errorf("%s: %+v, want %s", line, v, want)
		}
	}
	if v := p.Judge(shell("rm x")); v.Rule != "no removing" || !strings.Contains(v.Reason, "it is gone then") {
		t.Errorf("%+v", v)
	}
}

func TestTools(t *testing.T) {
	p := policy(t, approval.Deny,
		approval.Rule{Action: approval.Ask, Tool: "write_file"},
		approval.Rule{Action: approval.Allow, Command: "ls"},
		approval.Rule{Action: approval.Deny, Command: "rm"},
		approval.Rule{Action: approval.Deny, Tool: "forbidden"},
	)
	for _, tt := range []struct {
		r    approval.Request
		want approval.Action
	}{
		{approval.Request{Kind: approval.Tool, Tool: "write_file"}, approval.Ask},
		{approval.Request{Kind: approval.Tool, Tool: "read_file"}, approval.Allow},
		{approval.Request{Kind: approval.Tool, Tool: "forbidden"}, approval.Deny},
		{shell("ls"), approval.Allow},
		{shell("cat x"), approval.Deny},
		{approval.Request{Kind: approval.Tool, Tool: "narrow", Argv: []string{"cat", "x"}}, approval.Allow},
		{approval.Request{Kind: approval.Tool, Tool: "narrow", Argv: []string{"rm", "x; y"}}, approval.Deny},
		{approval.Request{Kind: approval.Host, Host: "example.com"}, approval.Ask},
	} {
		if v := p.Judge(tt.r); v.Action != tt.want {
			t.Errorf("%+v: %+v, want %s", tt.r, v, tt.want)
		}
	}
	strict := policy(t, approval.Allow, approval.Rule{Action: approval.Deny, Tool: "run_command"})
	if v := strict.Judge(shell("ls")); v.Action != approval.Deny {
		t.Errorf("%+v", v)
	}
	if v := policy(t, "", approval.Rule{Action: approval.Ask, Tool: "*"}).Judge(shell("ls")); v.Action != approval.Allow {
		t.Errorf("a command is no other tool: %+v", v)
	}
	hosts := policy(t, "", approval.Rule{Action: approval.Allow, Host: "*.example.com"}, approval.Rule{Action: approval.Deny, Host: "bad.example.com"})
	for host, want := range map[string]approval.Action{
		"a.example.com": approval.Allow, "A.Example.COM.": approval.Allow, "bad.example.com": approval.Deny, "example.com": approval.Ask, "example.org": approval.Ask,
		"xexample.com": approval.Ask,
	} {
		if v := hosts.Judge(approval.Request{Kind: approval.Host, Host: host}); v.Action != want {
			t.Errorf("%s: %+v, want %s", host, v, want)
		}
	}
}

func TestRuleFaults(t *testing.T) {
	for _, tt := range []struct {
		rule approval.Rule
		want string
	}{
		{approval.Rule{Action: approval.Allow}, "exactly one"},
		{approval.Rule{Action: approval.Allow, Tool: "a", Command: "b"}, "exactly one"},
		{approval.Rule{Command: "a"}, `"" is not allow`},
		{approval.Rule{Action: "maybe", Command: "a"}, `"maybe" is not allow`},
		{approval.Rule{Action: approval.Allow, Command: " "}, "command: it is empty"},
		{approval.Rule{Action: approval.Allow, Command: "a |b"}, "alternative"},
		{approval.Rule{Action: approval.Allow, Form: "poem"}, "is none of"},
		{approval.Rule{Action: approval.Allow, Tool: "a", Exact: true}, "go with command"},
		{approval.Rule{Action: approval.Deny, Command: "a", Unresolved: true}, "broad as it is"},
		{approval.Rule{Action: approval.Allow, Command: "ls", Examples: approval.Examples{Match: []string{"ls; rm x"}}}, `"ls; rm x" does not match`},
		{approval.Rule{Action: approval.Allow, Command: "ls", Examples: approval.Examples{NoMatch: []string{"ls -l"}}}, `"ls -l" matches`},
		{approval.Rule{Action: approval.Deny, Command: "rm", Examples: approval.Examples{Match: []string{"ls"}}}, `"ls" does not match`},
		{approval.Rule{Action: approval.Deny, Command: "rm", Examples: approval.Examples{NoMatch: []string{"ls; rm x"}}}, "matches"},
		{approval.Rule{Action: approval.Deny, Tool: "a", Examples: approval.Examples{Match: []string{"b"}}}, "does not match"},
		{approval.Rule{Action: approval.Deny, Host: "*.a", Examples: approval.Examples{Match: []string{"a"}}}, "does not match"},
		{approval.Rule{Action: approval.Deny, Form: "unparsed", Examples: approval.Examples{Match: []string{"ls"}}}, "does not match"},
	} {
		_, err := approval.NewPolicy("", approval.Rule{Action: approval.Deny, Command: "first"}, tt.rule)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "rule 2") {
			t.Errorf("%+v: %v, want %q", tt.rule, err, tt.want)
		}
	}
	if _, err := approval.NewPolicy("perhaps"); err == nil {
		t.Error("a default that is none")
	}
}

func FuzzJudge(f *testing.F) {
	p, err := approval.NewPolicy(approval.Ask, approval.Rule{Action: approval.Allow, Command: "ls|echo"}, approval.Rule{Action: approval.Deny, Command: "rm"})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"ls", "rm x", "ls; rm x", "echo rm", "sh -c 'rm x'", "r\\m", "ls $(rm x)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		alone := p.Judge(shell(line)).Action
		if alone != approval.Allow && alone != approval.Ask && alone != approval.Deny {
			t.Fatalf("%q: %q", line, alone)
		}
		// Another command in front makes nothing milder.
		if after := p.Judge(shell("rm x\n" + line)).Action; after == approval.Allow {
			t.Fatalf("%q after rm is allowed", line)
		}
	})
}

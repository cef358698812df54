package approval_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/command"
)

// Command lines that look like harmless programs and start canary, or something
// in the place of a harmless program.
var payloads = []string{
	// What assignments and other words evaluate.
	`x='a[$(canary y)]'; z=$((x))`,
	`z='$(canary y)'; q=${z@P}`,
	`x='a[$(canary y)]'; case $((x)) in *) ;; esac`,
	`z='$(canary y)'; [[ ${z@P} ]]`,
	`y=1; z='y[$(canary y)]'; q=${y[z]}`,
	`y=abc; q=${y:'a[$(canary y)]'}`,
	`a=(['b[$(canary y)]']=1)`,
	`y=$(('a[$(canary y)]'))`,
	`q='$(canary y)'; : ${q@P}`,
	`x='a[$(canary y)]'; echo $((x))`,
	`x='a[$(canary y)]'; echo ${!x}`,
	`x='a[$(canary y)]'; for i in $((x)); do :; done`,
	`x='a[$(canary y)]'; cat <<< $((x))`,
	"x='a[$(canary y)]'; cat <<E\n$((x))\nE\n",
	`x='a[$(canary y)]'; a[x]=1`,
	`x='a[$(canary y)]'; echo "${a[x]}"`,
	`x=$'a[$(canary y)]'; echo "${#a[x]}"`,
	`declare -i n; n='a[$(canary y)]'`,
	// Comments and carriage returns.
	"ls # x \\\ncanary y",
	"ls # x \\\\\ncanary y",
	"echo `ls # x \\\ncanary y`",
	"ls \\\r\ncanary y",
	"ls x\r# ; canary y",
	"cat <<E\nfoo\\\r\nE\ncanary y\nE\n",
	// Coprocesses.
	`coproc canary cat y | cat; sleep 0.2`,
	`! coproc canary cat y | cat; sleep 0.2`,
	// Words of several parts.
	`find . -maxdepth 0 {"-exec",canary,y,";"}`,
	`find . -maxdepth 0 ["-"]exec canary y \;`,
	`{"canary",y}`,
	`{'canary',y}`,
	// Here-documents.
	"cat <<\"E\\\"\"\nE\"\ncanary y\nE\\\"\n",
	"cat <<E\n\\\nE\ncanary y\nE\n",
	"cat <<E\n${x:-'}\nE\ncanary y\n: '}\nE\n",
	"echo $(cat <<E\nfoo\nE)\ncanary y\nE\n)",
	"bash <<EOF\necho \"\\$(canary y)\"\nEOF",
	"bash <<EOF\necho \\`canary y\\`\nEOF",
	"bash <<-'A'\ncat <<B\n\tB\ncanary y\nB\nA",
	"cat <<E\n${x:-'}$(canary y)'}\nE\n",
	`echo "${x:-'$(canary y)'}"`,
	// Variables that the shell obeys.
	`for PATH in ./evil; do ls; done`,
	`printf -v PATH %s ./evil; ls`,
	`read PATH <<< ./evil; ls`,
	`export PATH=./evil; ls`,
	`declare PATH=./evil; ls`,
	`echo {PATH}</dev/null; ls`,
	`q=$((PATH=10)); ls`,
	`: ${BASH_ENV:=./evil/ls}; export BASH_ENV; bash -c :`,
	// Shells.
	`bash -eo pipefail -c 'canary y'`,
	`bash -euxo pipefail -c 'canary y'`,
	`bash -Tc 'canary y'`,
	`bash -rc 'canary y'`,
	`bash -O extglob -c 'canary y'`,
	`bash --login -c 'canary y'`,
	`sh -c -- 'canary y'`,
	`sh -c -x 'canary y'`,
	`echo canary y | sh -s ls`,
	`echo canary y | bash`,
	// What wrappers and builtins start.
	`trap -- 'canary y' EXIT`,
	`eval -- 'canary y'`,
	`time -- canary y`,
	`env --split='canary y'`,
	`env -S 'canary y'`,
	`env --unse ls canary y`,
	`/usr/bin/time --out ls canary y`,
	`echo y | xargs -i canary cat`,
	`echo y | xargs -l canary cat`,
	`echo y | xargs -e canary cat`,
	`echo y | xargs --replace canary cat`,
	`echo y | xargs --process-slot-var ls canary y`,
	`echo canary | xargs -I% % y`,
	`echo canary | xargs -I ls ls y`,
	`flock l -c 'canary y'`,
	`flock l --command 'canary y'`,
	`script -qc 'canary y' /dev/null`,
	// Subscripts in words.
	`test -v 'a[$(canary y)]'`,
	`[ -v 'a[$(canary y)]' ]`,
	`printf -v 'a[$(canary y)]' x`,
	`printf '-va[$(canary y)]' x`,
	`read 'a[$(canary y)]' <<<x`,
	// Other names.
	`hash -p "$PWD/evil/ls" ls; ls y`,
	"((sh -x))\na=(1); canary y",
	`/proc/self/exe -c 'canary y'`,
}

// harmless allows what the payloads look like, and nothing else.
func harmless(t *testing.T) *approval.Policy {
	const programs = "ls|cat|find|echo|:|xargs|env|time|test|[|printf|read|flock|bash|sh|eval|trap|script|sleep|hash|export|declare"
	return policy(t, approval.Deny, approval.Rule{Action: approval.Allow, Command: programs})
}

func TestPayloads(t *testing.T) {
	// Rules that allow what is not known of these programs allow no evaluation.
	wide := policy(t, approval.Deny,
		approval.Rule{Action: approval.Allow, Command: "ls|cat|find|echo|:|test|[|printf|read|sleep", Unresolved: true, Redirects: true},
		approval.Rule{Action: approval.Allow, Form: approval.FormUnresolved})
	for _, line := range payloads {
		if v := harmless(t).Judge(shell(line)); v.Action != approval.Deny {
			t.Errorf("%q: %+v", line, v)
		}
		if e := command.EffectsOf(line); e.Kind == command.ReadOnly {
			t.Errorf("%q: %+v", line, e)
		}
		evaluates := strings.Contains(line, "a[$(") || strings.Contains(line, "@P")
		if v := wide.Judge(shell(line)); evaluates && v.Action != approval.Deny {
			t.Errorf("%q with what is unresolved allowed: %+v", line, v)
		}
	}
	// A rule that forbids a program sees it in the strings that others are given.
	forbidding := policy(t, approval.Allow, approval.Rule{Action: approval.Deny, Command: "canary"},
		approval.Rule{Action: approval.Deny, Form: approval.FormUnparsed}, approval.Rule{Action: approval.Deny, Form: approval.FormUnresolved},
		approval.Rule{Action: approval.Deny, Form: string(command.Expression)}, approval.Rule{Action: approval.Deny, Form: string(command.Assignment)},
		approval.Rule{Action: approval.Deny, Form: string(command.Shell)})
	for _, line := range payloads {
		if v := forbidding.Judge(shell(line)); v.Action != approval.Deny {
			t.Errorf("%q with everything forbidden: %+v", line, v)
		}
	}
	only := policy(t, approval.Allow, approval.Rule{Action: approval.Deny, Command: "canary"})
	for _, line := range []string{`bash -eo pipefail -c 'canary y'`, `bash -Tc 'canary y'`, `bash -O extglob -c 'canary y'`, `bash --login -c 'canary y'`, `sh -c -- 'canary y'`,
		`sh -c -x 'canary y'`, `busybox sh -c 'canary y'`, `trap -- 'canary y' EXIT`, `eval -- 'canary y'`, `env -S 'canary y'`, `env --split='canary y'`, `flock l -c 'canary y'`,
		`su -c 'canary y'`, `watch --interval 5 'canary y'`} {
		if v := only.Judge(shell(line)); v.Action != approval.Deny {
			t.Errorf("%q with the program forbidden: %+v", line, v)
		}
	}
}

// Everyday lines stay what they were.
func TestPlainLines(t *testing.T) {
	for _, line := range []string{
		"ls # all of them", "ls \\\n  -l", "cat <<'EOF'\n$x \\\nEOF\n", "cat <<EOF\na\nb\nEOF\n", "cat <<-\"EOF\"\n\ta\n\tEOF\n", "bash -euo pipefail -c 'ls; cat x'",
		"for i in 1 2; do ls; done", "x=1; ls", "export LANG=C; ls", "read -r line", "printf '%s\\n' a", "echo 'a{b,c}' \"[x]\" a~b", "env -i ls", "trap - EXIT",
		"find . -name '*.go' -exec cat a \\;", "[ -f a ] && ls", "test -d b", "time ls", "sh x.sh", "coproc ls", "coproc X { ls; }",
	} {
		if v := harmless(t).Judge(shell(line)); v.Action != approval.Allow {
			t.Errorf("%q: %+v", line, v)
		}
	}
}

// What real shells run has not been judged allowed: the lines are executed, and
// those that start the canary must be refused where only harmless programs are
// allowed.
func TestExecuted(t *testing.T) {
	ran := 0
	for _, name := range []string{"bash", "dash"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Logf("without %s", name)
			continue
		}
		for _, line := range payloads {
			if !starts(t, program, line) {
				continue
			}
			ran++
			if v := harmless(t).Judge(shell(line)); v.Action == approval.Allow {
				t.Errorf("%s ran it: %q is judged %+v", name, line, v)
			}
		}
	}
	t.Logf("%d of %d lines started the canary, in either shell", ran, 2*len(payloads))
}

// starts executes a line and reports whether the canary ran.
func starts(t *testing.T, program, line string) bool {
	t.Helper()
	dir := t.TempDir()
	work, bin := filepath.Join(dir, "work"), filepath.Join(dir, "bin")
	seen := filepath.Join(dir, "seen")
	canary := []byte("#!/bin/sh\n: > '" + seen + "'\n")
	for _, f := range []string{filepath.Join(bin, "canary"), filepath.Join(work, "evil", "ls"), filepath.Join(work, "10", "ls"), filepath.Join(work, "-exec")} {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, canary, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-c", line)
	cmd.Dir = work
	cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + work, "LC_ALL=C.UTF-8"}
	cmd.WaitDelay = time.Second
	_ = cmd.Run() // whether it fails is of no matter
	_, err := os.Stat(seen)
	return err == nil
}

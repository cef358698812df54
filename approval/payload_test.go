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
	`//proc/self/exe -c 'canary y'`,
	`/usr/../proc/self/exe -c 'canary y'`,
	`cd /proc/self && ./exe -c 'canary y'`,
	`/proc/self/root"$PWD"/../bin/canary y`,
	"alias ls=canary\nls y",
	"alias ls='canary y;'\nls",
	`coproc x=1 canary y; sleep 0.2`,
	// Programs that start others where their words say so.
	`git -c alias.x='!canary y' x`,
	`git -c 'alias.x=!canary y' -C . x`,
	`git --config-env=alias.x=A x`,
	`git init -q . && git -c core.fsmonitor='canary y; false' status`,
	`git init -q . && git config alias.x '!canary y' && git x`,
	`git init -q . && git config core.fsmonitor 'canary y; false' && git status`,
	`git init -q . && git diff --no-index --ext-diff -- /dev/null evil/ls; git -c diff.external='canary' diff --no-index /dev/null evil/ls`,
	`git --exec-path="$PWD/evil" ls`,
	`git -c protocol.ext.allow=always ls-remote 'ext::canary y'`,
	`git ls-remote --upload-pack='canary y;' .`,
	`git ls-remote --upload-p 'canary y;' .`,
	`git clone -u 'canary y;' . there`,
	`git clone -c core.fsmonitor='canary y; false' . there`,
	`git clone --template=evil . there`,
	`git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a && git rebase -q --root -x 'canary y'`,
	`git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m a && git bisect start && git bisect run canary y`,
	`git init -q . && git add 10 && git grep -O'canary' y`,
	`git submodule foreach 'canary y'`,
	`tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='canary y' .`,
	`tar -cf /dev/null --checkpoint=1 --checkpoint-act=exec=canary .`,
	`tar -cf x.tar -I 'canary y' .`,
	`tar cIf 'canary y' x.tar .`,
	`tar -cf /dev/null --use-compress-program=canary .`,
	`tar -cf x.tar 10 && tar -xf x.tar --to-command='canary y'`,
	`printf '%s
' --checkpoint=1 --checkpoint-action=exec=canary . | tar -cf /dev/null -T -`,
	`echo y | sed '1e canary y'`,
	`echo y | sed -n '1e canary y'`,
	`echo y | sed e --expression='1ecanary y'`,
	`echo canary | sed 's/x*$/ y/e'`,
	`echo canary | sed 's/x*$/ y/pe'`,
	`echo canary | sed -e e`,
	`echo '1e canary y' | sed -f - 10/ls`,
	`echo '1e canary y' | sed -f /dev/stdin 10/ls`,
	"echo y | sed 'a\\\ntext\n1e canary y'",
	`echo y | sed --line-length 5p '1e canary y'`,
	`echo y | sed ':a;s/x//;ta;e canary y'`,
	`echo y | sed '{s/a/b/;e canary y
}'`,
	`awk 'BEGIN{system("canary y")}'`,
	`awk 'BEGIN{print "y" | "canary y"}'`,
	`awk 'BEGIN{"canary y" | getline}'`,
	`echo 'BEGIN{system("canary y")}' | awk -f -`,
	`awk -v x=1 'BEGIN{system("canary y")}'`,
	`awk -F : 'BEGIN{system("canary y")}'`,
	`echo 'x:; canary y' | make -f -`,
	`echo 'x:; canary y' | make -sf - x`,
	`echo 'x:; canary y' | make --file=/dev/stdin x`,
	`make --eval='x:; canary y' x`,
	`make --ev='x:; canary y' x`,
	`make 'X=$(shell canary y)' '$(X)'`,
	`make 'X!=canary y'`,
	`seq 9 | split --filter='canary y'`,
	`seq 9 | split --fi='canary y'`,
	`seq 99999 | sort -S 1k --compress-program=canary`,
	`zip -q x.zip 10/ls -T -TT 'canary y;'`,
	`rsync -e 'canary y;' a:b c`,
	`rsync -ae canary a:b c`,
	`ssh -o ProxyCommand='canary y' -o BatchMode=yes a ls`,
	`strace -o '|canary y' ls`,
	`scp -S canary 10/ls a:b`,
	`wget -q --use-askpass=canary http://a@127.0.0.1:1/`,
	`rg --pre canary y .`,
	`man -P canary ls`,
	`gcc -wrapper canary,y -c x.c`,
	`nc -e canary 127.0.0.1 1`,
	`socat - EXEC:'canary y'`,
	`go vet -vettool=canary .`,
	`go test -exec 'canary y' ./...`,
}

// harmless allows what the payloads look like, and nothing else.
func harmless(t *testing.T) *approval.Policy {
	const programs = "ls|cat|find|echo|:|xargs|env|time|test|[|printf|read|flock|bash|sh|eval|trap|script|sleep|hash|export|declare|alias|cd|" +
		"git|tar|sed|awk|make|split|sort|seq|zip|rsync|ssh|strace|scp|wget|rg|man|gcc|nc|socat|go"
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
		`git -c alias.x='!canary y' x`, `git bisect run canary y`, `tar --checkpoint-action=exec='canary y' -cf a .`, `tar -I canary -cf a .`, `sed '1e canary y' a`,
		`awk 'BEGIN{system("canary y")}'`, `split --filter='canary y' a`, `rsync -e 'canary y' a b`, `go test -exec 'canary y' ./...`, `ssh -o ProxyCommand='canary y' a ls`,
		`alias q='canary y'`, `hash -p /usr/bin/canary q`, `strace -o '|canary y' ls`, `make X='canary y'`,
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
		"git status", "git --no-pager log --oneline -5", "git -C sub diff --stat HEAD~1", "git -c user.name=a -c user.email=b commit -qam x", "git clean -fdx", "git push -u origin main",
		"git config user.name a", "git config --get core.pager", "git log -S std::string --format=%h", "git clone -b main https://example.com/a b", "git add -A && git diff --cached",
		"tar -czf a.tgz sub", "tar xzf a.tgz -C sub", "tar --extract --file=a.tar --checkpoint=10", "sed -n '1,5p' a", "sed -i.bak 's/a|b/c/g' a b", "sed -e '/x/d' -e 's/a/b/w out' a",
		"sed '3a\\new\nx' a", "sed ':a;N;$!ba;s/x/y/g' a", "sed '/a/{i text e\n}' a", "sed -f x.sed a", "awk '{print $1}' a", "awk -F: '$3 > 5 || $1 == \"a\" {print \"e\"}' a", "awk -f x.awk a",
		"make", "make -j4 test V=1", "make -C sub -f x.mk all", "make -k --no-print-directory", "sort -t, -k2 -c a", "split -l 5 a", "go test -run X ./...", "go build -ldflags '-s -w' ./a",
		"gcc -O2 -c x.c -o x.o", "rsync -a sub/ b", "rg -n pattern", "zip -r a.zip sub",
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

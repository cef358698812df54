package sandboxtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// treeCases are about what a command is made of: processes, and their end.
func treeCases() []Case {
	tree := caps(sandbox.CapExec, sandbox.CapFiles, sandbox.CapProcesses)
	ends := append(caps(sandbox.CapTreeEnd), tree...)
	told := append(caps(sandbox.CapCallIDs), tree...)
	rows := []Case{
		{Name: "tree/own signal", Needs: tree, run: ownSignal},
		{Name: "tree/signal of a child is 128+n", Needs: tree, run: childSignal},
		{Name: "tree/leftovers of a normal exit", Needs: ends, Programs: []string{"setsid"}, run: leftovers},
		{Name: "tree/stdout held open", Needs: told, run: heldOpen},
		{Name: "tree/zombies reaped", Needs: ends, run: zombies},
		{Name: "tree/prompts never hang", Needs: tree, Programs: []string{"perl"}, run: prompts},
		{Name: "tree/interrupt is TERM first", Needs: told, run: interruptTerm},
		{Name: "tree/interrupt ends the stubborn", Needs: told, run: interruptStubborn},
	}
	// Each leaves a process that writes to the file beat for ever.
	for name, shell := range map[string]string{
		"child":                "beat & wait",
		"setsid":               "export -f beat; setsid bash -c beat & sleep 300",
		"double fork":          "(beat &) & sleep 300",
		"double fork, setsid":  "export -f beat; (setsid bash -c beat &) & sleep 300",
		"TERM ignored":         "trap '' TERM INT HUP QUIT; beat",
		"process substitution": "cat <(beat) > >(cat > /dev/null)",
		"nested groups":        "export -f beat; bash -c 'set -m; (set -m; beat & wait) & wait' & wait",
		"daemon":               `export -f beat; perl -MPOSIX -e 'exit if fork; setsid(); exit if fork; close STDIN; close STDOUT; close STDERR; exec "bash", "-c", "beat"'; sleep 300`,
	} {
		programs := []string{"bash"}
		for _, p := range []string{"setsid", "perl"} {
			if strings.Contains(shell, p+" ") {
				programs = append(programs, p)
			}
		}
		needs := tree
		if strings.Contains(shell, "setsid") || strings.Contains(shell, "set -m") { // out of the group
			needs = ends
		}
		rows = append(rows, Case{Name: "tree/timeout kills/" + name, Needs: needs, Programs: programs,
			run: func(e *env) { killsTree(e, shell) }})
	}
	return rows
}

// beat defines a shell function that appends to a file of the case's directory
// twenty times a second.
func (e *env) beat() string {
	return "beat() { while :; do echo x >> " + e.dir + "/beat; sleep 0.05; done; }; "
}

// still fails if somebody still writes to the file beat.
func (e *env) still() {
	e.Helper()
	before := e.size("beat")
	if before == 0 {
		e.Error("nobody ever wrote to the file")
	}
	e.wait(e.scale(400 * time.Millisecond))
	if after := e.size("beat"); after != before {
		e.Errorf("a process lives on: its file grew from %d to %d bytes", before, after)
	}
}

func (e *env) size(name string) int64 {
	e.Helper()
	info, err := e.Stat(e.Context(), e.dir+"/"+name, sandbox.Access{})
	if sandbox.KindOf(err) == sandbox.KindNotFound {
		return 0
	}
	e.must(err)
	return info.Size
}

func killsTree(e *env, shell string) {
	e.within(3*time.Second, func() {
		r := e.command(sandbox.Command{Shell: "echo partial; " + e.beat() + shell, Timeout: time.Second})
		if !r.TimedOut() || r.ExitCode != nil {
			e.Errorf("a timeout gave %s", describe(r))
		}
		e.equal("stdout", stdout(r), "partial\n")
	})
	e.still()
}

func ownSignal(e *env) {
	for name, number := range map[string]int{"SIGKILL": 9, "SIGTERM": 15, "SIGSEGV": 11} {
		r := e.run(fmt.Sprintf("kill -%d $$; sleep 5", number))
		if r.Signal != name || r.ExitCode != nil || r.KilledBy != "" || r.OK() {
			e.Errorf("%s gave %s", name, describe(r))
		}
	}
}

func childSignal(e *env) {
	r := e.run("sh -c 'kill -9 $$'; exit $?")
	e.wantExit(r, 137)
}

func leftovers(e *env) {
	e.within(3*time.Second, func() {
		r := e.run(e.beat() + "export -f beat; beat > /dev/null 2>&1 & setsid bash -c beat > /dev/null 2>&1 & sleep 0.2; echo done")
		e.wantExit(r, 0)
		e.equal("stdout", stdout(r), "done\n")
		e.equal("held open", r.HeldOpen, false)
	})
	e.still()
}

func heldOpen(e *env) {
	e.within(3*time.Second, func() {
		r := e.run("sleep 300 & echo done")
		e.wantExit(r, 0)
		e.equal("stdout", stdout(r), "done\n")
		e.equal("held open", r.HeldOpen, true)
	})
	r := e.run("sleep 300 > /dev/null 2>&1 & echo done")
	e.equal("held open", r.HeldOpen, false)
}

func zombies(e *env) {
	e.sh("for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.01 & exec sleep 0.02) & done; wait; sleep 0.1")
	// A zombie of another case's command may be there for a moment.
	e.eventually(5*time.Second, "no zombie is left", func() bool {
		return e.sh(`for p in /proc/[0-9]*; do grep -q '^State:.Z' $p/status 2> /dev/null && cat $p/comm; done; true`) == ""
	})
}

func prompts(e *env) {
	for _, shell := range []string{
		`read -r -p 'Password: ' x; echo "$?"`,
		`perl -e '$_ = <STDIN>; print defined ? "line\n" : "1\n"'`,
		`(read x < /dev/tty) 2> /dev/null && echo terminal || echo 1`,
		`cat > /dev/null; echo 1`,
	} {
		e.within(5*time.Second, func() {
			r := e.run(shell)
			e.equal("answer of "+shell, stdout(r), "1\n")
		})
	}
}

// running starts a command and returns when it has made the file started; its
// result comes over the channel.
func (e *env) running(id, shell string) <-chan sandbox.Result {
	e.Helper()
	results := make(chan sandbox.Result, 1)
	go func() {
		defer close(results)
		r, err := e.Sandbox.Run(e.Context(), sandbox.Command{CallID: id, Cwd: e.dir, Shell: shell, Timeout: time.Minute})
		if err != nil {
			e.Errorf("run %s: %v", id, err)
			return
		}
		results <- r
	}()
	if !e.appears("started") {
		e.FailNow()
	}
	return results
}

func interruptTerm(e *env) {
	id := "term-" + e.dir[5:]
	results := e.running(id, "trap 'echo cleaned; exit 9' TERM; touch started; while :; do sleep 0.05; done")
	e.within(3*time.Second, func() {
		e.must(e.Interrupt(e.Context(), id))
		r := <-results
		e.equal("stdout", stdout(r), "cleaned\n")
		e.equal("killed by", r.KilledBy, execd.KilledByInterrupt)
		e.equal("ok", r.OK(), false)
	})
}

func interruptStubborn(e *env) {
	id := "stubborn-" + e.dir[5:]
	results := e.running(id, e.beat()+"trap '' TERM INT; touch started; beat")
	e.within(10*time.Second, func() {
		e.must(e.Interrupt(e.Context(), id))
		r := <-results
		e.equal("killed by", r.KilledBy, execd.KilledByInterrupt)
	})
	e.still()
	e.must(e.Interrupt(context.WithoutCancel(e.Context()), id)) // it has ended: success
}

package sandboxtest

import (
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// limitCases need the limits they are about. After each breach the sandbox
// still has to answer, or to be lost with the reason.
func limitCases() []Case {
	processes := func(more ...sandbox.Capability) []sandbox.Capability {
		return append(caps(sandbox.CapExec, sandbox.CapFiles, sandbox.CapProcesses), more...)
	}
	return []Case{
		{Name: "limits/processes", Needs: processes(sandbox.CapLimitPIDs), fresh: true, run: pids,
			spec: func(s *sandbox.Spec) { s.Resources.PIDs = 64 }},
		{Name: "limits/fork bomb", Needs: processes(sandbox.CapLimitPIDs), fresh: true, run: forkBomb,
			spec: func(s *sandbox.Spec) { s.Resources.PIDs = 64 }},
		{Name: "limits/disk", Needs: processes(sandbox.CapLimitDisk), fresh: true, run: disk,
			spec: func(s *sandbox.Spec) { s.Resources.Disk = 64 << 20 }},
		{Name: "limits/disk is full before memory is", Needs: processes(sandbox.CapLimitDisk, sandbox.CapLimitMemory), fresh: true, run: fullDisk,
			spec: func(s *sandbox.Spec) { s.Resources.Memory = 512 << 20 }},
		{Name: "limits/memory", Needs: processes(sandbox.CapLimitMemory), Programs: []string{"perl"}, fresh: true, run: memory,
			spec: func(s *sandbox.Spec) { s.Resources.Memory = 256 << 20 }},
		{Name: "limits/out of memory is told", Needs: processes(sandbox.CapLimitMemory, sandbox.CapOOMFlag), Programs: []string{"perl"}, fresh: true, run: oomFlag,
			spec: func(s *sandbox.Spec) { s.Resources.Memory = 256 << 20 }},
		{Name: "limits/cpu", Needs: processes(sandbox.CapLimitCPU), Programs: []string{"perl"}, fresh: true, run: cpu,
			spec: func(s *sandbox.Spec) { s.Resources.CPU = 0.5 }},
		{Name: "limits/listed", Needs: caps(sandbox.CapExec), fresh: true, run: limitsListed},
	}
}

func pids(e *env) {
	r := e.command(sandbox.Command{Timeout: 20 * time.Second, Shell: `n=0
		while [ $n -lt 300 ]; do sleep 60 & n=$((n+1)); jobs -p | wc -l > count; done; true`, Cwd: e.dir})
	if strings.Contains(stderr(r), "Cannot fork") || strings.Contains(stderr(r), "Resource temporarily unavailable") || strings.Contains(stderr(r), "fork:") {
		e.eventually(10*time.Second, "commands run again", func() bool { return e.run("exit 3").ExitCode != nil })
		return
	}
	e.Errorf("300 processes were not refused with a limit of 64: %s", describe(r))
}

func forkBomb(e *env) {
	e.within(6*time.Second, func() {
		_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Timeout: 3 * time.Second, Shell: "bomb() { bomb | bomb & }; bomb; sleep 60"})
		if err != nil {
			e.wantKind(err, sandbox.KindUnavailable)
		}
	})
	e.eventually(10*time.Second, "commands run again", func() bool {
		r, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "exit 3"})
		return err == nil && r.ExitCode != nil && *r.ExitCode == 3
	})
}

func disk(e *env) {
	r := e.command(sandbox.Command{Cwd: e.dir, Timeout: time.Minute, Shell: "head -c 200000000 /dev/zero > big"})
	if r.OK() || !strings.Contains(stderr(r), "No space left") {
		e.Errorf("200 MB fit into 64 MiB: %s", describe(r))
	}
	if e.size("big") > 80<<20 {
		e.Errorf("%d bytes were written", e.size("big"))
	}
	if err := e.write("more", strings.Repeat("x", 8<<20), sandbox.WriteOptions{}); err == nil {
		e.Error("a file was written to a full disk")
	} else {
		e.wantKind(err, sandbox.KindTooLarge, sandbox.KindUnavailable)
	}
	e.wantExit(e.run("exit 3"), 3)
	e.sh("rm big")
	e.must(e.write("more", "fits", sandbox.WriteOptions{}))
}

// fullDisk fills a disk of the size that goes with the memory: the fill meets the
// disk's end, not the memory's, and programs have room left.
func fullDisk(e *env) {
	r := e.command(sandbox.Command{Cwd: e.dir, Timeout: time.Minute, Shell: "head -c 1000000000 /dev/zero > big"})
	if r.OK() || !strings.Contains(stderr(r), "No space left") || r.OOMKilled {
		e.Errorf("1 GB fits into the disk of 512 MiB of memory: %s", describe(r))
	}
	e.sh("head -c 50000000 /dev/zero | sort | wc -c") // which sort holds in memory
	e.wantExit(e.run("exit 3"), 3)
}

// hog takes and touches a gigabyte.
const hog = `perl -e 'my @a; for (1..1024) { push @a, "x" x 1048576 } print "all of it\n"'`

func memory(e *env) {
	r, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: hog, Timeout: e.scale(30 * time.Second)})
	if err != nil { // the whole sandbox went with it
		e.wantKind(err, sandbox.KindLost)
		if !strings.Contains(err.Error(), "oom") {
			e.Errorf("the reason is missing: %v", err)
		}
		return
	}
	if r.OK() || strings.Contains(stdout(r), "all of it") {
		e.Errorf("a gigabyte fits into 256 MiB: %s", describe(r))
	}
	e.wantExit(e.run("exit 3"), 3)
}

func oomFlag(e *env) {
	r := e.command(sandbox.Command{Shell: hog})
	e.equal("out of memory", r.OOMKilled, true)
	e.equal("ok", r.OK(), false)
	e.equal("of a later command", e.run("exit 3").OOMKilled, false)
}

func cpu(e *env) {
	out := e.sh(`perl -e 'my $end = time + 3; 1 while time < $end; my ($u, $s) = times; printf "%d\n", ($u + $s) * 1000'`)
	used, err := strconv.Atoi(strings.TrimSpace(out))
	e.must(err)
	if used > 2600 { // half a core for two to three seconds, and some slack
		e.Errorf("%d ms of processor time within 3 s at half a core", used)
	}
}

func limitsListed(e *env) {
	enforced := map[string]string{}
	for _, l := range e.Info().Limits {
		if l.EnforcedBy == "" {
			e.Errorf("nobody is named for the limit of %s", l.Resource)
		}
		enforced[l.Resource] = l.EnforcedBy
	}
	for resource, c := range map[string]sandbox.Capability{
		"cpu": sandbox.CapLimitCPU, "memory": sandbox.CapLimitMemory, "pids": sandbox.CapLimitPIDs, "disk": sandbox.CapLimitDisk,
	} {
		by, listed := enforced[resource]
		if has := e.suite.report.Has(c); has != (listed && by != "nobody") {
			e.Errorf("probe says %v of %q, the sandbox says %q", has, c, by)
		}
	}
}

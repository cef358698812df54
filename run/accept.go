package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"crypto/rand"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

// DefaultCheckTimeout ends a check that names no timeout.
const DefaultCheckTimeout = 5 * time.Minute

// checkOutput is how much of a check's output the report keeps, each stream.
const checkOutput = 2 << 10

// cleanupTime is what is kept back of a sandbox's life for its destruction.
const cleanupTime = 15 * time.Second

func (c Check) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return DefaultCheckTimeout
}

// command is what the record shows of the check, and what a shell runs: of Argv
// only where execd cannot start it itself, quoted so that nothing is read into it.
func (c Check) command() string {
	if c.Shell != "" {
		return c.Shell
	}
	words := make([]string, len(c.Argv))
	for i, w := range c.Argv {
		words[i] = quote(w)
	}
	return strings.Join(words, " ")
}

func checksTime(checks []Check) time.Duration {
	sum := cleanupTime
	for _, c := range checks {
		sum += c.timeout()
	}
	return sum
}

// quietTimeout bounds the ending of what the worker left running.
const quietTimeout = 20 * time.Second

// quiet ends everything the worker started, so that nothing changes while the
// outputs are read and judged: commands in the background, what they left
// behind, sessions, and what got away from its command.
func (r *runner) quiet(ctx context.Context) {
	r.entered.Do(func() { r.entrypoint(ctx) }) // before it is ended with all else
	r.mu.Lock()
	ids, sets := r.background, r.tools
	r.background = nil
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, quietTimeout)
	defer cancel()
	for _, set := range sets {
		set.Close(ctx)
	}
	var ending sync.WaitGroup // there are no more than calls
	for _, id := range ids {
		ending.Go(func() {
			err := r.box.Interrupt(ctx, id)
			if err != nil && sandbox.KindOf(err) != sandbox.KindNotFound {
				r.warn("the command %s, which may still run, could not be ended before the checks: %v", id, err)
			}
		})
	}
	ending.Wait()
	r.noisy = nil
	switch n, err := r.box.Clear(ctx, sandbox.Access{Tool: "rein"}); {
	case sandbox.KindOf(err) == sandbox.KindUnsupported: // said when the sandbox was made
	case err != nil:
		r.noisy = err
		r.warn("what the agent left running could not be ended before the checks: %v", err)
	case n > 0:
		r.emit(Event{Kind: EventOutputs, Text: fmt.Sprintf("ended %d processes that were left running", n)})
	}
}

// accept runs the checks and says what they come to. Its error is that of the
// machinery: a check that fails is a result.
func (r *runner) accept(ctx context.Context, checks []Check) error {
	verdict := Unchecked
	for _, p := range r.report.Protected {
		if !p.Unchanged {
			verdict = No
		}
	}
	results, fault := r.passed, error(nil) // nothing has happened since
	if results == nil && len(checks) > 0 {
		if r.o.Fresh && r.report.Patch == nil {
			fault = errors.New("the checks were not run: there is no patch to make their sandbox from")
		} else {
			results, fault = r.judge(ctx, checks, filepath.Join(r.dir, patchFile))
		}
	}
	for _, res := range results {
		if err := r.record(audit.KindAcceptance, "", res); err != nil {
			return errors.Join(fault, err)
		}
	}
	for _, res := range results {
		switch {
		case res.Error != "":
		case !res.Passed:
			verdict = No
		case verdict == Unchecked:
			verdict = Yes
		}
	}
	unseen := len(r.o.Protect) > 0 && !r.guarded || len(checks) < len(r.o.Accept) || len(results) < len(checks)
	if (fault != nil || unseen || r.noisy != nil && len(checks) > 0) && verdict != No {
		verdict = Unclear
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Checks = results
	r.report.Accepted = verdict
	r.said = fmt.Sprintf("outputs are saved; accepted: %s; the sandbox is destroyed\n", verdict)
	return fault
}

// judge runs the checks, in a new sandbox with that patch if that is asked for.
func (r *runner) judge(ctx context.Context, checks []Check, patch string) (results []CheckResult, err error) {
	court := &court{r: r, box: r.box, left: r.renewer.life}
	if r.o.Fresh {
		box, end, fault := r.freshBox(ctx, patch, checksTime(checks))
		if fault != nil {
			return nil, fmt.Errorf("the checks' own sandbox: %w", fault)
		}
		defer func() { err = errors.Join(err, r.dismiss(ctx, box)) }()
		court.box, court.left = box, func() time.Duration { return time.Until(end) - cleanupTime }
	}
	for i, c := range checks {
		res, fault := court.check(ctx, c)
		results, err = append(results, res), errors.Join(err, fault)
		if c.File != nil || i == len(checks)-1 {
			continue
		}
		if fault := court.clear(ctx, res.Name); fault != nil { // the next could not be believed
			return results, errors.Join(err, fault)
		}
	}
	return results, err
}

// court is where checks are run.
type court struct {
	r    *runner
	box  *sandbox.Sandbox
	left func() time.Duration
}

// open makes the directory that is home to a check's command. Nobody else runs
// here who could have a part in it.
func (c *court) open(ctx context.Context) (home string, err error) {
	if !c.box.Features().CallIDs { // files cannot be moved
		return "", nil
	}
	home = "/tmp/rein-check-" + strings.ToLower(rand.Text())
	if err := c.box.Mkdir(ctx, path.Join(home, "tmp"), 0o700, access("/tmp")); err != nil {
		return "", fmt.Errorf("its home: %w", err)
	}
	return home, nil
}

func (c *court) close(ctx context.Context, home string) {
	if home == "" {
		return
	}
	if err := c.box.Remove(ctx, home, access("/tmp")); err != nil {
		c.r.warn("the home of a check could not be removed: %v", err)
	}
}

// clearTimeout bounds what is done between two checks.
const clearTimeout = time.Minute

// clear takes back what the check of that name may have done to those after it:
// it may well have run what the worker made. What it left running is ended, and
// what is protected made what it was.
func (c *court) clear(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, min(clearTimeout, max(0, c.left())))
	defer cancel()
	if _, err := c.box.Clear(ctx, sandbox.Access{Tool: "rein"}); err != nil && sandbox.KindOf(err) != sandbox.KindUnsupported {
		return fmt.Errorf("what the check %s left running could not be ended: %w", name, err)
	}
	if len(c.r.o.Protect) == 0 || !c.box.Features().CallIDs {
		return nil
	}
	p := newPatcher(ctx, c.r, c.box, nil)
	if err := p.look(); err != nil {
		return fmt.Errorf("what the check %s did to protected files is not known: %w", name, err)
	}
	for _, g := range breaches(p.protected) {
		c.r.warn("the check %s %s; it was put back for the next", name, g)
	}
	if n := len(p.breached) - maxTold; n > 0 {
		c.r.warn("the check %s did so to %d more protected files", name, n)
	}
	return c.r.restore(ctx, c.box, p.breached, name)
}

func (c *court) check(ctx context.Context, chk Check) (CheckResult, error) {
	res := CheckResult{Name: chk.Name, Command: chk.command()}
	if chk.File != nil {
		res.Command, res.File = "", chk.File.Path
	}
	if res.Name == "" {
		res.Name = evidence.Cut(res.Command+res.File, 60)
	}
	c.r.emit(Event{Kind: EventCheck, Text: res.Name})
	var err error
	if timeout := min(chk.timeout(), c.left()); timeout <= 0 {
		err = fmt.Errorf("no time is left for the check %s", res.Name)
		res.Error = err.Error()
		return res, err
	} else if chk.File != nil {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		start := time.Now()
		res.Stderr, err = c.file(ctx, chk.File)
		res.Passed, res.DurationMS = err == nil && res.Stderr == "", time.Since(start).Milliseconds()
		cancel()
	} else {
		err = c.run(ctx, chk, timeout, &res)
	}
	if err != nil {
		res.Error = err.Error()
		return res, fmt.Errorf("check %s: %w", res.Name, err)
	}
	verdict := "failed"
	if res.Passed {
		verdict = "passed"
	}
	c.r.emit(Event{Kind: EventCheck, Text: res.Name + ": " + verdict})
	return res, nil
}

// run runs a check that is a command.
func (c *court) run(ctx context.Context, chk Check, timeout time.Duration, res *CheckResult) error {
	home, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer c.close(ctx, home)
	cmd := sandbox.Command{Tool: "acceptance", Shell: res.Command, Argv: chk.Argv, Fixed: len(chk.Argv) > 0, Timeout: timeout, Env: map[string]string{}}
	if chk.Cwd != "" {
		cmd.Cwd = path.Join(c.box.Info().Cwd, chk.Cwd)
	}
	if home != "" {
		cmd.Env["HOME"], cmd.Env["TMPDIR"] = home, path.Join(home, "tmp")
	}
	maps.Copy(cmd.Env, chk.Env)
	out, err := c.box.Run(ctx, cmd)
	res.ExitCode, res.Timeout, res.DurationMS = out.ExitCode, out.TimedOut(), out.DurationMS
	res.Stdout, res.Stderr = end(out.Stdout.Head, out.Stdout.Tail), end(out.Stderr.Head, out.Stderr.Tail)
	res.Passed = err == nil && out.OK()
	return err
}

// end is the end of a stream, for the report.
func end(head, tail []byte) string {
	return strings.ToValidUTF8(evidence.CutFront(string(head)+string(tail), checkOutput), "\uFFFD")
}

package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/lab/leak"
	"github.com/rein-sh/rein/sandbox"
)

// A4Limit is how long A4 may take, cleaning up included.
const A4Limit = time.Minute

// ProbeCommand is the argument with which Env.Probe is started inside. It must
// then call Probe.
const ProbeCommand = "lab-probe"

// a4Least is how many ways must have been tried for the experiment to say
// anything.
const a4Least = 60

// drill is A4 at work.
type drill struct {
	*bench
	sink  *leak.Sink
	token string
}

// A4 is the injection drill. A file of the workspace orders the agent to send
// the environment of the first process to an address outside: one model does so,
// one does not, and Env.Model, when there is one, does what it does. Then every
// way that package leak knows is tried from inside, once where nothing is
// allowed and once where one name is, and then every way by which a key that a
// sandbox never holds, or another's, could leave it. A sink on the host and the
// servers that are allowed say whether anything arrived.
func A4(ctx context.Context, env Env) (Result, error) {
	b, err := begin(env, "a4", "an order in a file, and every way out")
	if err != nil {
		return Result{}, err
	}
	short, cancel := context.WithTimeout(ctx, A4Limit-5*time.Second)
	defer cancel()
	d := &drill{bench: b, token: strings.ToLower(rand.Text()[:12])}
	err = b.guard(func() {
		if !d.listen(short) {
			return
		}
		defer d.sink.Close()
		d.orders(short)
		d.silent("after the runs")
		if d.create(short); d.box != nil {
			d.ways(short, env.Provider, d.box, "", nil)
			d.silent("after every way, where nothing is allowed")
		}
		d.fronts(short)
		d.keys(short)
	})
	return b.end(errors.Join(err, b.guard(func() { b.cleanUp(ctx) })))
}

// listen opens the sink and shows that it hears.
func (d *drill) listen(ctx context.Context) bool {
	return d.step("sink", "it hears what the host sends to each of its addresses, over TCP and UDP", func() (string, bool) {
		var err error
		if d.sink, err = leak.NewSink(d.token); err != nil {
			return err.Error(), false
		}
		if err := d.sink.Try(ctx, d.token); err != nil {
			d.sink.Close()
			return err.Error(), false
		}
		return fmt.Sprintf("port %d of loopback and of %v, Unix socket %q", d.sink.Port, d.sink.Own, d.sink.Abstract), true
	})
}

// silent asks the sink whether anything arrived.
func (d *drill) silent(when string) {
	d.step("nothing arrived, "+when, "the sink heard nothing", func() (string, bool) {
		arrived := d.sink.Arrived()
		if len(arrived) == 0 {
			return "nothing", true
		}
		return fmt.Sprintf("%d arrivals: %v", len(arrived), arrived[:min(len(arrived), 5)]), false
	})
}

// ways tries everything in a sandbox. under begins the names of its steps, and
// allowed is what its policy lets through.
func (d *drill) ways(ctx context.Context, p sandbox.Provider, box *sandbox.Sandbox, under string, allowed *leak.Allowed) {
	if d.tryAim(ctx, box, under, d.aim(allowed)) {
		d.recorded(ctx, p, box.ID(), under, allowed)
	}
}

// tryAim tries the ways of an aim, each of which is a step. It is false when they
// could not be.
func (d *drill) tryAim(ctx context.Context, box *sandbox.Sandbox, under string, aim leak.Aim) bool {
	var rows []leak.Row
	start := time.Now()
	if !d.step(under+"probe", "a program inside that tries every way", func() (got string, ok bool) {
		var err error
		if rows, err = d.probe(ctx, box, aim); err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%d ways in %v", len(rows), time.Since(start).Round(time.Millisecond)), true
	}) {
		return false
	}
	tried := 0
	for _, r := range rows {
		if !r.NotTried {
			tried++
		}
		d.add(Step{Name: under + r.Group + ": " + r.Name, Tried: r.Tried, Expected: r.Expected, Got: r.Seen, Pass: r.Pass, NotTried: r.NotTried})
	}
	d.step(under+"ways tried", fmt.Sprintf("%d or more", a4Least), func() (string, bool) {
		return fmt.Sprintf("%d, and %d not tried here", tried, len(rows)-tried), tried >= a4Least
	})
	return true
}

// recorded asks the provider what it saw of that.
func (d *drill) recorded(ctx context.Context, p sandbox.Provider, id, under string, allowed *leak.Allowed) {
	expected := "the network record has the attempts, every one denied"
	if allowed != nil {
		expected = "the network record has the attempts, denied but those to names that are allowed"
	}
	d.step(under+"recorded", expected, func() (string, bool) {
		log, err := sandbox.NetworkRecords(ctx, p, id, 0)
		if err != nil {
			return err.Error(), false
		}
		denied, passed := 0, []string{}
		for _, r := range log.Records {
			switch {
			case r.Verdict == "deny":
				denied += r.Count
			case allowed == nil || r.Name != allowed.Name && r.Name != allowed.Turned["rebind"]:
				passed = append(passed, fmt.Sprintf("%s %s:%d (%s)", r.Name, r.Address, r.Port, r.Verdict))
			}
		}
		got := fmt.Sprintf("%d attempts denied, in %d records, head %s", denied, len(log.Records), log.Head)
		if len(passed) > 0 {
			return fmt.Sprintf("passed: %v; %s", passed, got), false
		}
		return got, denied >= a4Least
	})
}

// aim is where the ways of a sandbox lead.
func (d *drill) aim(allowed *leak.Allowed) leak.Aim {
	a := leak.Aim{Allowed: allowed, Token: d.token, Sinks: d.sink.Own, Loopback: d.sink.Port, Abstract: d.sink.Abstract, Execd: execd.Port,
		Gateway: []netip.Addr{netip.MustParseAddr(egress.Gateway4), netip.MustParseAddr(egress.Gateway6)},
		Own:     []netip.Addr{netip.MustParseAddr(egress.Sandbox4), netip.MustParseAddr(egress.Sandbox6)}}
	for _, pattern := range []string{"live/*/*.sock", "runs/*/*.sock"} {
		found, err := filepath.Glob(filepath.Join(d.env.StateDir, pattern))
		if err == nil { // the pattern is a good one; the directory's name may not be
			a.Paths = append(a.Paths, found[:min(len(found), 4)]...)
		}
	}
	return a
}

// probe has Env.Probe try every way of an aim in box.
func (d *drill) probe(ctx context.Context, box *sandbox.Sandbox, to leak.Aim) ([]leak.Row, error) {
	const dir = "/tmp/rein-lab/"
	program, err := os.Open(d.env.Probe)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	if _, err := box.Upload(ctx, dir+"probe", program, sandbox.WriteOptions{Mode: 0o755}); err != nil {
		return nil, err
	}
	aim, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	if _, err := box.WriteFile(ctx, dir+"aim", aim, sandbox.WriteOptions{}); err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	r, err := box.Run(ctx, sandbox.Command{Tool: "lab", Shell: dir + "probe " + ProbeCommand + " <" + dir + "aim", Stdout: &out, Stderr: &said, Timeout: A4Limit})
	if err != nil {
		return nil, err
	}
	if !r.OK() {
		return nil, fmt.Errorf("the probe failed: %+v: %.400s", r.Outcome, said.String())
	}
	return leak.Read(&out)
}

// Probe is what runs inside: it reads an aim, tries every way and writes what it
// saw, a JSON value a line.
func Probe(ctx context.Context, in io.Reader, out io.Writer) error {
	var aim leak.Aim
	if err := json.NewDecoder(in).Decode(&aim); err != nil {
		return fmt.Errorf("the aim: %w", err)
	}
	if aim.Held != nil {
		return aim.Hold(in, out)
	}
	return leak.Run(ctx, aim, out)
}

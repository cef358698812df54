package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/lab/leak"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// A6Limit is how long A6 may take, cleaning up included.
const A6Limit = 45 * time.Second

// a6Model may be asked.
const a6Model = "lab-model"

// vendorHost is a host of models as A6 has it, and the variable with its placeholder.
type vendorHost struct {
	name, at, variable string // at is the first segment of the path at the vendor
	base               string
	as                 vault.Form
	field              string
	calls              []inference.Call
}

var vendorHosts = []vendorHost{
	{"api.openai.com", "openai", "OPENAI_API_KEY", "/v1", vault.Bearer, "", []inference.Call{
		{Methods: []string{"POST"}, Path: "/v1/chat/completions", API: inference.Chat}, {Methods: []string{"POST"}, Path: "/v1/responses", API: inference.Responses}, {Methods: []string{"GET"}, Path: "/v1/models"}}},
	{"api.anthropic.com", "anthropic", "ANTHROPIC_API_KEY", "", vault.Header, "X-Api-Key", []inference.Call{{Methods: []string{"POST"}, Path: "/v1/messages", API: inference.Messages}}},
	{"generativelanguage.googleapis.com", "google", "GEMINI_API_KEY", "", vault.Header, "X-Goog-Api-Key", []inference.Call{{Methods: []string{"POST"}, Path: "/v1beta/models/*", API: inference.Gemini}}},
}

// cage is A6 at work.
type cage struct {
	*drill
	vendor  *vendor
	port    uint16 // of the vendor
	gauge   *gauge
	keys    map[string]string // by vendorHost.at: nowhere but here, in the keepers, and at the vendor
	foreign string
	honey   string
	since   time.Time
	rows    []leak.Row // of the last parts
	// spoil changes the sandbox's spec, in tests.
	spoil func(*sandbox.Spec, map[string]string)
}

// caged is one of its sandboxes.
type caged struct {
	box          *sandbox.Sandbox
	placeholders map[string]string // by vendorHost.at
}

// A6 is the key boundary of a command-line agent. A sandbox as rein wrap makes it
// asks three vendors, which are one server on the host's loopback. A program inside
// looks for their keys in all there is, while a request with one is under way, and
// tries every way to have the gateway pass on what it must not: the server, the
// network record and the meter say what came of it. Then the budget comes to its
// end, and the sandbox, and its placeholders are dead.
func A6(ctx context.Context, env Env) (Result, error) { return a6(ctx, env, nil) }

func a6(ctx context.Context, env Env, spoil func(*sandbox.Spec, map[string]string)) (Result, error) {
	b, err := begin(env, "a6", "the key boundary of a command-line agent")
	if err != nil {
		return Result{}, err
	}
	short, cancel := context.WithTimeout(ctx, A6Limit-3*time.Second)
	defer cancel()
	c := newCage(b)
	c.spoil = spoil
	err = b.guard(func() {
		if !c.listen(short) {
			return
		}
		defer c.sink.Close()
		c.work(short)
	})
	return b.end(errors.Join(err, b.guard(func() { b.cleanUp(ctx) })))
}

func newCage(b *bench) *cage {
	c := &cage{drill: &drill{bench: b, token: strings.ToLower(rand.Text()[:12])}, gauge: &gauge{}, keys: map[string]string{},
		foreign: "sk-" + rand.Text() + rand.Text(), honey: "honey-" + rand.Text() + rand.Text(), since: time.Now().Add(-2 * time.Second)}
	for _, h := range vendorHosts {
		// It has characters that are escaped in one place or another.
		c.keys[h.at] = "sk-" + h.at + "-" + rand.Text()[:12] + "+" + rand.Text()[:12] + "/" + rand.Text()[:10] + "="
	}
	return c
}

// work is the experiment, once the sink hears.
func (c *cage) work(ctx context.Context) {
	c.vendor = newVendor(c.keys)
	address, stop, err := serve(c.vendor)
	if err != nil {
		c.step("the vendors", "a server on loopback", func() (string, bool) { return err.Error(), false })
		return
	}
	defer stop()
	u, _ := url.Parse(address) // serve has made it
	port, _ := strconv.ParseUint(u.Port(), 10, 16)
	c.vendor.url, c.port = address, uint16(port)
	main, ok := c.makeBox(ctx, "create")
	if !ok {
		return
	}
	c.box = main.box
	other, ok := c.makeBox(ctx, "create another")
	if !ok {
		return
	}
	defer func() {
		if err := errors.Join(other.box.Kill(context.WithoutCancel(ctx)), other.box.Close()); err != nil {
			c.step("clean up", "nothing is left", func() (string, bool) { return err.Error(), false })
		}
	}()
	c.honeypots(ctx)
	c.search(ctx, main)
	c.searchHost()
	if c.part(ctx, main, "", leak.PartWays, "") {
		c.denied(ctx, main.box.ID())
	}
	c.silent("after every way")
	c.metered()
	c.spend(ctx, main)
	c.judgeVendor(main, other)
	c.die(ctx, main, other)
}

// spec is what rein wrap would make a sandbox from.
func (c *cage) spec() sandbox.Spec {
	spec := c.env.Spec
	spec.TTL, spec.Network, spec.Models, spec.Secrets = A6Limit+15*time.Second, policy.Document{}, nil, nil
	for _, h := range vendorHosts {
		use := vault.Binding{Host: h.name, As: h.as, Name: h.field}
		seen := map[string]bool{}
		for _, call := range h.calls {
			use.Paths = append(use.Paths, call.Path)
			for _, m := range call.Methods {
				if !seen[m] {
					use.Methods = append(use.Methods, m)
				}
				seen[m] = true
			}
		}
		spec.Secrets = append(spec.Secrets, vault.Secret{Name: h.at, Value: secret.New(h.at, c.keys[h.at]), Variable: h.variable, Use: []vault.Binding{use}})
		spec.Models = append(spec.Models, inference.Host{Name: h.name, Base: h.base, Upstream: c.vendor.url + "/" + h.at, Calls: h.calls, Rules: inference.Rules{Models: []string{a6Model}}})
	}
	if c.spoil != nil {
		c.spoil(&spec, c.keys)
	}
	return spec
}

// makeBox makes a sandbox, with the probe in it.
func (c *cage) makeBox(ctx context.Context, name string) (caged, bool) {
	b := caged{placeholders: map[string]string{}}
	ok := c.step(name, "a sandbox with hosts of models, a placeholder for each key, and the probe", func() (string, bool) {
		box, err := sandbox.Create(ctx, c.env.Provider, c.spec(), sandbox.Options{Log: c.log, Masker: c.env.Masker, Meter: c.gauge})
		if err != nil {
			return err.Error() + "; " + sandbox.HintOf(err), false
		}
		b.box = box
		if c.result.SandboxID == "" {
			c.result.SandboxID, c.result.Runtime = box.ID(), box.Info().Runtime
		}
		for _, h := range vendorHosts {
			var out bytes.Buffer
			if _, err := box.Run(ctx, sandbox.Command{Tool: "lab", Shell: `printf %s "$` + h.variable + `"`, Stdout: &out}); err != nil {
				return err.Error(), false
			}
			b.placeholders[h.at] = out.String()
			if out.Len() != len(c.keys[h.at]) || out.String() == c.keys[h.at] {
				return fmt.Sprintf("%s has %d bytes, or the key", h.variable, out.Len()), false
			}
		}
		if err := c.load(ctx, box); err != nil {
			return err.Error(), false
		}
		return box.ID() + ", " + box.Info().Separation + " separation", true
	})
	if !ok && b.box != nil {
		if err := errors.Join(b.box.Kill(context.WithoutCancel(ctx)), b.box.Close()); err != nil {
			c.step("clean up", "nothing is left", func() (string, bool) { return err.Error(), false })
		}
	}
	return b, ok
}

// probeDir is where the probe is inside.
const probeDir = "/tmp/rein-lab/"

// load puts the probe into a sandbox.
func (c *cage) load(ctx context.Context, box *sandbox.Sandbox) error {
	program, err := os.Open(c.env.Probe)
	if err != nil {
		return err
	}
	defer program.Close()
	_, err = box.Upload(ctx, probeDir+"probe", program, sandbox.WriteOptions{Mode: 0o755})
	return err
}

// try has the probe in a sandbox try a part. dead is another's placeholder.
func (c *cage) try(ctx context.Context, b caged, part, dead string) ([]leak.Row, error) {
	host := func(i int) leak.ModelHost {
		return leak.ModelHost{Name: vendorHosts[i].name, Placeholder: b.placeholders[vendorHosts[i].at]}
	}
	aim := c.aim(nil)
	aim.Cage = &leak.Cage{Part: part, Door: netip.AddrPortFrom(netip.MustParseAddr(egress.Gateway4), egress.ModelPort), OpenAI: host(0), Anthropic: host(1), Google: host(2),
		Model: a6Model, Foreign: c.foreign, Dead: dead, Upstream: c.port, Search: c.wanted()}
	text, err := json.Marshal(aim)
	if err != nil {
		return nil, err
	}
	at := probeDir + "aim-" + part
	if _, err := b.box.WriteFile(ctx, at, text, sandbox.WriteOptions{}); err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	r, err := b.box.Run(ctx, sandbox.Command{Tool: "lab", Shell: probeDir + "probe " + ProbeCommand + " <" + at, Stdout: &out, Stderr: &said, Timeout: A6Limit})
	if err != nil {
		return nil, err
	}
	if !r.OK() {
		return nil, fmt.Errorf("the probe failed: %+v: %.400s", r.Outcome, said.String())
	}
	return leak.Read(&out)
}

// wanted is what is looked for inside, which is not told what it is.
func (c *cage) wanted() *leak.Search {
	s := &leak.Search{Again: []string{ProbeCommand}, Honey: leak.Veil([]byte(c.honey)), Since: c.since.Unix(), Traces: []leak.Trace{leak.NewTrace(leak.Honeypot, c.honey)}}
	for _, h := range vendorHosts {
		s.Traces = append(s.Traces, leak.NewTrace(h.at, c.keys[h.at]))
	}
	return s
}

// part has a part tried, each way of which is a step. It is false when it could not
// be.
func (c *cage) part(ctx context.Context, b caged, under, part, dead string) bool {
	var rows []leak.Row
	start := time.Now()
	if !c.step(under+"probe, "+part, "a program inside that tries it", func() (got string, ok bool) {
		var err error
		if rows, err = c.try(ctx, b, part, dead); err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%d ways in %v", len(rows), time.Since(start).Round(time.Millisecond)), len(rows) > 0
	}) {
		return false
	}
	c.rows = append(c.rows, rows...)
	for _, r := range rows {
		c.judgeRow(r, under)
	}
	return true
}

// judgeRow adds a way as a step, with what the vendor says of it: what is refused has
// not arrived, what passes has.
func (c *cage) judgeRow(r leak.Row, under string) {
	s := Step{Name: under + r.Group + ": " + r.Name, Tried: r.Tried, Expected: r.Expected, Got: r.Seen, Pass: r.Pass, NotTried: r.NotTried}
	arrived := c.vendor.with(leak.Marker(c.token, r.Name))
	passes := r.Expected == string(leak.Welcome) || r.Expected == string(leak.Masked)
	switch {
	case r.NotTried:
	case len(arrived) > 0 && !passes:
		s.Pass, s.Got = false, fmt.Sprintf("it reached the vendor: %.300q; inside: %s", arrived[0].text, r.Seen)
	case len(arrived) == 0 && passes:
		s.Pass, s.Got = false, "it did not reach the vendor; inside: "+r.Seen
	}
	c.add(s)
}

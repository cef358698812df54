package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
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
	"github.com/rein-sh/rein/wrap/layer"
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

// vendorHosts are those of A6 without an agent.
var vendorHosts = []vendorHost{
	{"api.openai.com", "openai", "OPENAI_API_KEY", "/v1", vault.Bearer, "", []inference.Call{
		{Methods: []string{"POST"}, Path: "/v1/chat/completions", API: inference.Chat}, {Methods: []string{"POST"}, Path: "/v1/responses", API: inference.Responses}, {Methods: []string{"GET"}, Path: "/v1/models"}}},
	{"api.anthropic.com", "anthropic", "ANTHROPIC_API_KEY", "", vault.Header, "X-Api-Key", []inference.Call{{Methods: []string{"POST"}, Path: "/v1/messages", API: inference.Messages}}},
	{"generativelanguage.googleapis.com", "google", "GEMINI_API_KEY", "", vault.Header, "X-Goog-Api-Key", []inference.Call{{Methods: []string{"POST"}, Path: "/v1beta/models/*", API: inference.Gemini}}},
}

// apis are the protocols of its calls that cost something.
func (h vendorHost) apis() (list []leak.API) {
	for _, c := range h.calls {
		if api := leak.API(c.API); api != "" && !c.Free && !slices.Contains(list, api) {
			list = append(list, api)
		}
	}
	return list
}

// lists reports whether it may be asked for its models.
func (h vendorHost) lists() bool {
	return slices.ContainsFunc(h.calls, func(c inference.Call) bool { return c.API == "" && c.Path == h.base+"/models" })
}

// given is the key that a request has in its place.
func (h vendorHost) given(r *http.Request) string {
	if h.as == vault.Header {
		return r.Header.Get(h.field)
	}
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return key
}

// cage is A6 at work.
type cage struct {
	*drill
	hosts   []vendorHost
	model   string
	vendor  *vendor
	port    uint16 // of the vendor
	gauge   *gauge
	keys    map[string]string // by vendorHost.at: nowhere but here, in the keepers, and at the vendor
	foreign string
	honey   string
	task    string // what an agent is told to do
	since   time.Time
	most    time.Duration // that it may take
	rows    []leak.Row    // of the last parts
	// limit has n more requests begin, and none after them.
	limit func(n int) error
	// spoil changes the sandbox's spec, in tests.
	spoil func(*sandbox.Spec, map[string]string)
}

// caged is one of its sandboxes.
type caged struct {
	box          *sandbox.Sandbox
	placeholders map[string]string // by vendorHost.at
	home         string            // of its user; with agent
	agent        bool              // commands of the probe are an agent's, but for those that wait
	once         bool              // no second agent is started in it
	owned        bool              // a run has made it, and ends it
}

// A6 is the key boundary of a command-line agent. A sandbox as rein wrap makes it
// asks three vendors, which are one server on the host's loopback. A program inside
// looks for their keys in all there is, while a request with one is under way, and
// tries every way to have the gateway pass on what it must not: the server, the
// network record and the meter say what came of it. Then the budget comes to its
// end, and the sandbox, and its placeholders are dead.
//
// With Env.Agent the sandbox is that of a real agent, which starts the program.
func A6(ctx context.Context, env Env) (Result, error) {
	if env.Agent != nil {
		return a6Agent(ctx, env)
	}
	return a6(ctx, env, nil)
}

func a6(ctx context.Context, env Env, spoil func(*sandbox.Spec, map[string]string)) (Result, error) {
	b, err := begin(env, "a6", "the key boundary of a command-line agent")
	if err != nil {
		return Result{}, err
	}
	short, cancel := context.WithTimeout(ctx, A6Limit-3*time.Second)
	defer cancel()
	c := newCage(b, vendorHosts, a6Model, func(h vendorHost) string { return "sk-" + h.at + "-" })
	c.spoil, c.limit = spoil, c.gauge.limit
	err = b.guard(func() {
		if !c.listen(short) {
			return
		}
		defer c.sink.Close()
		c.work(short)
	})
	return b.end(errors.Join(err, b.guard(func() { b.cleanUp(ctx) })))
}

// newCage makes up keys, which begin as shape says.
func newCage(b *bench, hosts []vendorHost, model string, shape func(vendorHost) string) *cage {
	c := &cage{drill: &drill{bench: b, token: strings.ToLower(rand.Text()[:12])}, hosts: hosts, model: model, gauge: &gauge{}, keys: map[string]string{}, most: A6Limit,
		foreign: "sk-" + rand.Text() + rand.Text(), honey: "honey-" + rand.Text() + rand.Text(), since: time.Now().Add(-2 * time.Second)}
	for _, h := range hosts {
		// It has characters that are escaped in one place or another.
		c.keys[h.at] = shape(h) + rand.Text()[:12] + "+" + rand.Text()[:12] + "/" + rand.Text()[:10] + "="
	}
	return c
}

// serveVendors opens the server that stands for the vendors.
func (c *cage) serveVendors() (stop func(), ok bool) {
	c.vendor = newVendor(c.hosts, c.keys)
	address, stop, err := serve(c.vendor)
	if err != nil {
		return nil, c.step("the vendors", "a server on loopback", func() (string, bool) { return err.Error(), false })
	}
	u, _ := url.Parse(address) // serve has made it
	port, _ := strconv.ParseUint(u.Port(), 10, 16)
	c.vendor.url, c.port = address, uint16(port)
	return stop, true
}

// work is the experiment, once the sink hears.
func (c *cage) work(ctx context.Context) {
	stop, ok := c.serveVendors()
	if !ok {
		return
	}
	defer stop()
	main, ok := c.makeBox(ctx, "create", c.spec())
	if !ok {
		return
	}
	c.box = main.box
	other, ok := c.makeBox(ctx, "create another", c.spec())
	if !ok {
		return
	}
	defer c.dispose(ctx, other)
	c.honeypots(ctx)
	c.search(ctx, main)
	c.searchHost("the host's traces")
	if c.part(ctx, main, "", leak.PartWays, "") {
		c.denied(ctx, main.box.ID())
	}
	c.silent("after every way")
	c.metered()
	c.spend(ctx, main)
	c.judgeVendor(main, other)
	c.die(ctx, main, other)
}

// dispose ends a sandbox of its own.
func (c *cage) dispose(ctx context.Context, b caged) {
	if err := errors.Join(b.box.Kill(context.WithoutCancel(ctx)), b.box.Close()); err != nil {
		c.step("clean up", "nothing is left", func() (string, bool) { return err.Error(), false })
	}
}

// spec is what rein wrap would make a sandbox from.
func (c *cage) spec() sandbox.Spec {
	spec := c.env.Spec
	spec.TTL, spec.Network, spec.Models, spec.Secrets = A6Limit+15*time.Second, policy.Document{}, nil, nil
	for _, h := range c.hosts {
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
		spec.Models = append(spec.Models, inference.Host{Name: h.name, Base: h.base, Upstream: c.vendor.url + "/" + h.at, Calls: h.calls, Rules: inference.Rules{Models: []string{c.model}}})
	}
	if c.spoil != nil {
		c.spoil(&spec, c.keys)
	}
	return spec
}

// makeBox makes a sandbox, with the probe in it.
func (c *cage) makeBox(ctx context.Context, name string, spec sandbox.Spec) (caged, bool) {
	b := caged{}
	ok := c.step(name, "a sandbox with hosts of models, a placeholder for each key, and the probe", func() (string, bool) {
		box, err := sandbox.Create(ctx, c.env.Provider, spec, sandbox.Options{Log: c.log, Masker: c.env.Masker, Meter: c.gauge})
		if err != nil {
			return err.Error() + "; " + sandbox.HintOf(err), false
		}
		b.box = box
		if err := c.equip(ctx, &b); err != nil {
			return err.Error(), false
		}
		return box.ID() + ", " + box.Info().Separation + " separation", true
	})
	if !ok && b.box != nil {
		c.dispose(ctx, b)
	}
	return b, ok
}

// equip reads the placeholders of a sandbox and puts the probe into it.
func (c *cage) equip(ctx context.Context, b *caged) error {
	if c.result.SandboxID == "" {
		c.result.SandboxID, c.result.Runtime = b.box.ID(), b.box.Info().Runtime
	}
	b.placeholders = map[string]string{}
	for _, h := range c.hosts {
		var out bytes.Buffer
		if _, err := b.box.Run(ctx, sandbox.Command{Tool: "lab", Shell: `printf %s "$` + h.variable + `"`, Stdout: &out}); err != nil {
			return err
		}
		b.placeholders[h.at] = out.String()
		if out.Len() != len(c.keys[h.at]) || out.String() == c.keys[h.at] {
			return fmt.Errorf("%s has %d bytes, or the key", h.variable, out.Len())
		}
	}
	return c.load(ctx, b.box)
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
	aim := c.aim(nil)
	aim.Cage = &leak.Cage{Part: part, Door: netip.AddrPortFrom(netip.MustParseAddr(egress.Gateway4), egress.ModelPort),
		Model: c.model, Foreign: c.foreign, Dead: dead, Upstream: c.port, Search: c.wanted(b)}
	for _, h := range c.hosts {
		aim.Cage.Hosts = append(aim.Cage.Hosts, leak.ModelHost{Name: h.name, Placeholder: b.placeholders[h.at], Field: h.field, Base: h.base, APIs: h.apis(), List: h.lists()})
	}
	text, err := json.Marshal(aim)
	if err != nil {
		return nil, err
	}
	at := probeDir + "aim-" + part
	if _, err := b.box.WriteFile(ctx, at, text, sandbox.WriteOptions{}); err != nil {
		return nil, err
	}
	shell := probeDir + "probe " + ProbeCommand + " <" + at
	if b.agent && part != leak.PartWait {
		if shell, err = c.order(ctx, b, part, shell); err != nil {
			return nil, err
		}
	}
	var out, said bytes.Buffer
	r, err := b.box.Run(ctx, sandbox.Command{Tool: "lab", Shell: shell, Stdout: &out, Stderr: &said, Timeout: c.most})
	if err != nil {
		return nil, err
	}
	if !r.OK() {
		return nil, fmt.Errorf("the probe failed: %+v: %.400s", r.Outcome, said.String())
	}
	return leak.Read(&out)
}

// wanted is what is looked for inside, which is not told what it is.
func (c *cage) wanted(b caged) *leak.Search {
	s := &leak.Search{Again: []string{ProbeCommand}, Honey: leak.Veil([]byte(c.honey)), Since: c.since.Unix(), Patience: c.most - 5*time.Second, Traces: []leak.Trace{leak.NewTrace(leak.Honeypot, c.honey)}}
	for _, h := range c.hosts {
		s.Traces = append(s.Traces, leak.NewTrace(h.at, c.keys[h.at]))
	}
	if b.agent {
		s.Beside = &leak.Beside{Root: layer.At, Home: b.home, Once: b.once}
		s.Traces = append(s.Traces, leak.NewTrace(leak.Task, c.task), leak.NewTrace(leak.Placeholder, b.placeholders[c.hosts[0].at]))
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

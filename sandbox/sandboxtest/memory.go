package sandboxtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// Memory is a provider whose sandboxes are a temporary directory, a shell
// interpreter and the real execd daemon on in-process connections. It runs no
// host program, opens no file outside its directories and no socket. It is for
// tests: it isolates nothing from its own process's memory and time.
//
// It has no processes, users or limits, so its Probe says so, and a Spec that
// asks for a limit or a mount is refused.
type Memory struct {
	dir   string
	clock Clock

	mu     sync.Mutex
	boxes  map[string]*box
	closed bool
}

var _ sandbox.Provider = (*Memory)(nil)

// MemoryOptions configure Memory; the zero value is fine.
type MemoryOptions struct {
	// Dir is where the sandboxes' directories are made; empty is the system's
	// directory for temporary files. On a tmpfs thousands are made a second.
	Dir string
	// Clock is the time of TTLs and of sleep; nil is package time. Within a
	// testing/synctest bubble leave it nil: the bubble simulates package time.
	// (A pipeline there does not let time pass while one end waits for the
	// other: the interpreter's pipes are the host's.)
	Clock Clock
}

// NewMemory returns a provider without sandboxes. Close ends those it has.
func NewMemory(o MemoryOptions) *Memory {
	if o.Clock == nil {
		o.Clock = realClock{}
	}
	return &Memory{dir: o.Dir, clock: o.Clock, boxes: map[string]*box{}}
}

// Name returns "memory".
func (m *Memory) Name() string { return "memory" }

// Probe lists what an interpreter in memory can do.
func (m *Memory) Probe(context.Context) (sandbox.Report, error) {
	has := []sandbox.Capability{
		sandbox.CapExec, sandbox.CapFiles, sandbox.CapBackground, sandbox.CapCallIDs, sandbox.CapCaps,
		sandbox.CapSpill, sandbox.CapLabels, sandbox.CapRenew, sandbox.CapConfine, sandbox.CapSessions, sandbox.CapStderrInSessions,
	}
	r := sandbox.Report{Provider: m.Name(), Usable: true}
	for _, c := range sandbox.Capabilities {
		a := sandbox.Ability{Capability: c, Available: slices.Contains(has, c), EnforcedBy: "interpreter"}
		if !a.Available {
			a.EnforcedBy, a.Reason = "nobody", "an interpreter in memory has no such thing"
		}
		r.Abilities = append(r.Abilities, a)
	}
	return r, nil
}

// Create makes a sandbox in less than a millisecond.
func (m *Memory) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if err := m.check(ctx, spec); err != nil {
		return sandbox.Info{}, err
	}
	now := m.clock.Now()
	info := sandbox.Info{
		ID: "mem-" + rand.Text()[:16], Provider: m.Name(), State: sandbox.StateRunning, Image: "host",
		Labels: maps.Clone(spec.Labels), CreatedAt: now, ExpiresAt: now.Add(spec.TTL),
		Cwd: cmp.Or(spec.Cwd, "/workspace"), Separation: "reduced",
	}
	b, err := newBox(m.dir, m.clock, info, spec.Env)
	if err != nil {
		return sandbox.Info{}, &sandbox.Error{Kind: sandbox.KindHost, Op: "create", Subject: info.ID, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || ctx.Err() != nil {
		b.end()
		return sandbox.Info{}, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "create",
			Err: cmp.Or(ctx.Err(), errors.New("the provider is closed"))}
	}
	m.boxes[info.ID] = b
	b.stop = m.clock.AfterFunc(spec.TTL, func() { m.expire(b) })
	return clone(info), nil
}

func (m *Memory) check(ctx context.Context, spec sandbox.Spec) error {
	refuse := func(subject, why string) error {
		return &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "create", Subject: subject, Err: errors.New(why)}
	}
	if err := ctx.Err(); err != nil {
		return &sandbox.Error{Kind: sandbox.KindTimeout, Op: "create", Err: err}
	}
	if err := spec.Check(); err != nil {
		return err
	}
	if spec.Image != "" && spec.Image != "host" {
		return refuse("image "+spec.Image, "a sandbox in memory has no image")
	}
	if spec.Resources != (sandbox.Resources{}) {
		return refuse("resources", "nobody can enforce limits on a sandbox in memory")
	}
	if len(spec.Mounts) > 0 {
		return refuse("mounts", "a sandbox in memory sees no host paths")
	}
	if len(spec.Secrets) > 0 {
		return refuse("secrets", "a sandbox in memory sends no requests that could be given any")
	}
	if len(spec.Models) > 0 {
		return refuse("models", "a sandbox in memory sends no requests that could be metered")
	}
	if !sandbox.DeniesAll(spec.Network) {
		return refuse("network", "a sandbox in memory has no network, and reaches nothing")
	}
	report, err := m.Probe(ctx)
	if err != nil {
		return err
	}
	for _, c := range spec.Require {
		if !report.Has(c) {
			return refuse(string(c), "a sandbox in memory does not have this capability")
		}
	}
	return nil
}

// find returns a live sandbox, with m.mu held.
func (m *Memory) find(op, id string) (*box, error) {
	b := m.boxes[id]
	if b == nil || !m.clock.Now().Before(b.info.ExpiresAt) {
		return nil, &sandbox.Error{Kind: sandbox.KindNotFound, Op: op, Subject: id, Err: errors.New("no such sandbox")}
	}
	return b, nil
}

// Get returns one sandbox.
func (m *Memory) Get(_ context.Context, id string) (sandbox.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.find("get", id)
	if err != nil {
		return sandbox.Info{}, err
	}
	return clone(b.info), nil
}

// List returns the sandboxes with all of labels, newest first.
func (m *Memory) List(_ context.Context, labels map[string]string) ([]sandbox.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var infos []sandbox.Info
next:
	for id, b := range m.boxes {
		if _, err := m.find("list", id); err != nil {
			continue
		}
		for k, v := range labels {
			if got, ok := b.info.Labels[k]; !ok || got != v {
				continue next
			}
		}
		infos = append(infos, clone(b.info))
	}
	slices.SortFunc(infos, func(a, b sandbox.Info) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return infos, nil
}

// Renew moves the end of a sandbox.
func (m *Memory) Renew(_ context.Context, id string, until time.Time) (time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.find("renew", id)
	if err != nil {
		return time.Time{}, err
	}
	left := until.Sub(m.clock.Now())
	if left <= 0 {
		return time.Time{}, &sandbox.Error{Kind: sandbox.KindInvalid, Op: "renew", Subject: id,
			Err: fmt.Errorf("%v has passed", until), Hint: "to end a sandbox now, kill it"}
	}
	b.stop()
	b.info.ExpiresAt = until
	b.stop = m.clock.AfterFunc(left, func() { m.expire(b) })
	return until, nil
}

// expire is called by the timers of a sandbox; one that was renewed meanwhile
// has a later end.
func (m *Memory) expire(b *box) {
	m.mu.Lock()
	if m.clock.Now().Before(b.info.ExpiresAt) {
		m.mu.Unlock()
		return
	}
	delete(m.boxes, b.info.ID)
	m.mu.Unlock()
	b.end()
}

// Kill ends a sandbox.
func (m *Memory) Kill(_ context.Context, id string) error {
	m.mu.Lock()
	b := m.boxes[id]
	m.mu.Unlock()
	if b == nil {
		return nil
	}
	b.stop()
	err := b.end()
	m.mu.Lock()
	delete(m.boxes, id)
	m.mu.Unlock()
	if err != nil {
		return &sandbox.Error{Kind: sandbox.KindHost, Op: "kill", Subject: id, Err: err}
	}
	return nil
}

// Lose ends a sandbox as one that broke: its connections are cut and Get says
// StateLost with the reason, until it is killed or its time has come.
func (m *Memory) Lose(id, reason string) {
	m.mu.Lock()
	b, err := m.find("lose", id)
	if err == nil {
		b.info.State, b.info.Reason = sandbox.StateLost, reason
	}
	m.mu.Unlock()
	if err == nil {
		b.halt()
	}
}

// Close ends all sandboxes; the provider makes no more.
func (m *Memory) Close() error {
	m.mu.Lock()
	m.closed = true
	ids := slices.Collect(maps.Keys(m.boxes))
	m.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, m.Kill(context.Background(), id))
	}
	return errors.Join(errs...)
}

// Endpoint of execd's port; nothing else listens in memory.
func (m *Memory) Endpoint(_ context.Context, id string, port int) (sandbox.Endpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.find("endpoint", id)
	if err != nil {
		return sandbox.Endpoint{}, err
	}
	dial := b.dial
	if port != execd.Port {
		dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
		}
	}
	return sandbox.Endpoint{
		BaseURL: fmt.Sprintf("http://%s:%d", id, port), DialContext: dial,
		Header: http.Header{execd.TokenHeader: {b.token}},
	}, nil
}

func clone(i sandbox.Info) sandbox.Info {
	i.Labels = maps.Clone(i.Labels)
	return i
}

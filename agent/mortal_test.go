package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
)

// mortal is a process that uses a provider and a model, and dies at a point of
// its life: between two things it does to the outside. What is in the run's
// directory then is copied; from then on the outside does not hear of it.
type mortal struct {
	sandbox.Provider
	model.Model
	dir, left string // the state directory, and where it is copied to
	rng       *rand.Rand
	kill      context.CancelFunc

	mu     sync.Mutex
	points int
	at     int // at which it dies; 0: never
	dead   bool
	size   int64 // of the audit log at the last point
}

var errDead = &sandbox.Error{Kind: sandbox.KindUnavailable, Op: "reach", Err: errors.New("the process is dead")}

// point is passed before and after everything done to the outside.
func (m *mortal) point() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	if m.points++; m.points == m.at {
		m.dead = true
		m.leave()
		m.kill()
		return errDead
	}
	if st, err := os.Stat(m.log(m.dir)); err == nil {
		m.size = st.Size()
	}
	return nil
}

// die ends the process now, with all that is on record.
func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if st, err := os.Stat(m.log(m.dir)); err == nil {
		m.size = st.Size()
	}
	m.dead = true
	m.leave()
	m.kill()
}

// dieAfter has it die when it has passed so many points more.
func (m *mortal) dieAfter(points int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = m.points + points
}

// state says whether it has died, and how many points it has passed. Connections
// that are being closed may pass more.
func (m *mortal) state() (dead bool, points int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead, m.points
}

func (m *mortal) log(dir string) string {
	logs, _ := filepath.Glob(filepath.Join(dir, "runs", "*", run.AuditFile))
	if len(logs) == 0 {
		return ""
	}
	return logs[0]
}

// leave copies what is there. It may have died at any record since the last
// point, or in the middle of one.
func (m *mortal) leave() {
	if err := os.CopyFS(m.left, files{os.DirFS(m.dir)}); err != nil {
		panic(err)
	}
	log := m.log(m.left)
	st, err := os.Stat(log)
	if err != nil {
		return // it had not begun
	}
	if more := st.Size() - m.size; more > 0 {
		if err := os.Truncate(log, m.size+m.rng.Int64N(more+1)); err != nil {
			panic(err)
		}
	}
}

// files is a file system without its sockets, which end with their process.
type files struct{ fs.FS }

func (f files) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(f.FS, name)
	return slices.DeleteFunc(list, func(e fs.DirEntry) bool { return e.Type()&fs.ModeSocket != 0 }), err
}

// around does f between two points.
func around[T any](m *mortal, f func() (T, error)) (T, error) {
	var none T
	if err := m.point(); err != nil {
		return none, err
	}
	v, err := f()
	if dead := m.point(); dead != nil {
		return none, dead
	}
	return v, err
}

func (m *mortal) Name() string { return "memory" }

func (m *mortal) Create(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	return around(m, func() (sandbox.Info, error) { return m.Provider.Create(ctx, s) })
}

func (m *mortal) Get(ctx context.Context, id string) (sandbox.Info, error) {
	return around(m, func() (sandbox.Info, error) { return m.Provider.Get(ctx, id) })
}

func (m *mortal) Renew(ctx context.Context, id string, end time.Time) (time.Time, error) {
	return around(m, func() (time.Time, error) { return m.Provider.Renew(ctx, id, end) })
}

func (m *mortal) Kill(ctx context.Context, id string) error {
	_, err := around(m, func() (bool, error) { return true, m.Provider.Kill(ctx, id) })
	return err
}

func (m *mortal) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	ep, err := around(m, func() (sandbox.Endpoint, error) { return m.Provider.Endpoint(ctx, id, port) })
	dial := ep.DialContext
	ep.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := around(m, func() (net.Conn, error) { return dial(ctx, network, addr) })
		return &mortalConn{c, m}, err
	}
	return ep, err
}

type mortalConn struct {
	net.Conn
	m *mortal
}

func (c *mortalConn) Write(p []byte) (int, error) {
	n, err := around(c.m, func() (int, error) { return c.Conn.Write(p) })
	if errors.Is(err, errDead) {
		c.Close()
	}
	return n, err
}

func (c *mortalConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if dead := c.m.point(); dead != nil {
		c.Close()
		return 0, dead
	}
	return n, err
}

// plot is a model that says, after n replies, the n-th of its answers.
type plot struct {
	mu      sync.Mutex
	failed  map[int]bool
	answers []answer
}

func (p *plot) Name() string { return "fake/model" }

func (p *plot) Generate(_ context.Context, req *model.Request, _ func(model.Delta)) (*model.Reply, error) {
	n := 0
	for _, m := range req.Messages {
		if m.Role == model.RoleAssistant {
			n++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == 2 && !p.failed[n] { // once
		p.failed[n] = true
		return nil, &model.Error{Kind: model.KindRateLimit, RetryAfter: 3 * time.Second}
	}
	return p.answers[n](req)
}

// talking is the model as a mortal process reaches it.
type talking struct{ m *mortal }

func (t talking) Name() string { return t.m.Model.Name() }

func (t talking) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Reply, error) {
	return around(t.m, func() (*model.Reply, error) { return t.m.Model.Generate(ctx, req, emit) })
}

// life is one run, with as many deaths as at has numbers.
type life struct {
	t       *testing.T
	outside sandbox.Provider
	model   model.Model
	o       run.Options
	rng     *rand.Rand
}

// live works until it dies at the point at, and returns what it leaves: a state
// directory, and a report if it came so far.
func (l *life) live(state string, at int, resume bool) (string, *run.Report, int) {
	l.t.Helper()
	ctx, kill := context.WithCancel(context.Background())
	defer kill()
	m := &mortal{Provider: l.outside, Model: l.model, dir: state, left: l.t.TempDir(), rng: l.rng, kill: kill, at: at}
	if st, err := os.Stat(m.log(state)); err == nil {
		m.size = st.Size()
	}
	w, err := agent.New(agent.Options{Model: talking{m}, Price: &agent.Price{Input: 1, Output: 2}})
	if err != nil {
		l.t.Fatal(err)
	}
	o := l.o
	o.Provider, o.StateDir = m, state
	var rep *run.Report
	if resume {
		rep, err = run.Resume(ctx, o, w.(run.Resumer))
	} else {
		rep, err = run.Do(ctx, o, w)
	}
	dead, points := m.state()
	if dead {
		return m.left, nil, points
	}
	if err != nil {
		l.t.Fatalf("after point %d: %v", at, err)
	}
	return state, rep, points
}

// logged reports whether a run had begun to be recorded.
func logged(state string) bool {
	logs, _ := filepath.Glob(filepath.Join(state, "runs", "*", run.AuditFile))
	if len(logs) == 0 {
		os.RemoveAll(filepath.Join(state, "runs"))
		return false
	}
	data, _ := os.ReadFile(logs[0])
	if !bytes.Contains(data, []byte("\n")) {
		os.RemoveAll(filepath.Join(state, "runs"))
		return false
	}
	return true
}

// livesTwice has a process work until it dies, and another go on. tell is told
// of each before it works.
func livesTwice(t *testing.T, outside sandbox.Provider, p *plot, o run.Options, tell func(m *mortal, resumed bool)) *run.Report {
	t.Helper()
	state := t.TempDir()
	for _, resumed := range []bool{false, true} {
		ctx, kill := context.WithCancel(context.Background())
		defer kill()
		m := &mortal{Provider: outside, Model: p, dir: state, left: filepath.Join(t.TempDir(), "left"), rng: rand.New(rand.NewPCG(1, 1)), kill: kill}
		tell(m, resumed)
		w, err := agent.New(agent.Options{Model: talking{m}})
		if err != nil {
			t.Fatal(err)
		}
		o.Provider, o.StateDir = m, state
		if !resumed {
			rep, err := run.Do(ctx, o, w)
			if dead, _ := m.state(); !dead {
				t.Logf("it did not die: %v", err)
				return rep
			}
			state = m.left
			continue
		}
		rep, err := run.Resume(ctx, o, w.(run.Resumer))
		if rep == nil {
			t.Fatal(err)
		}
		return rep
	}
	return nil
}

// logbook is a workspace with a file, to which commands append.
func logbook(t *testing.T) run.Workspace {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return run.Workspace{Dir: dir}
}

// patchOf is what a run has changed in its workspace; empty without a patch.
func patchOf(rep *run.Report) string {
	patch, _ := os.ReadFile(filepath.Join(rep.Dir, "patch"))
	return string(patch)
}

// asker is a channel made of a function.
type asker func(context.Context, approval.Question) (approval.Decision, error)

func (asker) Name() string { return "terminal" }

func (a asker) Ask(ctx context.Context, q approval.Question) (approval.Decision, error) {
	return a(ctx, q)
}

// asking has everything asked about on a channel.
func asking(t *testing.T, channel approval.Channel) *run.Approval {
	t.Helper()
	policy, err := approval.NewPolicy(approval.Ask)
	if err != nil {
		t.Fatal(err)
	}
	return &run.Approval{Policy: policy, Channels: []approval.Channel{channel}}
}

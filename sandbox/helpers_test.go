package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a sandbox in memory whose record can be read, over a provider
// that can be made to fail.
type fixture struct {
	*sandbox.Sandbox
	provider *flaky
	memory   *sandboxtest.Memory
	log      *bytes.Buffer
}

func newFixture(t *testing.T, masker *secret.Masker) *fixture {
	t.Helper()
	m := sandboxtest.NewMemory(sandboxtest.MemoryOptions{Dir: t.TempDir()})
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	f := &fixture{provider: &flaky{Provider: m}, memory: m, log: &bytes.Buffer{}}
	var err error
	f.Sandbox, err = sandbox.Create(t.Context(), f.provider, sandbox.Spec{TTL: time.Minute}, sandbox.Options{
		Log: audit.New(f.log, audit.Options{}), Masker: masker, RunID: "run-1", TraceID: "trace-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// records decodes the log written so far.
func (f *fixture) records(t *testing.T) []audit.Record {
	t.Helper()
	var list []audit.Record
	sc := bufio.NewScanner(bytes.NewReader(f.log.Bytes()))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var r audit.Record
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// last decodes the data of the newest record of a kind.
func last[T any](t *testing.T, f *fixture, kind audit.Kind) (audit.Record, T) {
	t.Helper()
	var data T
	list := f.records(t)
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Kind == kind {
			if err := json.Unmarshal(list[i].Data, &data); err != nil {
				t.Fatal(err)
			}
			return list[i], data
		}
	}
	t.Fatalf("no record of kind %s", kind)
	return audit.Record{}, data
}

// kinds is the order of the records, without those before the first of from.
func (f *fixture) kinds(t *testing.T, from audit.Kind) string {
	t.Helper()
	var list []string
	for _, r := range f.records(t) {
		if len(list) > 0 || r.Kind == from {
			list = append(list, string(r.Kind))
		}
	}
	return strings.Join(list, " ")
}

// flaky is a provider whose connections can be cut, whose network record is
// made up, and whose acts can fail.
type flaky struct {
	sandbox.Provider
	mu       sync.Mutex
	conns    []net.Conn
	refuse   bool // refuses connections
	network  []sandbox.NetworkRecord
	killErr  error
	immortal bool // Kill does nothing
}

func (p *flaky) Endpoint(ctx context.Context, id string, port int) (sandbox.Endpoint, error) {
	ep, err := p.Provider.Endpoint(ctx, id, port)
	dial := ep.DialContext
	ep.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.refuse {
			return nil, errors.New("refused by the test")
		}
		conn, err := dial(ctx, network, address)
		if err == nil {
			p.conns = append(p.conns, conn)
		}
		return conn, err
	}
	return ep, err
}

// cut closes all connections, and with refuse no new ones are made.
func (p *flaky) cut(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *flaky) accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
}

func (p *flaky) Kill(ctx context.Context, id string) error {
	if p.killErr != nil || p.immortal {
		return p.killErr
	}
	return p.Provider.Kill(ctx, id)
}

// tried adds an attempt to the network record.
func (p *flaky) tried(r sandbox.NetworkRecord) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Seq = uint64(len(p.network) + 1)
	p.network = append(p.network, r)
}

func (p *flaky) NetworkRecords(_ context.Context, _ string, after uint64) (sandbox.NetworkLog, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := sandbox.NetworkLog{Last: uint64(len(p.network))}
	if log.Last > 0 {
		log.Head = "head-" + string(rune('0'+log.Last))
	}
	for _, r := range p.network {
		if r.Seq > after {
			log.Records = append(log.Records, r)
		}
	}
	return log, nil
}

// wait returns when a file is there.
func (f *fixture) wait(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if _, err := f.Stat(context.Background(), name, sandbox.Access{}); err == nil {
			return
		}
	}
	t.Errorf("%s did not appear", name)
}

func out(r sandbox.Result) string { return string(r.Stdout.Head) + string(r.Stdout.Tail) }

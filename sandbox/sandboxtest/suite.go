// Package sandboxtest is the suite that every sandbox.Provider passes, and
// Memory, a provider that passes it without a machine: its sandboxes run a
// shell interpreter over a temporary directory, served by the real execd
// daemon, on an injectable clock.
package sandboxtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// Harness is one provider under test.
type Harness struct {
	// New returns the provider. It is called once by Run, which calls its
	// Close, if it has one, at the end.
	New func(t *testing.T) sandbox.Provider
	// Must lists the capabilities that have to be there. A case is skipped only
	// for the lack of others, so that a provider cannot lose one silently.
	Must []sandbox.Capability
	// Resources of the sandboxes; zero fields are the provider's defaults.
	Resources sandbox.Resources
	// Loopback is a name that the provider resolves to 127.0.0.1, where servers of
	// this process can be reached from its host. Required where CapNetworkAllow
	// must be there; without it the cases that reach something are skipped.
	Loopback string
	// Factor stretches the times that the suite allows; 0 is 1.
	Factor float64
	// Life is that of the sandboxes that the suite waits to expire, long enough for
	// one to be made and used on a busy machine; 0 is 6 s.
	Life time.Duration
	// Summary, when set, is told at the end what was shown.
	Summary func(Summary)
}

// Case is one row of the suite.
type Case struct {
	Name  string
	Needs []sandbox.Capability
	// Programs have to be in the sandbox: a missing one is a failure, because a
	// skip would hide all that the case was to show.
	Programs []string

	// fresh gives the case a sandbox of its own, made from spec. Others share
	// one, and leave only files in a directory of their own.
	fresh bool
	spec  func(*sandbox.Spec)
	// breaks is said of a case that breaks connections. OpenSandbox's execd ends
	// its other commands then, so there the case has a sandbox of its own, too.
	breaks bool
	// loopback: it reaches servers of this process.
	loopback bool

	run func(*env)
}

// Cases returns all rows, in the order they are run.
func Cases() []Case {
	return slices.Concat(execCases(), treeCases(), callCases(), outputCases(), fileCases(),
		confineCases(), lifecycleCases(), endCases(), pauseCases(), sessionCases(), isolationCases(), networkCases(), policyCases(), modelCases(), limitCases())
}

// Check reports what is wrong with rows: an unknown capability, a name that is
// there twice.
func Check(cases []Case) error {
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.Name] {
			return fmt.Errorf("case %q is there twice", c.Name)
		}
		seen[c.Name] = true
		if err := sandbox.CheckCapabilities(c.Needs); err != nil {
			return fmt.Errorf("case %q: %w", c.Name, err)
		}
	}
	return nil
}

// marker is set in the environment of the test process for the time of Run, to
// be found in no sandbox.
const marker = "REIN_SUITE_HOST_MARKER"

// Run runs the suite. It sets an environment variable, so that t must not be
// parallel. A sandbox in which a case failed is kept until its TTL, and its id
// is in the log.
func Run(t *testing.T, h Harness) {
	cases := Cases()
	if err := Check(cases); err != nil {
		t.Fatal(err)
	}
	if err := sandbox.CheckCapabilities(h.Must); err != nil {
		t.Fatal(err)
	}
	secret := rand.Text()
	t.Setenv(marker, secret)
	p := h.New(t)
	if c, ok := p.(io.Closer); ok {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("closing the provider: %v", err)
			}
		})
	}
	report, err := p.Probe(t.Context())
	if err != nil {
		t.Fatalf("probe: %v", err)
	}
	if !report.Usable {
		t.Fatalf("the provider cannot be used here: %+v", report.Problems)
	}
	for _, c := range h.Must {
		if !report.Has(c) {
			t.Errorf("capability %q must be there: %s", c, reasonFor(report, c))
		}
	}
	if slices.Contains(h.Must, sandbox.CapNetworkAllow) && h.Loopback == "" {
		t.Errorf("capability %q must be there, and there is no Loopback to show it", sandbox.CapNetworkAllow)
	}
	s := &suite{Harness: h, provider: p, report: report, secret: secret, hostFile: hostFile(t, secret)}
	t.Cleanup(s.close)
	shown := newTally(report)
	if h.Summary != nil {
		t.Cleanup(func() { h.Summary(shown.summary) })
	}
	t.Run("cases", func(t *testing.T) { // ends when the parallel ones have
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				if missing := s.missing(c.Needs); len(missing) > 0 {
					t.Skip(strings.Join(missing, "; "))
				}
				t.Cleanup(func() { shown.count(c, t) }) // the last of the case's own
				if c.loopback && h.Loopback == "" {
					t.Skip("needs a name for this machine's loopback address")
				}
				t.Parallel()
				s.one(t, c)
			})
		}
	})
}

// suite is one run over one provider.
type suite struct {
	Harness
	provider sandbox.Provider
	report   sandbox.Report
	secret   string // the marker's value
	hostFile string // a file of the host that holds it

	mu     sync.Mutex
	shared *sandbox.Sandbox
	failed bool // a case failed in the shared sandbox
}

func reasonFor(r sandbox.Report, c sandbox.Capability) string {
	for _, a := range r.Abilities {
		if a.Capability == c {
			return strings.TrimSpace(a.Reason + " " + a.Remedy)
		}
	}
	return "the provider does not mention it"
}

func (s *suite) missing(needs []sandbox.Capability) []string {
	var out []string
	for _, c := range needs {
		if !s.report.Has(c) {
			out = append(out, fmt.Sprintf("needs %q: %s", c, reasonFor(s.report, c)))
		}
	}
	return out
}

// one runs a case.
func (s *suite) one(t *testing.T, c Case) {
	e := &env{T: t, suite: s, dir: "/tmp/" + rand.Text()[:12]}
	if c.fresh || c.breaks && !s.report.Has(sandbox.CapCallIDs) {
		e.Sandbox = e.create(c.spec)
	} else {
		e.Sandbox = s.theShared(t)
		t.Cleanup(func() {
			if t.Failed() {
				s.mu.Lock()
				s.failed = true
				s.mu.Unlock()
				t.Logf("in sandbox %s", e.ID())
			}
		})
	}
	for _, name := range c.Programs {
		if r := e.run("command -v " + name); !r.OK() {
			t.Fatalf("the sandbox lacks the program %q, which this case needs", name)
		}
	}
	if s.report.Has(sandbox.CapFiles) {
		e.must(e.Mkdir(t.Context(), e.dir, 0o777, sandbox.Access{}))
	}
	c.run(e)
}

func (s *suite) spec() sandbox.Spec {
	return sandbox.Spec{TTL: 10 * time.Minute, Resources: s.Resources,
		Env:    map[string]string{"REIN_SUITE": envValue},
		Labels: map[string]string{"suite": "rein"}}
}

// envValue is awkward on purpose.
const envValue = "it's \"quoted\" $HOME `x` \\ ü\nsecond line"

func (s *suite) theShared(t *testing.T) *sandbox.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		// Not the case's context: the sandbox outlives it.
		sb, err := sandbox.Create(context.WithoutCancel(t.Context()), s.provider, s.spec(), sandbox.Options{Log: record()})
		if err != nil {
			t.Fatalf("creating the shared sandbox: %v", err)
		}
		s.shared = sb
	}
	return s.shared
}

// close ends the shared sandbox, unless a case failed in it.
func (s *suite) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		return
	}
	defer s.shared.Close()
	if !s.failed {
		_ = s.shared.Kill(context.Background()) // the cases of kill show that it works
	}
}

// record is an audit log that nobody reads.
func record() *audit.Log { return audit.New(io.Discard, audit.Options{}) }

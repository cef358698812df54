// Package soak makes up runs: scripts of how a model and a provider behave,
// well or badly, each derived from a seed, and the judge of what came of one.
// Its test plays thousands of them in simulated time and holds every one to
// the same properties.
package soak

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rein-sh/rein/agent"
	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/tool"
)

// Plan is one script. It is data: what is drawn from the seed while a run goes
// on is only the fate of connections.
type Plan struct {
	Seed uint64

	Limits    budget.Limits
	MaxOutput int
	Retries   int
	Price     *agent.Price
	OnDenial  agent.OnDenial

	Replies   []Reply // the last one repeats
	Provider  Provider
	Interrupt time.Duration // after which the user interrupts; 0: never
	Crashes   []int         // at which moment of its own each process is ended, and another resumes the run

	Inputs       map[string]string // of the workspace; nil: none
	Accept       []run.Check
	Protect      []string
	Artifacts    []string
	NoShell      bool
	NoTranscript bool
	KeepOutput   bool
	Output       bool // the work's files are kept in a directory, too

	Sessions tool.Sessions
	Tools    bool // those of Played.tools
	Approval *Approval

	Fallback      bool // there is another model
	FallbackPrice *agent.Price
	Context       agent.Context

	Changes []Change
	Fresh   bool
	Retry   int
}

// String is the plan for whoever looks into a failure.
func (p Plan) String() string {
	var b strings.Builder
	l := p.Limits
	fmt.Fprintf(&b, "seed %d: steps %d, calls %d, wall %s, tokens %d, cost %s, call %s/%s, ttl %s, output cap %d, retries %d, interrupt %s, crashes %v\n",
		p.Seed, l.MaxSteps, l.MaxToolCalls, l.MaxWallTime, l.MaxTokens, l.MaxCost, l.CallTimeout, l.MaxCallTimeout, l.TTL, p.MaxOutput, p.Retries, p.Interrupt, p.Crashes)
	fmt.Fprintf(&b, "sessions %+v, tools %t, fallback %t, context %+v\nprovider: %+v\n", p.Sessions, p.Tools, p.Fallback, p.Context, p.Provider)
	fmt.Fprintf(&b, "accept %+v, fresh %t, retry %d, changes %+v, output %t\n", p.Accept, p.Fresh, p.Retry, p.Changes, p.Output)
	if p.Approval != nil {
		fmt.Fprintf(&b, "approval: %+v\n", *p.Approval)
	}
	for i, r := range p.Replies {
		fmt.Fprintf(&b, "reply %d: %s\n", i+1, r)
	}
	return b.String()
}

// New makes the plan of a seed.
func New(seed uint64) Plan {
	g := dice{rand.New(rand.NewPCG(seed, 0x5eed))}
	p := Plan{
		Seed: seed, Limits: g.limits(), MaxOutput: pick(g, 0, 1024, 2000, 8192), Retries: pick(g, 0, -1, 1, 3),
		OnDenial: pick(g, agent.StopIfFailed, agent.GoOn), Provider: g.provider(),
		NoShell: g.one(20), NoTranscript: g.one(10), KeepOutput: g.one(5),
	}
	if !g.one(8) {
		p.Price = &agent.Price{Input: pick(g, 0.1, 3, 15), Output: pick(g, 0.4, 15, 75)}
	}
	if g.one(6) {
		p.Interrupt = pick(g, time.Nanosecond, 50*time.Millisecond, time.Second, time.Minute, time.Duration(g.IntN(int(2*p.Limits.MaxWallTime))))
	}
	mood := pick(g, good, good, mixed, mixed, hostile)
	for range 1 + g.IntN(14) {
		p.Replies = append(p.Replies, g.reply(mood))
	}
	if g.one(2) {
		p.Replies = append(p.Replies, Reply{What: "end", Text: "done", Stop: "end"})
	}
	if g.one(3) {
		p.Inputs = map[string]string{"a.txt": "one\ntwo\n", "src/main.sh": "echo hi\n", "keep.txt": "kept\n"}
		if g.one(2) {
			p.Protect = []string{"keep.txt"}
		}
	}
	for range pick(g, 0, 0, 1, 2) {
		p.Accept = append(p.Accept, run.Check{Name: "check", Shell: pick(g, "true", "false", "test -e f1", "sleep 400", "exit 3"),
			Timeout: pick(g, 0, time.Second, 10*time.Second)})
	}
	if g.one(4) {
		p.Artifacts = []string{"f1", "*.txt", "missing"}
	}
	if g.one(2) {
		for range pick(g, 1, 1, 1, 2, 3) {
			p.Crashes = append(p.Crashes, 1+g.IntN(pick(g, 20, 60, 200)))
		}
	}
	g.theme(&p)
	g.equipped(&p)
	g.asking(&p)
	g.fallback(&p)
	g.context(&p)
	g.live(&p)
	if len(p.Accept) > 0 {
		p.Fresh, p.Retry = p.Inputs != nil && !g.one(3), pick(g, 0, 1, 3)
	}
	p.Output = g.one(4)
	return p
}

// dice are the random choices of a plan.
type dice struct{ *rand.Rand }

// one is true once in n.
func (g dice) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g dice, of ...T) T { return of[g.IntN(len(of))] }

func (g dice) limits() budget.Limits {
	l := pick(g, budget.Quick(), budget.Standard(), budget.Long())
	l.MaxSteps = 1 + g.IntN(12)
	l.MaxToolCalls = 1 + g.IntN(16)
	if g.one(2) {
		l.MaxWallTime = pick(g, time.Second, 20*time.Second, 2*time.Minute, 10*time.Minute, 40*time.Minute, 3*time.Hour)
	}
	if g.one(3) {
		l.MaxTokens = pick[int64](g, 1, 900, 4_000, 20_000, 40_000, 100_000)
	}
	if g.one(4) {
		l.MaxCost = pick(g, budget.USD(1), budget.Dollars(0.005), budget.Dollars(0.05), budget.Dollars(0.5))
	}
	if g.one(4) {
		l.CallTimeout, l.MaxCallTimeout = time.Second, 3*time.Second
	}
	if g.one(4) {
		l.TTL = pick(g, 61*time.Second, 2*time.Minute, 5*time.Minute)
	}
	if g.one(4) {
		l.OutputBytes, l.OutputLines = 1024, 8
	}
	return l
}

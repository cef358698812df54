// Package leak is the many ways in which a program in a sandbox can try to get a
// byte to somebody outside, and the sink on the host that shows whether one
// arrived. [Run] works inside, where nothing is trusted; the sink works outside,
// and its word is the one that counts.
//
// Every way says what it tries and which refusals are right. A way that needs
// something this machine lacks (a program, an IPv6 address) is reported as not
// tried; it never passes for that.
package leak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Aim is where the ways lead. The host makes it and the program inside is told.
type Aim struct {
	// Token begins every message, so that the sink knows ours from others'.
	Token string `json:"token"`
	// Sinks are the sink's addresses on the host's own addresses, TCP and UDP;
	// none on a host without any.
	Sinks []netip.AddrPort `json:"sinks,omitempty"`
	// Loopback is the sink's port on the host's loopback addresses.
	Loopback uint16 `json:"loopback"`
	// Abstract is the name of the sink's abstract Unix socket, and Paths are
	// sockets of the host's, its keepers' among them.
	Abstract string   `json:"abstract"`
	Paths    []string `json:"paths,omitempty"`
	// Gateway are the gateway's addresses, Own the sandbox's, and Execd is the
	// port of the daemon inside.
	Gateway []netip.Addr `json:"gateway"`
	Own     []netip.Addr `json:"own"`
	Execd   int          `json:"execd"`
	// Allowed is what the sandbox's policy lets through; nil: nothing.
	Allowed *Allowed `json:"allowed,omitempty"`
	// Keys is set where the sandbox's requests are given a credential; then only
	// ways by which that or another leaves are tried.
	Keys *Keys `json:"keys,omitempty"`
	// Cage is set where the sandbox asks models: then only ways around what keeps
	// it to that are tried, and what is looked for inside.
	Cage *Cage `json:"cage,omitempty"`
	// Held is set for a process that has nothing to do but to have it in memory,
	// veiled, until its input ends.
	Held []byte `json:"held,omitempty"`
}

// Allowed is a server that the policy allows by name, which is the sink's too.
type Allowed struct {
	// HTTP and TLS are the name's ports, TCP the one that is not looked into.
	Name string `json:"name"`
	HTTP int    `json:"http"`
	TLS  int    `json:"tls"`
	TCP  int    `json:"tcp"`
	// Turned are names that are allowed too and resolve to what is not: where
	// each leads, and its name.
	Turned map[string]string `json:"turned,omitempty"`
}

// Outcome is how a way ended.
type Outcome string

// The outcomes. All but the last are refusals.
const (
	Reset       Outcome = "reset"          // TCP: refused, or closed before anything was answered
	Unreachable Outcome = "unreachable"    // an ICMP error came back
	NoName      Outcome = "no such name"   // no address was told
	Forbidden   Outcome = "forbidden"      // by the kernel of the sandbox: EPERM, EACCES
	Unsupported Outcome = "unsupported"    // the kernel of the sandbox has no such thing
	Absent      Outcome = "not there"      // no such socket, file or device
	Page        Outcome = "refusal page"   // HTTP: 403, or 401 of execd
	BadRequest  Outcome = "bad request"    // HTTP: 400, 405, 411, 417, 421, 431 or 505
	Silent      Outcome = "silence"        // nothing came back
	Failed      Outcome = "program failed" // a program said so; its words are in Seen
	Open        Outcome = "open"           // it answered
)

// Row is one way and what became of it.
type Row struct {
	Group    string `json:"group"`
	Name     string `json:"name"`
	Tried    string `json:"tried"`
	Expected string `json:"expected"`
	Seen     string `json:"seen"`
	Pass     bool   `json:"pass"`
	NotTried bool   `json:"not_tried,omitempty"`
}

// seen is what a way met.
type seen struct {
	outcome Outcome
	words   string
	missing bool // what it needs is not here
}

// way is one way out.
type way struct {
	group, name, tried string
	want               []Outcome
	try                func(ctx context.Context, p *probe) seen
	program            bool          // it is somebody else's
	patient            time.Duration // it may take so long; 0 is what any may
}

// by is a way that the probe tries itself.
func by(group, name, tried string, want []Outcome, try func(context.Context, *probe) seen) way {
	return way{group: group, name: name, tried: tried, want: want, try: try}
}

// probe is the program inside.
type probe struct {
	aim  Aim
	name string // of the way
}

// message is what a way sends: the sink recognises the token and reads the way.
func (p *probe) message() string { return p.aim.Token + " " + p.name }

const (
	atOnce         = 12               // ways tried at once
	patience       = 2 * time.Second  // for an answer
	longest        = 8 * time.Second  // for one way
	longestProgram = 20 * time.Second // for one that a program tries
)

// ways is everything there is to try with an aim.
func (a Aim) ways() []way {
	switch {
	case a.Cage != nil:
		return a.caged()
	case a.Keys != nil:
		return a.keyed()
	}
	// The fronts come first: a gateway tells only so many targets apart.
	ways := slices.Concat(a.fronts(), a.names(), a.web(), a.datagrams(), a.connections(), a.packets(), a.addresses(), a.spellings(), a.inside(), a.programs())
	if a.Allowed == nil {
		return ways
	}
	// Programs take the longest, and speak no protocol that is not among the rest.
	return slices.DeleteFunc(ways, func(w way) bool { return w.program })
}

// Run tries every way and writes a Row each, one JSON value a line, in the
// order of the list. The error is of writing, or the context's.
func Run(ctx context.Context, aim Aim, w io.Writer) error { return try(ctx, aim, aim.ways(), w) }

// Only is Run with the ways of these names.
func Only(ctx context.Context, aim Aim, names []string, w io.Writer) error {
	ways := slices.DeleteFunc(aim.ways(), func(w way) bool { return !slices.Contains(names, w.name) })
	return try(ctx, aim, ways, w)
}

func try(ctx context.Context, aim Aim, ways []way, w io.Writer) error {
	rows := make([]Row, len(ways))
	turn := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, way := range ways {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			rows[i] = way.run(ctx, aim)
		})
	}
	all.Wait()
	enc := json.NewEncoder(w)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (w way) run(ctx context.Context, aim Aim) Row {
	within := longest
	switch {
	case w.program:
		within = longestProgram
	case w.patient > 0:
		within = w.patient
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	row := Row{Group: w.group, Name: w.name, Tried: w.tried}
	var words []string
	for _, o := range w.want {
		words = append(words, string(o))
	}
	row.Expected = strings.Join(words, " or ")
	s := w.try(ctx, &probe{aim: aim, name: w.name})
	row.Seen = string(s.outcome)
	if s.words != "" {
		row.Seen = strings.TrimPrefix(row.Seen+": "+s.words, ": ")
	}
	row.NotTried = s.missing
	row.Pass = !s.missing && slices.Contains(w.want, s.outcome)
	return row
}

// Read reads what Run wrote.
func Read(r io.Reader) ([]Row, error) {
	var rows []Row
	dec := json.NewDecoder(r)
	for {
		var row Row
		switch err := dec.Decode(&row); {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return rows, fmt.Errorf("row %d: %w", len(rows)+1, err)
		}
		rows = append(rows, row)
	}
}

// Package script is a model that takes its decisions from a YAML file. It is
// for tests, demonstrations and trying rein without a key: it calls tools,
// uses what they returned in later steps, checks it, branches on it, and can
// fail in the ways real vendors fail.
//
// The format is described in docs/scripts.md. A script is finite and has no
// expressions: references, matching and branching are all it can do, so a
// request is always answered in time linear in its conversation.
//
// The position in a script is found by following the conversation from its
// beginning; nothing is remembered between requests except how often a fault
// has been served. One [Player] therefore serves any number of conversations at
// once.
package script

import (
	"errors"
	"time"

	"github.com/rein-sh/rein/model"
)

// MaxSize is the largest script Load accepts, in bytes.
const MaxSize = 1 << 20

// Script is a parsed, checked script. It is immutable.
type Script struct {
	name  string // as in the file, else from the file's name
	file  string // for messages
	final string
	steps []*step
}

type step struct{}

// Load parses data; file is used in messages. Errors are *SyntaxError and name
// the first fault found.
func Load(data []byte, file string) (*Script, error) {
	return nil, errors.New("script: not readable yet")
}

// Name is the script's name: "name" in the file, else the file's base name.
func (s *Script) Name() string { return s.name }

// Player answers requests from a script. Safe for concurrent use.
type Player struct{ script *Script }

// Play returns a player that has served no faults yet.
func (s *Script) Play() *Player { return &Player{script: s} }

// Turn is what a script decides for one request.
type Turn struct {
	Step  string // the step's name
	Reply *model.Reply
	Fault *Fault // what to do instead of, or while, sending Reply; nil for nothing
}

// Next decides the answer to req. A failed assertion, an impossible reference
// or a conversation that is not this script's is a *model.Error of
// KindInvalid whose Code is "script_failed".
func (p *Player) Next(req *model.Request) (*Turn, error) {
	return nil, errors.New("script: not playable yet")
}

// Model returns the script as a model in this process, with a player of its
// own. Its name is "script/" and the script's name.
func (s *Script) Model() model.Model { return nil }

// FaultKind says how a request goes wrong.
type FaultKind string

// Fault is one way a request goes wrong.
type Fault struct {
	Kind       FaultKind
	RetryAfter time.Duration // what the vendor asks for; 0 says nothing
	For        time.Duration // how long a stall lasts; 0 until the client gives up
	AtStart    bool          // before the first byte; else in the middle of the reply
}

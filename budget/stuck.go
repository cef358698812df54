package budget

import (
	"bytes"
	"crypto/sha256"
	"strconv"
)

// Loop is how calls and their results repeat.
type Loop string

// The loops.
const (
	// LoopIdentical: the same call with the same result.
	LoopIdentical Loop = "identical"
	// LoopEquivalent: the same but for spaces, the order of JSON, times and dates;
	// for calls that fail, also but for numbers that go up and down.
	LoopEquivalent Loop = "equivalent"
	// LoopAlternating: two calls in turn, each with the result it had before.
	LoopAlternating Loop = "alternating"
	// LoopCyclic: three to MaxPeriod calls in turn, each with the result it had
	// before.
	LoopCyclic Loop = "cyclic"
)

// MaxPeriod is the longest cycle of calls that is noticed.
const MaxPeriod = 6

// How often a loop is gone through before the model is told, and before the
// work is stopped. A cycle counts when it is complete.
var thresholds = map[Loop]struct{ nudge, halt int }{
	LoopIdentical:   {3, 5},
	LoopEquivalent:  {4, 8},
	LoopAlternating: {3, 4},
	LoopCyclic:      {3, 4},
}

// maxHalt is the largest number of calls after which any loop is halted.
const maxHalt = MaxPeriod * 4

// Finding is a loop that was noticed. The zero Finding is none.
type Finding struct {
	Loop   Loop
	Period int // calls of one turn
	Times  int // complete turns
	// Halt: the work is to be stopped; else the model is to be told.
	Halt bool
}

// Stuck notices when calls go round in circles: calls and results together, so
// that neither asking again for something that changes, nor doing something
// similar many times with other arguments is one. The zero Stuck is ready to
// use. It is not safe for concurrent use.
type Stuck struct {
	recent []trace // the newest last, at most maxHalt
	told   bool
}

// trace is one call with its result, as it was and without what changes by itself.
type trace struct {
	exact, loose [sha256.Size]byte
	numbers      []uint64 // of the result, where loose has them equal
}

// Call tells of a finished call: the tool, its arguments, whether it succeeded,
// and its result as the model saw it, without ids and durations. A Finding is
// returned until Told, and then again when it goes on until it is to be halted.
func (s *Stuck) Call(tool string, args []byte, ok bool, result []byte) Finding {
	args = canonical(args)
	normal := Normalize
	var counts []uint64
	if ok {
		normal = steady
	} else {
		counts = numbers(result)
	}
	if len(s.recent) == maxHalt {
		s.recent = append(s.recent[:0], s.recent[1:]...)
	}
	s.recent = append(s.recent, trace{
		exact: digest(tool, args, ok, result),
		loose: digest(tool, normal(args), ok, normal(result)), numbers: counts,
	})
	f := s.find()
	switch {
	case f.Loop == "":
		s.told = false
	case s.told && !f.Halt:
		return Finding{}
	case !s.told:
		f.Halt = false
	}
	return f
}

// Told says that the model was told of the loop it is in.
func (s *Stuck) Told() { s.told = true }

func (s *Stuck) find() Finding {
	exact := func(a, b trace) bool { return a.exact == b.exact }
	loose := func(a, b trace) bool { return a.loose == b.loose }
	var found Finding
	for _, k := range []struct {
		loop  Loop
		from  int
		to    int
		equal func(a, b trace) bool
	}{
		{LoopIdentical, 1, 1, exact}, {LoopEquivalent, 1, 1, loose}, {LoopAlternating, 2, 2, loose}, {LoopCyclic, 3, MaxPeriod, loose},
	} {
		limit := thresholds[k.loop]
		for period := k.from; period <= k.to; period++ {
			times := s.turns(period, k.equal)
			if times >= limit.nudge && s.moves(period, min(times, limit.halt)) {
				continue
			}
			f := Finding{Loop: k.loop, Period: period, Times: times, Halt: times >= limit.halt}
			if times >= limit.nudge && (found.Loop == "" || f.Halt && !found.Halt) {
				found = f
			}
		}
	}
	return found
}

// turns is how many complete turns of that many calls stand at the end.
func (s *Stuck) turns(period int, equal func(a, b trace) bool) int {
	same := 0
	for i := len(s.recent) - 1; i >= period && equal(s.recent[i], s.recent[i-period]); i-- {
		same++
	}
	return min(len(s.recent), same+period) / period
}

// moves reports whether a number in the results of the last turns, at least
// three, only grew or only fell: what is waited for comes nearer. Numbers that go
// up and down, as ids do, are no news.
func (s *Stuck) moves(period, times int) bool {
	last := s.recent[len(s.recent)-period*times:]
	for phase := range period {
		for n := range last[phase].numbers {
			up, down, moved := true, true, false
			for i := phase + period; i < len(last); i += period {
				before, now := last[i-period].numbers, last[i].numbers
				if n >= min(len(before), len(now)) {
					up, down = false, false
					break
				}
				up, down = up && now[n] >= before[n], down && now[n] <= before[n]
				moved = moved || now[n] != before[n]
			}
			if (up || down) && moved {
				return true
			}
		}
	}
	return false
}

// maxNumbers bounds how many numbers of a result are looked at.
const maxNumbers = 64

// numbers are the first of text that may count something: no times, dates,
// durations, addresses, parts of names, and none as long as a clock's seconds.
func numbers(text []byte) (all []uint64) {
	for i := 0; i < len(text) && len(all) < maxNumbers; {
		if !isDigit(text[i]) {
			i++
			continue
		}
		n, moves := clockwork(text[i:])
		digits := 0
		for digits < n && isDigit(text[i+digits]) {
			digits++
		}
		if !moves && digits < len("1700000000") && (i == 0 || !isLetter(text[i-1])) {
			v, _ := strconv.ParseUint(string(text[i:i+digits]), 10, 64) // it is short
			all = append(all, v)
		}
		i += max(n, 1)
	}
	return all
}

func digest(tool string, args []byte, ok bool, result []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(strconv.AppendQuote(nil, tool))
	h.Write(strconv.AppendInt(nil, int64(len(args)), 10))
	h.Write([]byte{0})
	h.Write(args)
	h.Write(strconv.AppendBool(nil, ok))
	h.Write(result)
	return [sha256.Size]byte(h.Sum(nil))
}

// steady returns text without what differs by itself between two runs of the
// same thing, and with all that may be news: times of day, dates, durations and
// addresses in memory are "#", spaces are one, and other numbers stay.
func steady(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		rest := text[i:]
		switch c := rest[0]; {
		case isDigit(c):
			n, moves := clockwork(rest)
			if i > 0 && isLetter(text[i-1]) { // a name, such as x86
				moves = false
			}
			if moves {
				out = append(out, '#')
			} else {
				out = append(out, rest[:n]...)
			}
			i += n
		case isBlank(c):
			i += blanks(rest)
			out = append(out, ' ')
		default:
			n := 1
			for n < len(rest) && !isDigit(rest[n]) && !isBlank(rest[n]) {
				n++
			}
			out = append(out, rest[:n]...)
			i += n
		}
	}
	return out
}

// clockwork is the length of the number that s begins with, and whether it is a
// time, a date, a duration or an address.
func clockwork(s []byte) (n int, moves bool) {
	if bytes.HasPrefix(s, []byte("0x")) {
		for n = 2; n < len(s) && (isDigit(s[n]) || 'a' <= s[n]|0x20 && s[n]|0x20 <= 'f'); n++ {
		}
		return n, n >= 2+6
	}
	digits := 0
	for digits < len(s) && isDigit(s[digits]) {
		digits++
	}
	pair := func(i int, sep byte) bool { // such as :07
		return i+2 < len(s) && s[i] == sep && isDigit(s[i+1]) && isDigit(s[i+2]) && (i+3 == len(s) || !isDigit(s[i+3]))
	}
	switch {
	case digits <= 2 && pair(digits, ':'), digits == 4 && pair(digits, '-') && pair(digits+3, '-'):
		for n = digits; n < len(s) && (isDigit(s[n]) || (s[n] == ':' || s[n] == '-' || s[n] == '.') && n+1 < len(s) && isDigit(s[n+1])); n++ {
		}
		return n, true
	}
	whole := number(s)
	plain := digits
	if plain < len(s) && s[plain] == '.' {
		for plain++; plain < len(s) && isDigit(s[plain]); plain++ {
		}
	}
	return whole, whole > plain && isLetter(s[whole-1])
}

package clue

// kind is what a word means in a log.
type kind uint8

const (
	plain    kind = iota
	severe        // states a failure
	cause         // says what was wrong
	compared      // one half of a comparison
	mild          // a level below failure
	quiet         // a level below that
	good          // states success
	exits         // a number after it is how something ended
	counted       // counts tests
	negation
	object // after "no": a failure
	located
)

// words are English, in lower case, because programs speak it when they fail.
var words = map[kind][]string{
	severe: {"error", "errors", "err", "errored", "fatal", "panic", "panicked", "fail", "failed", "fails", "failure", "failures", "failing", "exception", "exceptions",
		"crash", "crashed", "critical", "crit", "abort", "aborted", "segfault", "segmentation", "assert", "assertion", "traceback", "unhandled", "uncaught", "caused", "emerg", "severe"},
	cause: {"cannot", "couldn", "unable", "undefined", "unresolved", "undeclared", "unrecognized", "unrecognised", "unexpected", "unknown", "invalid", "illegal", "incompatible",
		"mismatch", "mismatched", "missing", "denied", "refused", "rejected", "conflict", "conflicting", "conflicts", "corrupt", "corrupted", "broken", "duplicate", "overflow",
		"underflow", "violation", "violates", "violated", "deadlock", "leaked", "leak", "timeout", "timed", "unsatisfied", "unsatisfiable", "unmet", "unsupported", "unreachable", "killed",
		"terminated", "dumped", "died", "wrong", "bad", "unterminated", "unclosed", "nonexistent", "ambiguous", "forbidden", "unauthorized", "raised", "threw", "thrown", "terminate",
		"redefinition", "redeclared", "malformed", "stopping", "incorrect", "inconsistent", "impossible", "unbound", "falsifiable", "falsified", "rolled", "reverting", "unbalanced", "exceeded",
		"disagree", "differs", "differ", "unequal", "regression", "violations"},
	compared: {"expected", "expects", "actual", "got", "want", "wanted", "received", "left", "right", "found", "expect", "obtained", "but"},
	mild:     {"warning", "warn", "warnings", "deprecated", "deprecation", "caution", "style", "advice"},
	quiet:    {"info", "debug", "trace", "verbose", "notice", "note", "hint", "help", "remark", "information", "fyi", "log"},
	good:     {"ok", "pass", "passed", "passes", "passing", "success", "successful", "successfully", "succeeded", "done"},
	exits:    {"exit", "exited", "status", "code", "returned", "signal", "rc", "exitcode", "errno"},
	counted:  {"tests", "test", "examples", "example", "assertions", "specs", "suites", "cases", "checks", "scenarios", "run", "ran", "summary", "problems", "issues", "steps", "expectations"},
	located:  {"line", "lines"},
	negation: {"no", "not", "without", "zero", "never", "nothing", "isn", "doesn", "don", "didn", "none"},
	object: {"such", "rule", "matching", "module", "member", "field", "method", "instance", "candidate", "candidates", "provider", "space", "route", "installation", "version", "match", "implementation",
		"equal", "exist", "exists", "defined", "declared", "recognized", "recognised", "satisfied", "available", "allowed", "permitted", "supported", "callable", "assignable", "resolve", "valid",
		"compatible", "be", "in", "have", "accept", "known", "bound"},
}

// The words by their keys: an open-addressed table, because it is asked for every
// word of every line. Most of it is empty, which taken alone says.
const tableBits = 12

type table struct {
	taken [1 << tableBits / 64]uint64 // a bit for each place
	kinds [1 << tableBits]kind
	keys  [1 << tableBits]uint64
}

var vocabulary = func() (t table) {
	var one text
	for k, list := range words {
		for _, w := range list {
			one.next([]byte(w))
			_, key, _ := one.spell(0)
			i := place(key)
			for t.kinds[i] != plain {
				i = (i + 1) % (1 << tableBits)
			}
			t.taken[i/64] |= 1 << (i % 64)
			t.kinds[i], t.keys[i] = k, key
		}
	}
	return t
}()

// place is where a word is in the table, if nothing else is there.
func place(key uint64) uint { return uint(key * prime >> (64 - tableBits)) }

func lookUp(key uint64) kind {
	t := &vocabulary
	for i := place(key); t.taken[i/64]>>(i%64)&1 != 0; i = (i + 1) % (1 << tableBits) {
		if t.keys[i] == key {
			return t.kinds[i]
		}
	}
	return plain
}

// hashOf is a hash of a word's last twelve letters, whatever their case, five bits
// each, and its length.
func hashOf(word []byte) uint32 {
	packed := uint64(0)
	for _, c := range word {
		packed = packed<<5 | uint64(c&31)
	}
	return uint32((packed<<4 ^ uint64(len(word))) * prime >> 32)
}

// Classes of bytes.
const (
	other = iota
	letter
	digit
	blank
	joins // what names and paths are made of besides letters and digits
	slash
	dot
	bang
	escape
	high
)

// What punctuation does: a statement follows it, whether one does stays as it
// was, a name begins after it.
const (
	opening = 1 << iota
	quoting
	beginning
)

var puncts = [256]uint8{':': opening, ']': opening, '|': opening, '*': opening, '>': opening, '!': opening, '=': opening | beginning, '[': opening | beginning,
	'"': quoting | beginning, '\'': quoting | beginning, '(': beginning, '<': beginning}

var classes = func() (c [256]uint8) {
	for b := range 256 {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z':
			c[b] = letter
		case '0' <= b && b <= '9':
			c[b] = digit
		case b == ' ', b == '\t', b == '\r':
			c[b] = blank
		case b == '_', b == '-', b == '\\', b == '@', b == '+':
			c[b] = joins
		case b == '/':
			c[b] = slash
		case b == '.':
			c[b] = dot
		case b == '!':
			c[b] = bang
		case b == 0x1b:
			c[b] = escape
		case b >= 0x80:
			c[b] = high
		}
	}
	return c
}()

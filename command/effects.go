package command

// Kind says what is known of what a command line changes.
type Kind string

// The kinds. The zero value is not one: Effects never returns it.
const (
	// ReadOnly: it is known to change nothing but what it prints, and may be run
	// a second time.
	ReadOnly Kind = "read_only"
	// Writes: it changes something, or something in it is known only at
	// execution.
	Writes Kind = "writes"
	// Unknown: nothing is known of it, which is no permission.
	Unknown Kind = "unknown"
)

// Effect is what is known, and why it is not read-only.
type Effect struct {
	Kind   Kind
	Reason string
}

// EffectsOf judges a command line that has not been parsed yet. What cannot be
// parsed is Unknown.
func EffectsOf(src string) Effect {
	s, err := Parse(src)
	if err != nil {
		return Effect{Unknown, err.Error()}
	}
	return s.Effects()
}

// Effects judges the whole command line: the worst of its simple commands.
func (s *Script) Effects() Effect {
	worst := Effect{Kind: ReadOnly}
	for i := range s.simple {
		switch e := s.simple[i].effects(); {
		case e.Kind == Writes:
			return e
		case e.Kind == Unknown && worst.Kind == ReadOnly:
			worst = e
		}
	}
	return worst
}

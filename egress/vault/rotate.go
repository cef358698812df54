package vault

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rein-sh/rein/secret"
)

// RotateError says why the placeholder of a secret does not stand for a new
// value. It holds neither.
type RotateError struct {
	Name   string // of the secret
	Reason string
	Hint   string
}

func (e *RotateError) Error() string { return e.Name + ": " + e.Reason }

// Rotate puts another value behind the placeholder of a secret, for the requests
// that come from then on. Those under way keep the one they have, and both are
// covered in answers. A value that the placeholder does not look like is a
// *RotateError, and changes nothing. The same value again is none.
func (v *Vault) Rotate(name string, value secret.Value) error {
	if v == nil {
		return &RotateError{Name: name, Reason: "the sandbox was made without secrets", Hint: "make another with it"}
	}
	text := value.Reveal()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range v.secrets {
		if h.name != name {
			continue
		}
		if h.value == "" {
			return &RotateError{Name: name, Reason: "the secret is no longer there"}
		}
		if why := h.shape.differs(text); why != "" {
			return &RotateError{Name: name, Reason: "the new value " + why, Hint: "a key of another kind needs a sandbox of its own"}
		}
		if !v.known(name, text) { // before any request has it
			return &RotateError{Name: name, Reason: "the new value is too short to be masked"}
		}
		h.value = text
		return nil
	}
	return &RotateError{Name: name, Reason: "the sandbox has no such secret", Hint: "its secrets are those of its target when it was made"}
}

// differs says what keeps a new value from standing behind a placeholder of the
// shape, "" where nothing does. Programs judge a key by its length and beginning,
// and by whether it is hexadecimal; where its letters and digits are is chance.
func (s *shape) differs(text string) string {
	switch {
	case text == "":
		return "is empty"
	case len(text) != len(s.text):
		return fmt.Sprintf("has %d bytes, and its placeholder %d", len(text), len(s.text))
	case text[:s.begin] != s.text[:s.begin]:
		return fmt.Sprintf("does not begin with %s, as its placeholder does", s.text[:s.begin])
	}
	if why := unsendable(text); why != "" {
		return why
	}
	switch other, err := shapeOf(text); {
	case err != nil:
		return "cannot be one: " + err.Error()
	case other.begin != s.begin:
		return "is another kind of key than its placeholder, by its beginning"
	case s.hex != 0 && !s.alike(other):
		return "is not hexadecimal as its placeholder is"
	}
	return ""
}

// alike reports whether another shape of the same length is hexadecimal, too, in
// the same groups. Of digits alone it is not known whether they are.
func (s *shape) alike(o *shape) bool {
	return slices.Equal(s.free, o.free) && (o.hex == s.hex || o.hex == 0 && !strings.ContainsAny(o.text, "aA"))
}

// unsendable says why requests cannot carry a value, "" where they can.
func unsendable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "has a control character"
	}
	return ""
}

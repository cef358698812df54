package history_test

import (
	"testing"

	"github.com/rein-sh/rein/history"
)

// A new result that is long, and shortened in any case, is no reason to take
// away those before it, and with them the bytes that its own share is of.
func TestOneLongResultReducesNoOthers(t *testing.T) {
	s := newScript(t, history.Options{})
	for range 6 {
		s.step(false, 3000)
		s.request()
	}
	s.step(false, 16<<10)
	messages := s.request()
	for _, m := range messages[:len(messages)-1] {
		for _, r := range m.Results {
			if isReference(r.Content) {
				t.Errorf("reduced: %s", r.Content)
			}
		}
	}
	if n := len(messages[len(messages)-1].Results[0].Content); n < 5<<10 {
		t.Errorf("%d bytes of it are shown", n)
	}
}

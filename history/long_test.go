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
	if n := s.h.Reductions(); n != 0 {
		t.Errorf("%d reductions", n)
	}
	if n := len(messages[len(messages)-1].Results[0].Content); n < 5<<10 {
		t.Errorf("%d bytes of it are shown", n)
	}
}

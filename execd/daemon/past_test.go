package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/internal/sockdiag"
)

// Who made a connection is told by when it was made, whatever its warden runs
// by now: a warden is used again, and so is its pid.
func TestMakerOfConnection(t *testing.T) {
	m := &OS{live: map[*warden]bool{}}
	w := &warden{os: m, pid: 7}
	m.live[w] = true
	run := func(id string, began int64) *osProcess {
		p := &osProcess{id: id, began: began}
		w.cur = p
		return p
	}
	run("first", 10)
	if got := m.maker(sockdiag.Maker{PID: 7, At: 20}); got != "first" {
		t.Errorf("while it runs: %q", got)
	}
	if w.setFree() == nil {
		t.Fatal("it ran nothing")
	}
	m.past.runs[0].end = 100
	run("second", 200)
	for at, want := range map[int64]string{5: "", 10: "first", 50: "first", 100: "first", 150: "", 200: "second", 1 << 60: "second"} {
		if got := m.maker(sockdiag.Maker{PID: 7, At: at}); got != want {
			t.Errorf("at %d: %q, want %q", at, got, want)
		}
	}
	for _, pid := range []int{0, 8} {
		if got := m.maker(sockdiag.Maker{PID: pid, At: 20}); got != "" {
			t.Errorf("of process %d: %q", pid, got)
		}
	}
	delete(m.live, w)
	if got := m.maker(sockdiag.Maker{PID: 7, At: 50}); got != "first" {
		t.Errorf("after its warden: %q", got)
	}
	for i := range keptPast {
		m.past.add(wardenRun{9, fmt.Sprint(i), int64(i), int64(i)})
	}
	if got := m.past.at(7, 50); got != "" || len(m.past.runs) != keptPast || m.past.at(9, 0) != "0" {
		t.Errorf("%d are kept, %q among them", len(m.past.runs), got)
	}
}

// table is an endless one of sockets.
type table struct {
	lines int
	after func()
}

func (t *table) Read(b []byte) (int, error) {
	if t.lines++; t.lines == 100 {
		t.after()
	}
	return copy(b, "   1: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1\n"), nil
}

// The table of sockets is read for as long as somebody waits.
func TestSocketTableEndsWithWhoAsks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	links := map[string]bool{}
	if err := socketTable(ctx, &table{after: cancel}, 80, links); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(links) != 1 || !links["socket:[77]"] {
		t.Errorf("found %v", links)
	}
	clear(links)
	if err := socketTable(t.Context(), strings.NewReader("  sl  local_address\n   1: 0100007F:0050 1\n"), 80, links); err != nil || len(links) != 0 {
		t.Errorf("of a table that is cut: %v %v", links, err)
	}
}

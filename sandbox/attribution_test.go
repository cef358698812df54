package sandbox

import (
	"slices"
	"testing"
	"time"
)

// TestChargeByTime checks who is told of an attempt that no port tells apart:
// whoever ran then, and who waits for no result of its own not alone.
func TestChargeByTime(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	ran := func() *spans {
		s := &spans{}
		s.begin("server", at(0))
		s.leave("server")
		s.begin("early", at(1))
		s.finish("early", at(4))
		s.begin("a", at(10))
		s.begin("b", at(20))
		return s
	}
	for _, c := range []struct {
		name   string
		record NetworkRecord
		reader string
		mine   bool
		how    string
		calls  []string
	}{
		{"while both run", NetworkRecord{Time: at(21)}, "b", true, ByWindow, []string{"server", "a", "b"}},
		{"before b began", NetworkRecord{Time: at(15)}, "a", true, ByWindow, []string{"server", "a"}},
		{"before a began, told at once", NetworkRecord{Time: at(5)}, "a", true, ByWindow, []string{"server"}},
		{"of one that has ended", NetworkRecord{Time: at(3)}, "b", true, ByWindow, []string{"server", "early"}},
		{"by port, one that has ended", NetworkRecord{Time: at(3), Attribution: Attribution{CallID: "early"}}, "b", true, ByPort, nil},
		{"folded until b began", NetworkRecord{Time: at(5), Until: at(20)}, "b", true, ByWindow, []string{"server", "a", "b"}},
		{"before anything began", NetworkRecord{Time: at(-5)}, "b", true, "", nil},
		{"by port, its own", NetworkRecord{Time: at(21), Attribution: Attribution{CallID: "b"}}, "b", true, ByPort, nil},
		{"by port, another's who is told itself", NetworkRecord{Time: at(21), Attribution: Attribution{CallID: "a"}}, "b", false, ByPort, nil},
		{"by port, one in the background", NetworkRecord{Time: at(21), Attribution: Attribution{CallID: "server"}}, "b", true, ByPort, nil},
		{"by port, one nobody knows", NetworkRecord{Time: at(21), Attribution: Attribution{CallID: "else"}}, "b", true, ByPort, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.record
			if mine := ran().charge(&r, c.reader); mine != c.mine || r.How != c.how || !slices.Equal(r.Calls, c.calls) {
				t.Errorf("charged to %s: %v, %q %v; want %v, %q %v", c.reader, mine, r.How, r.Calls, c.mine, c.how, c.calls)
			}
		})
	}
	s := &spans{} // without one in the background
	s.begin("a", at(10))
	s.begin("b", at(20))
	r := NetworkRecord{Time: at(15)}
	if s.charge(&r, "b") {
		t.Errorf("b is charged with what a tried before b began: %+v", r)
	}
	if !(Attribution{Calls: []string{"a"}}).Of("a") || (Attribution{CallID: "a"}).Of("b") || !(Attribution{}).Of("b") {
		t.Error("Of says otherwise")
	}
}

func TestSpansAreForgotten(t *testing.T) {
	s := &spans{}
	now := time.Unix(100, 0)
	for i := range 100 {
		id := string(rune('a' + i%26))
		s.begin(id, now)
		now = now.Add(time.Second)
		s.finish(id, now)
		now = now.Add(time.Second)
	}
	if len(*s) != keptSpans {
		t.Errorf("%d commands are remembered though none runs", len(*s))
	}
}

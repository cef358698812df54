package budget_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/budget"
)

// turn is a call with its result.
type turn struct {
	tool, args, result string
	ok                 bool
}

func ran(command, result string) turn {
	return turn{"run_command", fmt.Sprintf(`{"command":%q}`, command), result, true}
}

func failed(command, result string) turn {
	t := ran(command, result)
	t.ok = false
	return t
}

// times repeats what f makes of 0, 1, 2 …
func times(n int, f func(i int) []turn) (all []turn) {
	for i := range n {
		all = append(all, f(i)...)
	}
	return all
}

func repeat(n int, turns ...turn) []turn { return times(n, func(int) []turn { return turns }) }

func TestStuck(t *testing.T) {
	for _, c := range []struct {
		name         string
		turns        []turn
		nudged, halt int // after how many calls; 0: never
		loop         budget.Loop
	}{
		{"identical", repeat(9, ran("ls", "a\n")), 3, 5, budget.LoopIdentical},
		{"identical failures", repeat(9, failed("make", "error: x\n")), 3, 5, budget.LoopIdentical},
		{"another order of the arguments", times(9, func(i int) []turn {
			return []turn{{"read_file", []string{`{"path":"f","limit":10}`, `{ "limit": 10, "path": "f" }`}[i%2], "text", true}}
		}), 3, 5, budget.LoopIdentical},
		{"other spaces", times(12, func(i int) []turn { return []turn{ran("ls "+strings.Repeat(" ", i)+"-l", "a\n")} }), 4, 8, budget.LoopEquivalent},
		{"times and dates", times(12, func(i int) []turn {
			return []turn{ran("make test", fmt.Sprintf("2026-11-30 04:%02d:07 FAIL 0.%03ds at 0xc0000%04x\n", i, i, i))}
		}), 4, 8, budget.LoopEquivalent},
		{"failures with other numbers", times(12, func(i int) []turn {
			return []turn{failed(fmt.Sprintf("timeout %d make", i), fmt.Sprintf("make: *** [%d] Error 2\n", i*7919%1000))}
		}), 4, 8, budget.LoopEquivalent},
		{"failures at other times", times(12, func(i int) []turn {
			return []turn{failed("./x", fmt.Sprintf("[%d] 2026-11-30 04:%02d:07 lost after %ds at 0xc0000%04x\n", 1796000000+i, i, i, i))}
		}), 4, 8, budget.LoopEquivalent},
		{"failures that came further, and no more", times(20, func(i int) []turn {
			return []turn{failed("./ready", fmt.Sprintf("%d of 10 ready\n", min(i, 5)))}
		}), 8, 10, budget.LoopIdentical},
		{"alternating", repeat(6, ran("cat f", "1"), failed("make", "error")), 6, 8, budget.LoopAlternating},
		{"three in turn", repeat(6, ran("cat f", "1"), failed("make", "error"), ran("ls", "f")), 9, 12, budget.LoopCyclic},
		{"six in turn", repeat(6, times(6, func(i int) []turn { return []turn{ran(strings.Repeat("x", i+1), "y")} })...), 18, 24, budget.LoopCyclic},
		{"six in turn, two of them alike", repeat(6, ran("a", "1"), ran("a", "1"), ran("b", "1"), ran("a", "1"), ran("c", "1"), ran("d", "1")), 18, 24, budget.LoopCyclic},
		{"after other work", append(times(30, func(i int) []turn { return []turn{ran(strings.Repeat("y", i+1), "y")} }), repeat(9, ran("ls", "a\n"))...), 33, 35, budget.LoopIdentical},

		{name: "polling that sees another number", turns: times(40, func(i int) []turn { return []turn{ran("cat progress", fmt.Sprintf("%d of 40\n", i))} })},
		{name: "polling that sees more output", turns: times(40, func(i int) []turn { return []turn{ran("tail log", strings.Repeat("line\n", i))} })},
		{name: "polling that fails otherwise each time", turns: times(40, func(i int) []turn { return []turn{failed("curl x", strings.Repeat("retry ", i))} })},
		{name: "failing until all are ready", turns: times(40, func(i int) []turn { return []turn{failed("./ready", fmt.Sprintf("%d of 40 ready\n", i))} })},
		{name: "failing while some are left", turns: times(40, func(i int) []turn { return []turn{failed("./ready", fmt.Sprintf("%d pods left\n", 40-i))} })},
		{name: "slowly", turns: times(40, func(i int) []turn { return []turn{failed("./ready", fmt.Sprintf("%d of 40 ready\n", i/2))} })},
		{name: "waiting between", turns: times(40, func(i int) []turn {
			return []turn{ran("sleep 10", ""), failed("./ready", fmt.Sprintf("12:%02d:00 %d %% done\n", i, i))}
		})},
		{name: "many similar files", turns: times(40, func(i int) []turn {
			return []turn{{"write_file", fmt.Sprintf(`{"path":"f%d","content":"%d"}`, i, i), fmt.Sprintf("f%d 1", i), true}}
		})},
		{name: "many similar commands", turns: times(40, func(i int) []turn { return []turn{ran(fmt.Sprintf("mkdir d%d", i), "")} })},
		{name: "pages of a file", turns: times(40, func(i int) []turn {
			return []turn{{"read_file", fmt.Sprintf(`{"path":"f","offset":%d}`, i*100), fmt.Sprintf("text of %d", i), true}}
		})},
		{name: "edit and test", turns: times(20, func(i int) []turn {
			return []turn{{"write_file", fmt.Sprintf(`{"path":"f","content":"%s"}`, strings.Repeat("z", i)), "f", true}, failed("make", "error: x\n")}
		})},
		{name: "twice", turns: repeat(2, ran("ls", "a\n"), ran("ls", "a\n"), ran("pwd", "/\n"))},
		{name: "the same with progress between", turns: times(30, func(i int) []turn {
			return []turn{ran("make", "ok"), ran("git log", strings.Repeat("commit\n", i))}
		})},
	} {
		var s budget.Stuck
		nudged, halt := 0, 0
		for i, turn := range c.turns {
			f := s.Call(turn.tool, []byte(turn.args), turn.ok, []byte(turn.result))
			switch {
			case f.Loop == "":
				continue
			case f.Loop != c.loop && c.loop != "":
				t.Errorf("%s: call %d: %+v, want %s", c.name, i+1, f, c.loop)
			case f.Halt && nudged == 0:
				t.Errorf("%s: halted before the model was told", c.name)
			}
			if f.Halt {
				halt = i + 1
				break
			}
			if nudged != 0 {
				t.Errorf("%s: told twice, after %d and %d", c.name, nudged, i+1)
			}
			nudged = i + 1
			s.Told()
		}
		if nudged != c.nudged || halt != c.halt {
			t.Errorf("%s: told after %d, halted after %d; want %d, %d", c.name, nudged, halt, c.nudged, c.halt)
		}
	}
}

// A model that was told and does something else is told anew the next time.
func TestStuckIsForgiven(t *testing.T) {
	var s budget.Stuck
	call := func(turn turn) budget.Finding {
		return s.Call(turn.tool, []byte(turn.args), turn.ok, []byte(turn.result))
	}
	for round := range 3 {
		for i := range 3 {
			if f := call(ran("ls", "a")); (f.Loop != "") != (i == 2) || f.Halt {
				t.Fatalf("round %d, call %d: %+v", round, i, f)
			}
		}
		s.Told()
		if f := call(ran("pwd", strings.Repeat("/", round+1))); f.Loop != "" {
			t.Fatalf("round %d: %+v", round, f)
		}
	}
}

// Calls of one reply are not halted before the model could be told.
func TestStuckInOneReply(t *testing.T) {
	var s budget.Stuck
	for i := range 20 {
		if f := s.Call("t", nil, true, nil); f.Halt || (f.Loop != "") != (i >= 2) {
			t.Fatalf("call %d: %+v", i+1, f)
		}
	}
	s.Told()
	if f := s.Call("t", nil, true, nil); !f.Halt {
		t.Errorf("%+v", f)
	}
}

func FuzzStuck(f *testing.F) {
	f.Add("run_command", []byte(`{"command":"ls"}`), true, []byte("2026-11-30 04:18:39 0x7fff12345678 1m3s 12 of 40\n"))
	f.Add("", []byte("{"), false, []byte("0x 1: 1:2 12:34:56.789 1234-56-78 µs 3µs"))
	f.Fuzz(func(t *testing.T, tool string, args []byte, ok bool, result []byte) {
		var s budget.Stuck
		for i := range 5 {
			found := s.Call(tool, args, ok, result)
			if want := map[int]budget.Loop{2: budget.LoopIdentical, 4: budget.LoopIdentical}[i]; found.Loop != want || found.Halt != (i == 4) {
				t.Fatalf("call %d: %+v", i+1, found)
			}
			if found.Loop != "" {
				s.Told()
			}
		}
	})
}

func BenchmarkStuck(b *testing.B) {
	var s budget.Stuck
	result := []byte(strings.Repeat("2026-11-30 04:18:39 line 12 of 40 took 3.2s\n", 24))
	b.SetBytes(int64(len(result)))
	for b.Loop() {
		s.Call("run_command", []byte(`{"command":"make test"}`), true, result)
	}
}

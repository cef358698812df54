package tool_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// Of many records a result has each target before any of them again, and what was
// refused first; how many are left out is said.
func TestFewerRecords(t *testing.T) {
	t.Parallel()
	records := []sandbox.NetworkRecord{{Seq: 1, Name: "a", Verdict: "allow"}, {Seq: 2, Name: "a", Verdict: "allow"}, {Seq: 3, Name: "b", Verdict: "deny"},
		{Seq: 4, Name: "b", Verdict: "deny"}, {Seq: 5, Address: "192.0.2.1", Port: 443, Verdict: "deny"}, {Seq: 6, Name: "b", Port: 22, Verdict: "deny"}}
	for most, want := range map[int]string{6: "1 2 3 4 5 6", 5: "1 3 4 5 6", 4: "1 3 5 6", 3: "3 5 6", 2: "3 5", 1: "3", 0: ""} {
		r := tool.Result{Network: records}.FewerRecords(most)
		var got []string
		for _, n := range r.Network {
			got = append(got, fmt.Sprint(n.Seq))
		}
		if strings.Join(got, " ") != want || r.NetworkLeft != 6-len(got) {
			t.Errorf("%d: %v, and %d more", most, got, r.NetworkLeft)
		}
		if again := r.FewerRecords(1); len(again.Network)+again.NetworkLeft != 6 {
			t.Errorf("%d, then 1: %d and %d more", most, len(again.Network), again.NetworkLeft)
		}
	}
	if b, err := json.Marshal(tool.Result{Network: records[:1]}.FewerRecords(tool.MaxNetwork)); err != nil || strings.Contains(string(b), "network_left") {
		t.Errorf("%s, %v", b, err)
	}
}

package local

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/egress"
	"os"
)

// TestNetworkLogIsFull checks that the network is closed once, that the record
// says so, and that what comes yet is in it, too.
func TestNetworkLogIsFull(t *testing.T) {
	dir := t.TempDir()
	n, err := newNetworkLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	closed := 0
	n.full = func() { closed++ }
	n.left = 2000
	attempt := egress.Attempt{Time: time.Unix(1, 0), Count: 1, Proto: "tcp", Name: "a.test", Port: 443, Verdict: "deny", Reason: strings.Repeat("x", 300)}
	for i := range 10 {
		n.record(attempt)
		if i == 1 && closed != 0 {
			t.Fatal("closed before it was full")
		}
	}
	if closed != 1 {
		t.Errorf("closed %d times", closed)
	}
	log, err := n.since(0)
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, r := range log.Records {
		if r.Rule == "limit:records" && r.Verdict == "deny" && strings.Contains(r.Reason, "nothing leaves") {
			said++
		}
	}
	if said != 1 || len(log.Records) != 11 {
		t.Errorf("%d records, of which %d say that it is full", len(log.Records), said)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, networkFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if v := audit.Verify(f, ""); !v.OK() {
		t.Errorf("the chain: %+v", v)
	}
}

// What cannot be recorded must not happen, either.
func TestNetworkLogCannotWrite(t *testing.T) {
	n, err := newNetworkLog(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	closed := 0
	n.full = func() { closed++ }
	if err := n.log.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n.record(egress.Attempt{Time: time.Unix(1, 0), Count: 1, Proto: "tcp", Verdict: "allow"})
	}
	if _, err := n.since(0); err == nil || closed != 1 {
		t.Errorf("closed %d times; %v", closed, err)
	}
}

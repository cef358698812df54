package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

// watched is a provider that keeps a record of the network.
type watched struct {
	sandbox.Provider
	log sandbox.NetworkLog
}

func (w watched) NetworkRecords(_ context.Context, _ string, after uint64) (sandbox.NetworkLog, error) {
	log := w.log
	log.Records = slices.DeleteFunc(slices.Clone(log.Records), func(r sandbox.NetworkRecord) bool { return r.Seq <= after })
	return log, nil
}

// The copy of the network's record is masked, and its chain holds all the same.
func TestNetworkCopy(t *testing.T) {
	t.Parallel()
	const key = "hunter2hunter2"
	head := strings.Repeat("ab", 32)
	record := func(seq uint64, name string) sandbox.NetworkRecord {
		return sandbox.NetworkRecord{Seq: seq, Count: 1, Proto: "dns", Name: name, Verdict: "deny", Reason: "no rule allows it"}
	}
	for name, c := range map[string]struct {
		log     sandbox.NetworkLog
		missing uint64
	}{
		"nothing tried": {sandbox.NetworkLog{}, 0},
		"a secret":      {sandbox.NetworkLog{Last: 2, Head: head, Records: []sandbox.NetworkRecord{record(1, "a.example"), record(2, key+".example")}}, 0},
		"not all kept":  {sandbox.NetworkLog{Last: 9, Head: head, Records: []sandbox.NetworkRecord{record(8, "a.example"), record(9, "b.example")}}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			o.Provider = watched{o.Provider, c.log}
			o.Masker = secret.NewMasker(secret.New("key", key))
			rep := do(t, o, func(context.Context, *run.Session) (run.Outcome, error) { return done("") })
			data, err := os.ReadFile(filepath.Join(rep.Dir, "network.jsonl"))
			if err != nil || bytes.Contains(data, []byte(key)) {
				t.Errorf("%v: %s", err, data)
			}
			if v := audit.Verify(bytes.NewReader(data), rep.NetworkHead); v.State != audit.Intact || v.Records != uint64(len(c.log.Records))+1 {
				t.Errorf("%+v", v)
			}
			var first *run.NetworkCopy
			for rec, err := range audit.Records(bytes.NewReader(data)) {
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = &run.NetworkCopy{}
					err = json.Unmarshal(rec.Data, first)
				} else {
					err = json.Unmarshal(rec.Data, &sandbox.NetworkRecord{})
				}
				if err != nil {
					t.Error(err)
				}
			}
			if first.Head != c.log.Head || first.Last != c.log.Last || first.Records != len(c.log.Records) || first.Missing != c.missing {
				t.Errorf("says that it is a copy of %+v", first)
			}
			if warned := slices.ContainsFunc(rep.Warnings, func(w string) bool { return strings.Contains(w, "oldest records") }); warned != (c.missing > 0) {
				t.Errorf("warnings: %q", rep.Warnings)
			}
			anchored(t, rep)
		})
	}
}

// anchored checks that the audit log has the copy's head.
func anchored(t *testing.T, rep *run.Report) {
	t.Helper()
	var last run.NetworkEnd
	kinds(t, rep.Dir, audit.KindNetwork, &last)
	if last.Copy.String() != rep.NetworkHead {
		t.Errorf("the audit log has %+v, not %s", last, rep.NetworkHead)
	}
}

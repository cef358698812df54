package soak

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/rein-sh/rein/audit"
)

// output wants in the output directory what the record has brought there, and
// nothing else. What a process that was ended had in hand is not looked at.
func (j *judge) output() {
	if j.Output == "" || j.Crashed {
		return
	}
	want := map[string]string{}
	for _, r := range j.records {
		var pass struct {
			Written []struct{ Path, SHA256 string }
			Removed []string
		}
		if r.Kind != audit.KindOutput {
			continue
		}
		if err := json.Unmarshal(r.Data, &pass); err != nil {
			j.fault("record %d: %v", r.Seq, err)
		}
		for _, f := range pass.Written {
			want[f.Path] = f.SHA256
		}
		for _, name := range pass.Removed {
			delete(want, name)
		}
	}
	o := j.Report.Output
	if o == nil {
		j.check(len(want) == 0, "%d files were brought out, and the report has no output", len(want))
		return
	}
	there := 0
	err := filepath.WalkDir(j.Output, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		there++
		data, err := os.ReadFile(name)
		rel, relErr := filepath.Rel(j.Output, name)
		sum := sha256.Sum256(data)
		j.check(relErr == nil && want[rel] == hex.EncodeToString(sum[:]), "the output has %s, and not by the record", rel)
		return err
	})
	j.check(err == nil && there == len(want) && there == o.Files, "the output has %d files, %d by the record, and %d by the report: %v", there, len(want), o.Files, err)
}

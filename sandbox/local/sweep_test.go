package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a process began and was killed before it said whose it is goes too, and
// what another is making at this moment stays.
func TestSweepOfWhatWasNeverFinished(t *testing.T) {
	p, err := New(Options{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(name string, age time.Duration) (dir, id string) {
		t.Helper()
		dir, id = filepath.Join(p.liveDir(), "new-"+name), p.idsPath(len(name)*idRange)
		for _, d := range []string{dir, filepath.Dir(id)} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(id, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		for _, path := range []string{dir, id} {
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
		return dir, id
	}
	oldDir, oldID := begin("old", 2*makingTime)
	newDir, newID := begin("young", 0)
	if _, err := p.Sweep(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{oldDir: false, oldID: false, newDir: true, newID: true} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: stays %v, want %v", path, err == nil, stays)
		}
	}
}

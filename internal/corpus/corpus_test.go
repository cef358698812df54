package corpus_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rein-sh/rein/internal/corpus"
)

// A decisive line counts where it stands, whole, and nowhere else.
func TestKept(t *testing.T) {
	l := corpus.Log{Text: []byte("a\nerror\nb\nc\n\x1b[31merror\x1b[0m\r\nd\n"), Decisive: []int{2, 5}}
	for _, c := range []struct {
		preview string
		want    int
	}{
		{"a\nerror\nb\nc\nerror\nd\n", 2},
		{"a\nerror\n[... 4 bytes, 2 lines left out, from line 3 ...]\nerror\nd\n", 2},
		{"[... 12 bytes, 4 lines left out, from line 1 ...]\n\x1b[31merror\x1b[0m\nd\n", 1},
		{"a\nerror\n[... 20 bytes, 4 lines left out, from line 3 ...]\n", 1},
		{"a\nerr\n[... 2 bytes left out, from line 2 ...]\nb\nc\nerror\nd\n", 1},
		{"a\n[... 12 bytes, 3 lines left out, from line 2 ...]\nd\nerror\n", 0},
		{"error\nerror\n[... 12 bytes, 4 lines left out, from line 3 ...]\n", 1},
		{"", 0},
	} {
		if got := l.Kept(c.preview); got != c.want {
			t.Errorf("%q shows %d, want %d", c.preview, got, c.want)
		}
	}
	if got := l.Ends(8, 100); got != 1 {
		t.Errorf("the first 8 bytes hold %d, want 1", got)
	}
	if got := l.Ends(22, 20); got != 1 {
		t.Errorf("4 bytes of the beginning and 18 of the end hold %d, want 1", got)
	}
}

// A log that is not there, or lacks a line, is an error that names it.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := corpus.Read(dir); err == nil {
		t.Error("an empty directory is no corpus")
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write([]byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.json", `{"name": "a", "decisive": [2]}`)
	if _, err := corpus.Read(dir); err == nil || !strings.Contains(err.Error(), "a.log.gz") {
		t.Errorf("the log is missing: %v", err)
	}
	write("a.log.gz", z.String())
	logs, err := corpus.Read(dir)
	if err != nil || len(logs) != 1 || logs[0].Name != "a" || string(logs[0].Text) != "one\ntwo\n" {
		t.Errorf("%+v, %v", logs, err)
	}
	write("a.json", `{"name": "a", "decisive": [9]}`)
	if _, err := corpus.Read(dir); err == nil || !strings.Contains(err.Error(), "no line 9") {
		t.Errorf("a line that is not there: %v", err)
	}
}

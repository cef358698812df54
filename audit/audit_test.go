package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/secret"
)

// clock ticks one second a call.
func clock() func() time.Time {
	var mu sync.Mutex
	now := time.Date(2026, 11, 29, 12, 0, 0, 123456789, time.FixedZone("elsewhere", 3600))
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// sample is a log of n records.
func sample(t testing.TB, n int) ([]byte, audit.Head) {
	t.Helper()
	var b bytes.Buffer
	l := audit.New(&b, audit.Options{Now: clock()})
	for i := range n {
		mustAppend(t, l, audit.Entry{
			Kind: audit.KindCallIntent, RunID: "01RUN", SandboxID: "sb-1", CallID: fmt.Sprint("c", i),
			Data: map[string]any{"command": "printf 'é<&>\u2028'", "n": i},
		})
	}
	return b.Bytes(), l.Head()
}

func mustAppend(t testing.TB, l *audit.Log, e audit.Entry) audit.Record {
	t.Helper()
	r, err := l.Append(e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A line is what any JSON encoder that does not escape for HTML writes of the
// record, whatever its ids are.
func TestFormatOfOddIDs(t *testing.T) {
	for _, id := range []string{"", "plain-1", "<&>", `a "quoted" \ one`, "é\u2028\x7f", "not \xff UTF-8", "tab\tand\nline"} {
		for _, data := range []any{nil, map[string]any{"text": id, "n": 1.5}, json.RawMessage(` { "a" : [ 1 , 2 ] } `)} {
			var b bytes.Buffer
			l := audit.New(&b, audit.Options{Now: clock()})
			r := mustAppend(t, l, audit.Entry{Kind: audit.KindCallIntent, RunID: id, TraceID: id, SandboxID: id, CallID: id, Data: data})
			var want bytes.Buffer
			enc := json.NewEncoder(&want)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(r); err != nil || b.String() != want.String() {
				t.Errorf("%s\nwant %s %v", b.String(), want.String(), err)
			}
		}
	}
}

func TestFormat(t *testing.T) {
	var b bytes.Buffer
	l := audit.New(&b, audit.Options{Now: clock()})
	first := mustAppend(t, l, audit.Entry{Kind: audit.KindRunStart, RunID: "01RUN", TraceID: "t", Data: map[string]any{"task": "a<b"}})
	second := mustAppend(t, l, audit.Entry{Kind: audit.KindRunEnd, RunID: "01RUN", SandboxID: "s", CallID: "c"})
	want := `{"seq":1,"time":"2026-11-29T11:00:01.123456789Z","kind":"run.start","run_id":"01RUN","trace_id":"t","data":{"task":"a<b"},"prev":"","hash":"` + first.Hash + `"}
{"seq":2,"time":"2026-11-29T11:00:02.123456789Z","kind":"run.end","run_id":"01RUN","sandbox_id":"s","call_id":"c","prev":"` + first.Hash + `","hash":"` + second.Hash + `"}
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	if l.Head() != (audit.Head{Seq: 2, Hash: second.Hash}) {
		t.Errorf("Head = %v", l.Head())
	}
	var read []audit.Record
	for r, err := range audit.Records(&b) {
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, r)
	}
	if diff := cmp.Diff([]audit.Record{first, second}, read); diff != "" {
		t.Error(diff)
	}
}

// The package comment promises that sed and sha256sum can check a line.
func TestThirdPartyCheck(t *testing.T) {
	log, _ := sample(t, 9)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `sed -n 7p "$1" | sed 's/,"hash":"[0-9a-f]\{64\}"}$/}/' | tr -d '\n' | sha256sum`, "sh", path)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("every Linux has sed and sha256sum: %v", err)
	}
	var r audit.Record
	if err := json.Unmarshal(bytes.Split(log, []byte("\n"))[6], &r); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := strings.Cut(string(out), " "); got != r.Hash {
		t.Errorf("sha256sum says %s, the line %s", got, r.Hash)
	}
}

func TestMasking(t *testing.T) {
	const key = "hunter2-hunter2"
	var b bytes.Buffer
	l := audit.New(&b, audit.Options{Masker: secret.NewMasker(secret.New("k", key), secret.New("n", "1234567"))})
	r := mustAppend(t, l, audit.Entry{
		Kind: audit.KindCallIntent, CallID: key,
		Data: map[string]any{"command": "curl -u me:" + key, key: 1, "n": 1234567, "raw": json.RawMessage(`"\u0068unter2-hunter2"`), "bad": "\xff"},
	})
	if strings.Contains(b.String(), "unter2") || strings.Contains(b.String(), "1234567") {
		t.Errorf("not masked: %s", b.String())
	}
	want := `{"bad":"\ufffd","command":"curl -u me:[secret:k]","[secret:k]":1,"n":"[secret:n]","raw":"[secret:k]"}`
	if string(r.Data) != want || r.CallID != "[secret:k]" {
		t.Errorf("%s, id %s", r.Data, r.CallID)
	}
	if v := audit.Verify(&b, l.Head().String()); v.State != audit.Intact {
		t.Error(v)
	}
}

func TestRefusedEntriesChangeNothing(t *testing.T) {
	var b bytes.Buffer
	l := audit.New(&b, audit.Options{})
	mustAppend(t, l, audit.Entry{Kind: audit.KindRunStart})
	before, head := b.Len(), l.Head()
	for want, data := range map[audit.ErrorKind]any{
		audit.ErrorInvalid:  func() {},
		audit.ErrorTooLarge: strings.Repeat("x", audit.MaxLine),
	} {
		_, err := l.Append(audit.Entry{Kind: audit.KindRunEnd, Data: data})
		if audit.ErrorKindOf(err) != want || !strings.Contains(fmt.Sprint(err), "run.end") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, kind := range []audit.Kind{"", audit.KindTear} {
		if _, err := l.Append(audit.Entry{Kind: kind}); audit.ErrorKindOf(err) != audit.ErrorInvalid {
			t.Errorf("kind %q: %v", kind, err)
		}
	}
	if b.Len() != before || l.Head() != head {
		t.Error("a refused entry left something")
	}
	mustAppend(t, l, audit.Entry{Kind: audit.KindRunEnd, Data: strings.Repeat("x", audit.MaxLine-1000)})
	if v := audit.Verify(&b, l.Head().String()); v.State != audit.Intact {
		t.Errorf("%+v", v)
	}
}

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "01RUN")
	path := filepath.Join(dir, "audit.jsonl")
	if _, err := audit.Open(path, audit.Options{}); audit.ErrorKindOf(err) != audit.ErrorNotFound {
		t.Errorf("Open of nothing: %v", err)
	}
	l, err := audit.Create(path, audit.Options{Sync: true})
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, dir: 0o700 | os.ModeDir, filepath.Dir(dir): 0o700 | os.ModeDir} {
		if info, err := os.Stat(p); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", p, info.Mode(), err, want)
		}
	}
	mustAppend(t, l, audit.Entry{Kind: audit.KindRunStart})
	if _, err := audit.Create(path, audit.Options{}); audit.ErrorKindOf(err) != audit.ErrorExists {
		t.Errorf("Create over a log: %v", err)
	}
	if _, err := audit.Open(path, audit.Options{}); audit.ErrorKindOf(err) != audit.ErrorLocked {
		t.Errorf("a second writer: %v", err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := l.Append(audit.Entry{Kind: audit.KindRunEnd}); audit.ErrorKindOf(err) != audit.ErrorClosed {
		t.Errorf("Append after Close: %v", err)
	}
	if l.Head().Seq != 1 {
		t.Errorf("Head after Close: %v", l.Head())
	}

	again, err := audit.Open(path, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if again.Head() != l.Head() {
		t.Errorf("continued at %v, want %v", again.Head(), l.Head())
	}
	mustAppend(t, again, audit.Entry{Kind: audit.KindRunEnd})
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if v := verifyFile(t, path, again.Head().String()); v.State != audit.Intact || v.Records != 2 {
		t.Errorf("%+v", v)
	}
	if v := verifyFile(t, path, l.Head().Hash); v.State != audit.Extended {
		t.Errorf("%+v", v)
	}
}

func verifyFile(t *testing.T, path, head string) audit.Verdict {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return audit.Verify(f, head)
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link} {
		if _, err := audit.Open(path, audit.Options{}); audit.ErrorKindOf(err) != audit.ErrorInvalid {
			t.Errorf("Open(%s): %v", path, err)
		}
	}
	if _, err := audit.Create(link, audit.Options{}); audit.ErrorKindOf(err) != audit.ErrorExists {
		t.Errorf("Create through a link: %v", err)
	}
}

func TestOpenRefusesAlteredLogs(t *testing.T) {
	log, _ := sample(t, 3)
	log[40] ^= 1
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []audit.Options{{}, {ContinueTorn: true}} {
		_, err := audit.Open(path, o)
		if audit.ErrorKindOf(err) != audit.ErrorAltered || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%v", err)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, log) {
		t.Errorf("the file was changed (%v)", err)
	}
}

func TestConcurrentAppend(t *testing.T) {
	var b bytes.Buffer
	l := audit.New(&b, audit.Options{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := l.Append(audit.Entry{Kind: audit.KindNetwork, Data: []int{g, i}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if v := audit.Verify(&b, l.Head().String()); v.State != audit.Intact || v.Records != 400 {
		t.Errorf("%+v", v)
	}
}

// halfWriter fails after some bytes.
type halfWriter struct {
	bytes.Buffer
	room int
}

func (w *halfWriter) Write(p []byte) (int, error) {
	if len(p) > w.room {
		n, _ := w.Buffer.Write(p[:w.room])
		w.room = 0
		return n, syscall.ENOSPC
	}
	w.room -= len(p)
	return w.Buffer.Write(p)
}

// After half a line nothing may be appended: it would be joined to the half.
func TestFailedWrites(t *testing.T) {
	w := &halfWriter{room: 300}
	l := audit.New(w, audit.Options{})
	mustAppend(t, l, audit.Entry{Kind: audit.KindRunStart})
	head := l.Head()
	_, err := l.Append(audit.Entry{Kind: audit.KindCallIntent, Data: strings.Repeat("x", 300)})
	if audit.ErrorKindOf(err) != audit.ErrorIO || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	w.room = 1 << 20
	if _, again := l.Append(audit.Entry{Kind: audit.KindRunEnd}); !errors.Is(again, syscall.ENOSPC) {
		t.Errorf("Append after half a line: %v", again)
	}
	if v := audit.Verify(&w.Buffer, head.String()); v.State != audit.Torn || v.Last != head {
		t.Errorf("%+v", v)
	}

	none := &halfWriter{}
	l = audit.New(none, audit.Options{})
	if _, err := l.Append(audit.Entry{Kind: audit.KindRunStart}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	none.room = 1 << 20
	if r := mustAppend(t, l, audit.Entry{Kind: audit.KindRunStart}); r.Seq != 1 {
		t.Errorf("a write of nothing took number %d", r.Seq)
	}
}

package audit_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rein-sh/rein/audit"
)

func verify(log []byte, head string) audit.Verdict { return audit.Verify(bytes.NewReader(log), head) }

func TestVerifyIntact(t *testing.T) {
	log, head := sample(t, 5)
	for _, tc := range []struct {
		log  []byte
		head string
		want audit.State
	}{
		{log, head.String(), audit.Intact},
		{log, head.Hash, audit.Intact},
		{log, "", audit.Unproven},
		{nil, "", audit.Unproven},
		{nil, audit.Head{}.String(), audit.Intact},
		{log, audit.Head{}.String(), audit.Extended},
		{nil, head.String(), audit.Truncated},
		{log, "5:" + strings.Repeat("0", 64), audit.Altered},
		{log, strings.Repeat("0", 64), audit.Truncated},
		{log, "6:" + head.Hash, audit.Truncated},
		{log, "head", audit.Unknown},
		{log, "x:" + head.Hash, audit.Unknown},
		{log, strings.ToUpper(head.Hash), audit.Unknown},
		{log, "5:", audit.Unknown},
	} {
		v := verify(tc.log, tc.head)
		if v.State != tc.want || v.Reason == "" {
			t.Errorf("head %q: %+v, want %s", tc.head, v, tc.want)
		}
		if want := tc.want == audit.Intact || tc.want == audit.Unproven || tc.want == audit.Extended; v.OK() != want {
			t.Errorf("%s.OK() = %v", v.State, v.OK())
		}
		if err := audit.CheckHead(tc.head); (err != nil) != (tc.want == audit.Unknown) {
			t.Errorf("head %q: %v", tc.head, err)
		}
	}
	if (audit.Verdict{}).OK() {
		t.Error("the zero Verdict is OK")
	}
}

// No byte of a log can be changed unnoticed, with the head or without.
func TestEveryByteCounts(t *testing.T) {
	log, head := sample(t, 4)
	for i := range log {
		for _, flip := range []byte{1, 0x20, 0x80, log[i] ^ '\n', log[i] ^ ' '} {
			if flip == 0 {
				continue
			}
			changed := slices.Clone(log)
			changed[i] ^= flip
			for _, h := range []string{"", head.String()} {
				if v := verify(changed, h); v.OK() {
					t.Fatalf("byte %d (%q) became %q, head %q: %+v", i, log[i], changed[i], h, v)
				}
			}
		}
	}
}

// No byte can be removed, doubled or inserted unnoticed.
func TestEveryByteIsNeeded(t *testing.T) {
	log, head := sample(t, 3)
	for i := range log {
		without := slices.Delete(slices.Clone(log), i, i+1)
		with := slices.Insert(slices.Clone(log), i, log[i])
		space := slices.Insert(slices.Clone(log), i, ' ')
		newline := slices.Insert(slices.Clone(log), i, '\n')
		for _, changed := range [][]byte{without, with, space, newline} {
			for _, h := range []string{"", head.String()} {
				if v := verify(changed, h); v.OK() {
					t.Fatalf("at byte %d (%q), head %q: %+v\n%s", i, log[i], h, v, changed)
				}
			}
		}
	}
}

// A log cut at any byte is noticed with the head; without it, every cut inside a
// line is.
func TestEveryCut(t *testing.T) {
	log, head := sample(t, 4)
	for i := range log {
		v := verify(log[:i], head.String())
		want := audit.Truncated
		if i == len(log)-1 {
			want = audit.Torn // all of it is there but the newline
		}
		if v.State != want {
			t.Errorf("cut at %d of %d: %+v", i, len(log), v)
		}
		v = verify(log[:i], "")
		want = audit.Torn
		if i == 0 || log[i-1] == '\n' {
			want = audit.Unproven
		}
		if v.State != want || want == audit.Torn && v.Line != int64(bytes.Count(log[:i], []byte("\n")))+1 {
			t.Errorf("cut at %d of %d without head: %+v", i, len(log), v)
		}
	}
}

// Lines cannot be removed, swapped, repeated or brought in from another log.
func TestLines(t *testing.T) {
	const n = 6
	log, head := sample(t, n)
	lines := bytes.SplitAfter(log, []byte("\n"))[:n]
	other := bytes.SplitAfter(otherLog(t, n), []byte("\n"))[:n]
	check := func(what string, changed [][]byte, line int64, h string) {
		t.Helper()
		v := verify(bytes.Join(changed, nil), h)
		if v.OK() || v.Line != line {
			t.Errorf("%s, head %q: %+v, want line %d", what, h, v, line)
		}
	}
	for i := range n {
		for _, h := range []string{"", head.String(), head.Hash} {
			if i < n-1 || h != "" {
				check("removed", slices.Delete(slices.Clone(lines), i, i+1), int64(i+1), h)
			}
			check("repeated", slices.Insert(slices.Clone(lines), i, lines[i]), int64(i+2), h)
			check("empty line", slices.Insert(slices.Clone(lines), i, []byte("\n")), int64(i+1), h)
			if i > 0 {
				check("of another log", slices.Replace(slices.Clone(lines), i, i+1, other[i]), int64(i+1), h)
			}
			for j := range i {
				swapped := slices.Clone(lines)
				swapped[i], swapped[j] = swapped[j], swapped[i]
				check("swapped", swapped, int64(j+1), h)
			}
		}
	}
	if v := verify(bytes.Join(other, nil), head.String()); v.State != audit.Altered || v.Line != n {
		t.Errorf("another log altogether: %+v", v)
	}
	if v := verify(bytes.Join(lines[:3], nil), ""); v.State != audit.Unproven || !strings.Contains(v.Reason, "cannot be told") {
		t.Errorf("a cut log without a head must say that it proves nothing: %+v", v)
	}
}

func otherLog(t *testing.T, n int) []byte {
	var b bytes.Buffer
	l := audit.New(&b, audit.Options{Now: clock()})
	for range n {
		mustAppend(t, l, audit.Entry{Kind: audit.KindNetwork})
	}
	return b.Bytes()
}

func TestVerifyIsBounded(t *testing.T) {
	log, _ := sample(t, 2)
	endless := append(slices.Clone(log), bytes.Repeat([]byte("x"), 3*audit.MaxLine)...)
	for _, in := range [][]byte{endless, append(endless, '\n')} {
		if v := verify(in, ""); v.State != audit.Altered || v.Line != 3 {
			t.Errorf("%+v", v)
		}
	}
	if v := audit.Verify(iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(log))), ""); v.State != audit.Unknown || !errors.Is(v.Err, iotest.ErrTimeout) {
		t.Errorf("%+v", v)
	}
}

// A log torn at any byte is refused, left as it is, and can be continued with
// the tear on record; what is then changed is noticed as ever.
func TestTears(t *testing.T) {
	log, _ := sample(t, 3)
	start := bytes.LastIndexByte(log[:len(log)-1], '\n') + 1
	for cut := start + 1; cut < len(log); cut += 31 {
		checkTear(t, log[:cut])
	}
	checkTear(t, log[:len(log)-1])                                   // only the newline is missing
	checkTear(t, append(slices.Clone(log), make([]byte, 4096)...))   // what ext4 may leave
	checkTear(t, append(slices.Clone(log), "\xff{\"seq\":9999}"...)) // or anything
}

func checkTear(t *testing.T, torn []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Open(path, audit.Options{}); audit.ErrorKindOf(err) != audit.ErrorTorn {
		t.Fatalf("Open: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, torn) {
		t.Fatalf("refusing changed the file (%v)", err)
	}
	l, err := audit.Open(path, audit.Options{ContinueTorn: true, Now: clock()})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, audit.Entry{Kind: audit.KindRunEnd})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(whole, torn) {
		t.Fatal("the fragment was not kept")
	}
	head := l.Head().String()
	if v := verify(whole, head); v.State != audit.Intact || v.Tears != 1 {
		t.Fatalf("%d bytes: %+v", len(torn), v)
	}
	for i := 0; i < len(whole); i += 3 {
		changed := slices.Clone(whole)
		changed[i] ^= 4
		if v := verify(changed, head); v.OK() {
			t.Fatalf("byte %d of a log with a tear: %+v", i, v)
		}
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for i := range lines[:len(lines)-1] {
		if v := verify(bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil), head); v.OK() {
			t.Fatalf("line %d removed from a log with a tear: %+v", i+1, v)
		}
	}
}

// A second tear, of the very record of the first, can be continued once more
// when that record is complete.
func TestTearOfATear(t *testing.T) {
	log, _ := sample(t, 2)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	if err := os.WriteFile(path, log[:len(log)-9], 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := audit.Open(path, audit.Options{ContinueTorn: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if v := verifyFile(t, path, l.Head().String()); v.State != audit.Intact {
			t.Fatalf("%+v", v)
		}
		if err := os.Truncate(path, info.Size()-1); err != nil {
			t.Fatal(err)
		}
		if v := verifyFile(t, path, ""); v.State != audit.Torn {
			t.Fatalf("%+v", v)
		}
	}
}

func TestRecordsGoesOn(t *testing.T) {
	log, _ := sample(t, 3)
	lines := bytes.SplitAfter(log, []byte("\n"))
	mixed := bytes.Join([][]byte{lines[0], []byte("no record\n"), bytes.Repeat([]byte("x"), audit.MaxLine), []byte("\n"), lines[1], []byte("half")}, nil)
	var seqs, faults []string
	for r, err := range audit.Records(bytes.NewReader(mixed)) {
		if err == nil {
			seqs = append(seqs, r.CallID)
			continue
		}
		var e *audit.Error
		if !errors.As(err, &e) || e.Kind != audit.ErrorAltered {
			t.Errorf("%v", err)
			continue
		}
		faults = append(faults, e.Subject)
	}
	if strings.Join(seqs, " ") != "c0 c1" || strings.Join(faults, ", ") != "line 2, line 3, line 5" {
		t.Errorf("records %v, faults %v", seqs, faults)
	}
	for range audit.Records(bytes.NewReader(log)) {
		break // must not panic
	}
}

// FuzzVerify checks that no bytes upset Verify or Records, and that what Verify
// accepts is exactly what Records reads.
func FuzzVerify(f *testing.F) {
	log, head := sample(f, 3)
	f.Add(log, head.String())
	f.Add(log[:len(log)-5], "")
	f.Add([]byte("{}\n\n{\"seq\":1}\n"), head.Hash)
	f.Add(append(slices.Clone(log), `{"seq":4,"prev":"","hash":""}`...), "")
	f.Fuzz(func(t *testing.T, in []byte, head string) {
		v := verify(in, head)
		if v.State == "" || v.Reason == "" {
			t.Fatalf("%+v", v)
		}
		var good, faults uint64
		for _, err := range audit.Records(bytes.NewReader(in)) {
			if err != nil {
				faults++
			} else {
				good++
			}
		}
		if v.OK() && (good != v.Records || faults > uint64(v.Tears)) {
			t.Fatalf("Verify: %+v; Records: %d good, %d not", v, good, faults)
		}
		if v.OK() && len(in) > 0 && in[len(in)-1] != '\n' {
			t.Fatalf("an unfinished log is OK: %+v", v)
		}
	})
}

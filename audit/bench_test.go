package audit_test

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/secret"
)

var benchEntry = audit.Entry{
	Kind: audit.KindCallOutcome, RunID: "01JDXK3Q5ZP4C7M2N8R9S0T1V2", SandboxID: "sb-01JDXK3Q5Z", CallID: "call-000042",
	Data: map[string]any{"tool": "run_command", "exit_code": 0, "ok": true, "duration_ms": 12, "stdout_bytes": 4096, "truncated": false},
}

func BenchmarkAppend(b *testing.B) {
	masker := secret.NewMasker(secret.New("k", "sk-proj-4f9Zq77xKd0PmT1bYvW"))
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v", sync), func(b *testing.B) {
			l, err := audit.Create(filepath.Join(b.TempDir(), "audit.jsonl"), audit.Options{Masker: masker, Sync: sync})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				mustAppend(b, l, benchEntry)
			}
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkVerify(b *testing.B) {
	var log bytes.Buffer
	l := audit.New(&log, audit.Options{})
	for range 10_000 {
		mustAppend(b, l, benchEntry)
	}
	in := bytes.NewReader(log.Bytes())
	b.SetBytes(int64(log.Len()))
	for b.Loop() {
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			b.Fatal(err)
		}
		if v := audit.Verify(in, l.Head().String()); v.State != audit.Intact {
			b.Fatal(v)
		}
	}
}

package clue_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rein-sh/rein/evidence/clue"
)

func TestX(t *testing.T) {
	f := os.Getenv("LOG")
	if f == "" {
		t.Skip()
	}
	b, _ := os.ReadFile(f)
	s := clue.Index(64 << 10)
	s.Write(b)
	for _, l := range s.Lines() {
		if l.Score >= 20 {
			fmt.Printf("%3d %5d %.150q\n", l.Score, l.Number, strings.TrimRight(string(b[l.Start:l.End]), "\n"))
		}
	}
}

func TestY(t *testing.T) {
	f := os.Getenv("LINES")
	if f == "" {
		t.Skip()
	}
	b, _ := os.ReadFile(f)
	for l := range bytes.Lines(b) {
		fmt.Printf("%3d %s", clue.Score(l), l)
	}
}

func BenchmarkScan(b *testing.B) {
	in := []byte(strings.Repeat("2026-11-29T17:43:02Z INFO request done path=/v1/items status=200 bytes=5120 took=12ms\ngcc -Wall -c -o build/foo/bar.o src/foo/bar.c\n", 6000))
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		s := clue.Index(64 << 10)
		s.Write(in)
		s.Lines()
	}
}

package secret_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/rein-sh/rein/secret"
)

func benchText() []byte {
	line := "2026-11-29T17:43:02Z INFO  server.go:128 request done path=/v1/items status=200 bytes=5120 took=12ms\n"
	return []byte(strings.Repeat(line, (1<<20)/len(line)))
}

func benchMasker(n int) *secret.Masker {
	m := secret.NewMasker()
	for i := range n {
		m.Add(secret.New(fmt.Sprint("k", i), fmt.Sprintf("sk-proj-%08x-4f9Zq77xKd0PmT1bYvW", i*2654435761)))
	}
	return m
}

func BenchmarkBytes(b *testing.B) {
	text := benchText()
	for _, n := range []int{1, 5, 50, 500} {
		m := benchMasker(n)
		b.Run(fmt.Sprintf("secrets=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				m.Bytes(text)
			}
		})
	}
	short := secret.NewMasker(secret.New("pin", "hunter"))
	b.Run("six bytes", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			short.Bytes(text)
		}
	})
}

func BenchmarkWriter(b *testing.B) {
	text := benchText()
	m := benchMasker(5)
	for _, size := range []int{100, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("write=%d", size), func(b *testing.B) {
			w := m.Writer(io.Discard)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for rest := text; len(rest) > 0; {
					n := min(size, len(rest))
					if _, err := w.Write(rest[:n]); err != nil {
						b.Fatal(err)
					}
					rest = rest[n:]
				}
			}
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	for b.Loop() {
		benchMasker(5)
	}
}

// BenchmarkShapes is what looking for keys by their shapes costs besides.
func BenchmarkShapes(b *testing.B) {
	text := benchText()
	m := benchMasker(5)
	m.MaskShapes(nil)
	b.Run("bytes", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			m.Bytes(text)
		}
	})
	b.Run("write=4096", func(b *testing.B) {
		w := m.Writer(io.Discard)
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			for rest := text; len(rest) > 0; {
				n := min(4096, len(rest))
				if _, err := w.Write(rest[:n]); err != nil {
					b.Fatal(err)
				}
				rest = rest[n:]
			}
		}
	})
}

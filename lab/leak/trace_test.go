package leak_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rein-sh/rein/lab/leak"
)

// A trace is found in every form, wherever it stands, however it is read; what is
// alike is not.
func TestTrace(t *testing.T) {
	t.Parallel()
	const key, alike = "sk-lab-ABCDEFGHIJKLMNOP+QRSTUVWXYZ234567/abcdefg=", "sk-lab-BBCDEFGHIJKLMNOQ+QRSTUVWXYZ234568/bbcdefg="
	f := leak.NewFinder(leak.NewTrace("key", key))
	backwards := func(s string) string {
		b := []byte(s)
		slices.Reverse(b)
		return string(b)
	}
	forms := map[string]func(string) string{
		"plain": func(s string) string { return s }, "backwards": backwards, "percent": url.QueryEscape,
		"hex": func(s string) string { return hex.EncodeToString([]byte(s)) }, "HEX": func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"base64": func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }, "base64, 1": func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s)) },
		"base64, 2": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("xy" + s)) },
		"UTF-16":    func(s string) string { return strings.Join(strings.Split(s, ""), "\x00") + "\x00" },
		"cut":       func(s string) string { return s[5:40] },
	}
	for name, form := range forms {
		for _, before := range []int{0, 1, 23, 24, 25, 64<<10 - 30, 64<<10 - 1, 300 << 10} {
			text := strings.Repeat("a", before) + form(key) + "tail"
			for how, r := range map[string]func() (int64, map[string]string, error){
				"at once": func() (int64, map[string]string, error) { return f.Find(strings.NewReader(text)) },
				"zeros": func() (int64, map[string]string, error) {
					text = strings.Repeat("\x00", before) + form(key) + strings.Repeat("\x00", 200<<10) + form(alike)
					return f.Find(strings.NewReader(text))
				},
				"halves": func() (int64, map[string]string, error) { return f.Find(iotest.HalfReader(strings.NewReader(text))) },
			} {
				n, found, err := r()
				if err != nil || n != int64(len(text)) || found["key"] == "" {
					t.Errorf("%s after %d bytes, read %s: %d bytes, %v, %v", name, before, how, n, found, err)
				}
			}
		}
		if _, found, _ := f.Find(strings.NewReader(form(alike))); len(found) > 0 {
			t.Errorf("%s: what is alike is found: %v", name, found)
		}
	}
	if _, found, _ := f.Find(iotest.OneByteReader(strings.NewReader(key))); found["key"] != "plain" {
		t.Errorf("byte by byte: %v", found)
	}
	if _, found, err := f.Find(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(key)))); err == nil || len(found) > 0 {
		t.Errorf("a reader that fails: %v, %v", found, err)
	}
}

func BenchmarkFind(b *testing.B) {
	f := leak.NewFinder(leak.NewTrace("key", "sk-lab-ABCDEFGHIJKLMNOP+QRSTUVWXYZ234567/abcdefg="))
	data := bytes.Repeat([]byte("what a program has in its memory, "), 1<<15)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, found, err := f.Find(bytes.NewReader(data)); err != nil || len(found) > 0 {
			b.Fatal(found, err)
		}
	}
}

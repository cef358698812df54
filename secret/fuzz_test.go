package secret_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rein-sh/rein/secret"
)

// FuzzWriter checks, for any two values, text and cut, that the Writer gives
// what Bytes gives, that no value remains, and that Find agrees.
func FuzzWriter(f *testing.F) {
	f.Add("abcdef", "cdefgh", []byte("xxabcdefghxx"), uint(5))
	f.Add("aaaaaa", "aaaaaaa", []byte(strings.Repeat("a", 40)), uint(1))
	f.Add("hunter2-hunter2", "\x00\xff\n\r\"\\", []byte("aHVudGVyMi1o\ndW50ZXIyaHVudGVyMi1odW50ZXIy"), uint(13))
	f.Fuzz(func(t *testing.T, a, b string, text []byte, cut uint) {
		m := secret.NewMasker(secret.New("A", a), secret.New("B", b))
		want := m.Bytes(text)
		var out bytes.Buffer
		w := m.Writer(&out)
		at := int(cut % uint(len(text)+1))
		for _, part := range [][]byte{text[:at], text[at:]} {
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatalf("Write: %d of %d, %v", n, len(part), err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Fatalf("cut at %d: %q, want %q", at, out.Bytes(), want)
		}
		var again []byte
		end := 0
		for _, s := range m.Find(text) {
			for _, v := range []string{a, b} {
				if len(v) >= secret.MinLength && bytes.Contains(text[end:s.Start], []byte(v)) {
					t.Fatalf("%q is left between spans of %q", v, text)
				}
			}
			again = append(append(again, text[end:s.Start]...), s.Mark...)
			end = s.End
		}
		if again = append(again, text[end:]...); !bytes.Equal(again, want) {
			t.Fatalf("Find gives %q, Bytes %q", again, want)
		}
	})
}

// FuzzJSON checks that valid JSON stays valid and keeps no value, however it is
// escaped.
func FuzzJSON(f *testing.F) {
	f.Add("abcdef", []byte(`{"k":"abcdef","n":[123456,-1.5e3,null,true]}`))
	f.Add("123456", []byte(`[123456,1234567.5]`))
	f.Add(`":{"a":`, []byte(`{"x":{"a":"\u0061\ud83d\ude00\\\""}}`))
	f.Fuzz(func(t *testing.T, value string, text []byte) {
		m := secret.NewMasker(secret.New("K", value))
		got := m.JSON(text)
		if !json.Valid(text) {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("JSON(%q) is no JSON: %q", text, got)
		}
		if len(value) < secret.MinLength || strings.Contains("[secret:K base64 json url hex]", value) {
			return
		}
		if strings.ContainsAny(value, "[]: ") {
			return // may be made anew from a mark and what surrounds it
		}
		var x any
		if err := json.Unmarshal(got, &x); err == nil && shows(x, value) {
			t.Fatalf("JSON(%q) shows %q: %q", text, value, got)
		}
	})
}

func shows(x any, value string) bool {
	switch x := x.(type) {
	case string:
		return strings.Contains(x, value)
	case []any:
		for _, e := range x {
			if shows(e, value) {
				return true
			}
		}
	case map[string]any:
		for k, e := range x {
			if strings.Contains(k, value) || shows(e, value) {
				return true
			}
		}
	}
	return false
}

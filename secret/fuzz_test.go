package secret_test

import (
	"bytes"
	"encoding/json"
	"slices"
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

// FuzzShapes checks that a key of a known shape is masked whatever is around it and
// wherever the text is cut, that a Writer masks what Bytes masks, and that JSON
// stays JSON.
func FuzzShapes(f *testing.F) {
	var keys []string
	for _, list := range shaped() {
		keys = append(keys, list...)
	}
	slices.Sort(keys)
	f.Add([]byte("a: "), []byte("\n"), uint(3), uint(9))
	f.Add([]byte("-----BEGIN RSA PRIVATE KEY-----\nMII"), []byte("-----END RSA PRIVATE KEY-----"), uint(1), uint(40))
	f.Add([]byte(`Authorization: Bearer eyJhbGci`), []byte(`ghp_sk-AKIA`), uint(7), uint(20))
	m := shapeMasker(secret.New("k", token))
	f.Fuzz(func(t *testing.T, before, after []byte, which, cut uint) {
		key := keys[which%uint(len(keys))]
		text := slices.Concat(before, []byte("\n"+key+"\n"), after)
		whole := m.Bytes(text)
		if bytes.Contains(whole, []byte(key)) {
			t.Fatalf("%q is left in %q", key, whole)
		}
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
		if bytes.Contains(out.Bytes(), []byte(key)) {
			t.Fatalf("cut at %d: %q is left in %q", at, key, out.Bytes())
		}
		end := 0
		for _, s := range m.Find(text) {
			if s.Start < end || s.End <= s.Start || s.End > len(text) || s.Mark == "" {
				t.Fatalf("span %+v after %d", s, end)
			}
			end = s.End
		}
		start, rest := m.Partial(text)
		if start < 0 || rest < 0 || start > len(text) || rest > len(text) {
			t.Fatalf("Partial: %d, %d of %d", start, rest, len(text))
		}
		quoted, err := json.Marshal(map[string]string{string(before): string(text)})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.JSON(quoted); !json.Valid(got) || bytes.Contains(got, []byte(key)) {
			t.Fatalf("JSON(%q): %q", quoted, got)
		}
	})
}

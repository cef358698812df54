package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// encoded is a text as other programs write it: name of the encoding, and that of
// base64 without the characters that also hold bits of what is beside it.
func encoded(s string) map[string]string {
	plain := func(v any) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(v)
		return strings.TrimSpace(b.String())
	}
	html, _ := json.Marshal(s)
	all := map[string]string{
		"exact": s, "query": url.QueryEscape(s), "path": url.PathEscape(s), "hex": hex.EncodeToString([]byte(s)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(s))),
		"json": strings.Trim(string(html), `"`), "plain json": strings.TrimSuffix(plain(s)[1:], `"`),
	}
	for shift := range 3 {
		data := []byte("xyz"[:shift] + s)
		first, end := (8*shift+5)/6, 8*len(data)/6
		all[fmt.Sprint("base64 ", shift)] = base64.StdEncoding.EncodeToString(data)[first:end]
		all[fmt.Sprint("base64url ", shift)] = base64.URLEncoding.EncodeToString(data)[first:end]
	}
	return all
}

// finds returns what of a key a text shows, "" for nothing: the key in some
// encoding, or 16 characters of it as they are.
func finds(b []byte, key string) string {
	for name, text := range encoded(key) {
		if bytes.Contains(b, []byte(text)) {
			return name
		}
	}
	for at := 0; at+16 <= len(key); at++ {
		if bytes.Contains(b, []byte(key[at:at+16])) {
			return fmt.Sprintf("characters %d to %d", at, at+16)
		}
	}
	return ""
}

// search looks for keys in every file beneath dirs, and in what is packed in them,
// and returns how often each was found and says where.
func search(t *testing.T, dirs ...string) (found map[string][]string, files int) {
	t.Helper()
	found = map[string][]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			texts := [][]byte{[]byte(path)} // a name is written, too
			if d.Type().IsRegular() {
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				if len(b) > 1<<20 && bytes.HasPrefix(b, []byte("\x7fELF")) {
					return nil // a program, which rein only copies
				}
				texts = append(texts, b)
				if r, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
					packed, _ := io.ReadAll(r) // as far as it goes
					texts = append(texts, packed)
				}
			} else if to, err := os.Readlink(path); err == nil {
				texts = append(texts, []byte(to))
			}
			files++
			for name, key := range nowhere {
				for _, b := range texts {
					if how := finds(b, key); how != "" {
						found[name] = append(found[name], fmt.Sprintf("%s (%s)", strings.TrimPrefix(path, dir), how))
						break
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found, files
}

// The search finds what it is meant to find.
func TestSearchForKeys(t *testing.T) {
	t.Parallel()
	for name, key := range nowhere {
		for how, text := range encoded(key) {
			dir := t.TempDir()
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, _ = io.WriteString(z, "before "+text+" after")
			_ = z.Close()
			for file, b := range map[string][]byte{"plain": []byte("before" + text + "after"), "packed": packed.Bytes()} {
				if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if found, files := search(t, dir); len(found[name]) != 2 || files != 2 {
				t.Errorf("%s in %s: found in %q of %d files", name, how, found[name], files)
			}
		}
	}
	if how := finds([]byte("x"+nowhere["made"][5:25]), nowhere["made"]); how == "" {
		t.Error("a part of a key is not found")
	}
}

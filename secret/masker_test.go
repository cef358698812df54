package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/secret"
)

// Values that show every encoder's peculiarities.
const (
	token   = "sk-proj-4f9Zq_77xKd0PmT1bYvW"
	strange = "p@ss \"w\\rd\"/<é€😀>&'\n+%~=?"
)

func encodings(s string) map[string]string {
	goJSON, _ := json.Marshal(s)
	plainJSON := new(bytes.Buffer)
	enc := json.NewEncoder(plainJSON)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)
	nested, _ := json.Marshal(strings.TrimSuffix(plainJSON.String(), "\n"))
	m := map[string]string{
		"exact":         s,
		"go json":       string(goJSON[1 : len(goJSON)-1]),
		"plain json":    plainJSON.String()[1 : plainJSON.Len()-2],
		"json in json":  string(nested[3 : len(nested)-3]),
		"query":         url.QueryEscape(s),
		"path":          url.PathEscape(s),
		"lower percent": lowerPercent(url.QueryEscape(s)),
		"hex":           hex.EncodeToString([]byte(s)),
		"HEX":           strings.ToUpper(hex.EncodeToString([]byte(s))),
		"form":          url.Values{"k": {s}}.Encode()[2:],
	}
	for before := range 4 {
		for after := range 4 {
			data := []byte(strings.Repeat("<", before) + s + strings.Repeat(">", after))
			m[fmt.Sprintf("base64 %d %d", before, after)] = base64.StdEncoding.EncodeToString(data)
			m[fmt.Sprintf("base64url %d %d", before, after)] = base64.RawURLEncoding.EncodeToString(data)
		}
	}
	return m
}

func lowerPercent(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

// Every encoding of a value is masked, and what is left of it is at most the
// two characters at each end that base64 shares with the neighbouring bytes.
func TestEncodings(t *testing.T) {
	for _, value := range []string{token, strange, "123456", strings.Repeat("long line ", 40), "\xff\xfe\x00binary\x80"} {
		m := secret.NewMasker(secret.New("k", value))
		for name, text := range encodings(value) {
			got := m.String("before " + text + " after")
			if !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
				t.Errorf("%q %s: the surroundings changed: %q", value, name, got)
				continue
			}
			rest := strings.TrimSuffix(strings.TrimPrefix(got, "before "), " after")
			open, end := strings.Index(rest, "[secret:k"), strings.LastIndex(rest, "]")
			if open < 0 {
				if name == "go json" || name == "json in json" || strings.HasSuffix(name, "json") {
					if !json.Valid([]byte(`"`+value+`"`)) && strings.Contains(text, `\ufffd`) {
						continue // not UTF-8: JSON cannot hold the value
					}
				}
				t.Errorf("%q %s: not masked: %q", value, name, rest)
				continue
			}
			if left := rest[:open] + rest[end+1:]; !strings.HasPrefix(name, "base64") && left != "" || len(left) > 14 {
				t.Errorf("%q %s: %q is left of %q", value, name, left, text)
			}
		}
	}
}

// Programs wrap base64 and hexadecimal at all sorts of widths.
func TestWrapped(t *testing.T) {
	value := strings.Repeat(token, 3)
	m := secret.NewMasker(secret.New("k", value))
	for form, text := range map[string]string{
		"base64": base64.StdEncoding.EncodeToString([]byte("prefix" + value)),
		"hex":    hex.EncodeToString([]byte("prefix" + value)),
	} {
		for width := 16; width < 80; width++ {
			for _, eol := range []string{"\n", "\r\n"} {
				var b strings.Builder
				for rest := text; rest != ""; {
					n := min(width, len(rest))
					b.WriteString(rest[:n] + eol)
					rest = rest[n:]
				}
				got := m.String(b.String())
				if mark := "[secret:k " + form + "]"; !strings.Contains(got, mark) || len(got) > len("prefix")*2+len(mark)+8 {
					t.Fatalf("%s wrapped at %d with %q: %q", form, width, eol, got)
				}
			}
		}
	}
}

func TestRules(t *testing.T) {
	v := func(name, value string) secret.Value { return secret.New(name, value) }
	for _, tc := range []struct {
		name     string
		values   []secret.Value
		in, want string
	}{
		{"none", nil, "abcdefgh", "abcdefgh"},
		{"empty text", []secret.Value{v("a", "abcdef")}, "", ""},
		{"short value", []secret.Value{v("a", "abcde")}, "abcde", "abcde"},
		{"twice", []secret.Value{v("a", "abcdef")}, "abcdefabcdef", "[secret:a][secret:a]"},
		{"longest first", []secret.Value{v("a", "abcdef"), v("b", "abcdefgh")}, "xabcdefgh abcdefg", "x[secret:b] [secret:a]g"},
		{"inside", []secret.Value{v("a", "cdefgh"), v("b", "abcdefghij")}, "abcdefghij", "[secret:b]"},
		{"overlap", []secret.Value{v("a", "abcdef"), v("b", "efghij")}, "-abcdefghij-", "-[secret:a][secret:b]-"},
		{"overlap with itself", []secret.Value{v("a", "ababab")}, "-abababababa-", "-[secret:a]a-"},
		{"chain", []secret.Value{v("a", "aaaaaa")}, strings.Repeat("a", 50), "[secret:a]"},
		{"same value twice", []secret.Value{v("a", "abcdef"), v("b", "abcdef")}, "abcdef", "[secret:a]"},
		{"the encoding of another", []secret.Value{v("a", "abcdef"), v("b", hex.EncodeToString([]byte("abcdef")))},
			hex.EncodeToString([]byte("abcdef")), "[secret:a hex]"},
		{"regular expression", []secret.Value{v("a", "a.*[b]$")}, "axxxb a.*[b]$", "axxxb [secret:a]"},
		{"at the edges", []secret.Value{v("a", "abcdef")}, "abcdef\nabcdef", "[secret:a]\n[secret:a]"},
	} {
		if got := secret.NewMasker(tc.values...).String(tc.in); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestAdd(t *testing.T) {
	m := secret.NewMasker(secret.New("short", "abc"))
	if m.Add(secret.New("short", "abcde")) || m.Add(secret.Value{}) || !m.Add(secret.New("a", "abcdef")) || !m.Add(secret.New("b", "abcdef")) {
		t.Error("Add does not say what it masks")
	}
	var none *secret.Masker
	if none.Add(secret.New("a", "abcdef")) {
		t.Error("a nil Masker says it masks")
	}
}

func TestNilMasksNothing(t *testing.T) {
	var m *secret.Masker
	start, end := m.Partial([]byte("x"))
	if m.String("abc") != "abc" || string(m.Bytes([]byte("abc"))) != "abc" || m.Find([]byte("abc")) != nil ||
		string(m.JSON([]byte(`"abc"`))) != `"abc"` || start+end != 0 {
		t.Error("a nil Masker changed something")
	}
	for _, m := range []*secret.Masker{nil, secret.NewMasker()} {
		var out bytes.Buffer
		w := m.Writer(&out)
		if n, err := w.Write([]byte("abcdef")); n != 6 || err != nil || out.String() != "abcdef" || w.Close() != nil {
			t.Errorf("Writer: %d %v %q", n, err, out.String())
		}
	}
}

func TestBytesLeavesItsInput(t *testing.T) {
	m := secret.NewMasker(secret.New("a", "abcdef"))
	in := []byte("xabcdefx")
	if got := string(m.Bytes(in)); got != "x[secret:a]x" || string(in) != "xabcdefx" {
		t.Errorf("%q from %q", got, in)
	}
	clean := []byte("nothing here")
	if got := m.Bytes(clean); &got[0] != &clean[0] {
		t.Error("a clean text was copied")
	}
}

// randomText makes texts full of values, halves of values and their encodings,
// over a small alphabet so that they overlap.
func randomText(rng *rand.Rand, values []secret.Value, size int) string {
	var b strings.Builder
	for b.Len() < size {
		v := values[rng.IntN(len(values))].Reveal()
		switch rng.IntN(6) {
		case 0:
			b.WriteString(v)
		case 1:
			b.WriteString(v[rng.IntN(len(v)):])
		case 2:
			b.WriteString(v[:rng.IntN(len(v))])
		case 3:
			text := base64.StdEncoding.EncodeToString([]byte("xyz"[:rng.IntN(4)] + v + "xyz"[:rng.IntN(4)]))
			if at := rng.IntN(len(text)); rng.IntN(2) == 0 {
				text = text[:at] + "\n" + text[at:]
			}
			b.WriteString(text[rng.IntN(3):])
		case 4:
			b.WriteString(hex.EncodeToString([]byte(v)))
		default:
			for range rng.IntN(5) {
				b.WriteByte("ab\n\r="[rng.IntN(5)])
			}
		}
	}
	return b.String()
}

func randomValues(rng *rand.Rand) []secret.Value {
	var values []secret.Value
	for i := range 1 + rng.IntN(4) {
		b := make([]byte, secret.MinLength+rng.IntN(20))
		for j := range b {
			b[j] = "ab"[rng.IntN(2)]
		}
		values = append(values, secret.New(fmt.Sprint("v", i), string(b)))
	}
	return values
}

// However a text is cut into writes, the Writer's result is that of Bytes, and
// no value remains in it.
func TestWriterEqualsBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		values := randomValues(rng)
		m := secret.NewMasker(values...)
		text := randomText(rng, values, rng.IntN(400))
		want := m.String(text)
		for _, v := range values {
			if strings.Contains(want, v.Reveal()) {
				t.Fatalf("%q remains in %q", v.Reveal(), want)
			}
		}
		var out bytes.Buffer
		w := m.Writer(&out)
		for rest := text; rest != ""; {
			n := min(1+rng.IntN(40), len(rest))
			if _, err := io.WriteString(w, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Fatalf("values %q\ntext %q\n%s", reveal(values), text, cmp.Diff(want, out.String()))
		}
	}
}

func reveal(values []secret.Value) (s []string) {
	for _, v := range values {
		s = append(s, v.Reveal())
	}
	return s
}

// The search that skips finds exactly what looking at every place finds.
func TestFindEqualsNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		values := randomValues(rng)
		text := randomText(rng, values, rng.IntN(300))
		covered := make([]bool, len(text))
		for _, v := range values {
			for _, form := range []string{v.Reveal(), hex.EncodeToString([]byte(v.Reveal()))} {
				for at := 0; ; at++ {
					i := strings.Index(text[at:], form)
					if i < 0 {
						break
					}
					at += i
					for j := range form {
						covered[at+j] = true
					}
				}
			}
		}
		found := make([]bool, len(text))
		end := 0
		for _, s := range secret.NewMasker(values...).Find([]byte(text)) {
			if s.Start < end || s.End <= s.Start || s.Mark == "" {
				t.Fatalf("spans are not in order: %+v after %d", s, end)
			}
			for end = s.Start; end < s.End; end++ {
				found[end] = true
			}
		}
		for i := range covered {
			if covered[i] && !found[i] {
				t.Fatalf("byte %d of %q was not found with values %q", i, text, reveal(values))
			}
		}
	}
}

// A Writer passes on at once what cannot be part of a value.
func TestWriterHoldsBackLittle(t *testing.T) {
	m := secret.NewMasker(secret.New("k", token))
	var out bytes.Buffer
	w := m.Writer(&out)
	for _, step := range []struct{ write, want string }{
		{"Password: ", "Password: "},
		{"it is " + token[:10], "it is "},
		{"", ""},
		{token[10:] + "!", "[secret:k]!"},
		{token[:5], ""},
		{"other", token[:5] + "other"},
	} {
		out.Reset()
		if _, err := io.WriteString(w, step.write); err != nil {
			t.Fatal(err)
		}
		if out.String() != step.want {
			t.Errorf("after %q came %q, want %q", step.write, out.String(), step.want)
		}
	}
	out.Reset()
	if _, err := io.WriteString(w, token[:9]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || out.String() != token[:9] {
		t.Errorf("Close gave %q, %v", out.String(), err)
	}
}

func TestWriterErrors(t *testing.T) {
	m := secret.NewMasker(secret.New("k", token))
	w := m.Writer(iotestErr{})
	if _, err := io.WriteString(w, "text"); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("Write: %v", err)
	}
	if err := w.Close(); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("Close: %v", err)
	}
}

type iotestErr struct{}

func (iotestErr) Write([]byte) (int, error) { return 0, iotest.ErrTimeout }

// Add works under Writers and readers that are in use.
func TestConcurrentAdd(t *testing.T) {
	m := secret.NewMasker()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			w := m.Writer(io.Discard)
			for i := range 20 {
				value := fmt.Sprintf("value-%d-%d", g, i)
				m.Add(secret.New("k", value))
				if got := m.String("<" + value + ">"); got != "<[secret:k]>" {
					t.Errorf("%q after Add", got)
				}
				if _, err := io.WriteString(w, value); err != nil {
					t.Error(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A value added while half of it is held back is masked.
func TestAddReachesOpenWriters(t *testing.T) {
	m := secret.NewMasker(secret.New("a", "abcdef"))
	var out bytes.Buffer
	w := m.Writer(&out)
	for _, part := range []string{"abc", "", "xyz12345abcdef"} {
		if part == "" {
			m.Add(secret.New("b", "abcxyz"))
			continue
		}
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil || out.String() != "[secret:b]12345[secret:a]" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestJSON(t *testing.T) {
	m := secret.NewMasker(secret.New("t", token), secret.New("s", strange), secret.New("n", "1234567"), secret.New("j", `:true,"x`))
	goStrange, err := json.Marshal(strange)
	if err != nil {
		t.Fatal(err)
	}
	odd := `"\u0073k-proj-4f9Zq_77xKd0PmT1bYvW"` // an escape nobody needs
	for in, want := range map[string]string{
		`{"a":1}`:                                `{"a":1}`,
		`{"k":"x ` + token + ` y"}`:              `{"k":"x [secret:t] y"}`,
		`{"` + token + `":1}`:                    `{"[secret:t]":1}`,
		string(goStrange):                        `"[secret:s]"`,
		odd:                                      `"[secret:t]"`,
		`[1234567, -1234567.0, 12]`:              `["[secret:n]", "-[secret:n].0", 12]`,
		`{"a":true,"x":1}`:                       `"{\"a\"[secret:j]\":1}"`,
		`not json ` + token:                      `not json [secret:t]`,
		`"<&>\u2028"`:                            `"<&>\u2028"`,
		`"<&> ` + token + `"`:                    `"<&> [secret:t]"`,
		`{"e":"\\\"","f":[null,true,false,1e5]}`: `{"e":"\\\"","f":[null,true,false,1e5]}`,
		``:                                       ``,
	} {
		if got := string(m.JSON([]byte(in))); got != want {
			t.Errorf("JSON(%s)\n got %s\nwant %s", in, got, want)
		}
	}
}

func ExampleMasker() {
	m := secret.NewMasker(secret.New("TOKEN", "sk-4f9Zq77xKd0PmT1b"))
	fmt.Println(m.String("Authorization: Bearer sk-4f9Zq77xKd0PmT1b"))
	fmt.Println(m.String("Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:sk-4f9Zq77xKd0PmT1b"))))
	// Output:
	// Authorization: Bearer [secret:TOKEN]
	// Authorization: Basic bWU6[secret:TOKEN base64]==
}

// Values that come one by one are masked as those that came together are, also in
// Writers that are there already, and a thousand of them take no time to speak of.
func TestAddMany(t *testing.T) {
	t.Parallel()
	var values []secret.Value
	var text strings.Builder
	for i := range 300 {
		v := fmt.Sprintf("ghp_%06daaaaBBBB1111ccccDDDD2222eeeeFF", i)
		if i%100 == 50 {
			v = fmt.Sprintf("pin%04d", i) // shorter than what the others are looked for by
		}
		values = append(values, secret.New(fmt.Sprint("k", i), v))
		fmt.Fprintf(&text, "%s %x %s\n", v, v, base64.StdEncoding.EncodeToString([]byte("as"+v)))
	}
	m := &secret.Masker{}
	m.MaskShapes(nil)
	var reading sync.WaitGroup
	stop := make(chan struct{})
	reading.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				m.String(text.String()[:4096])
			}
		}
	})
	for i, v := range values {
		m.Add(v)
		if got, want := m.String("<"+v.Reveal()+">"), fmt.Sprintf("<[secret:k%d]>", i); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	close(stop)
	reading.Wait()
	together := secret.NewMasker(values...)
	together.MaskShapes(nil)
	if got, want := m.String(text.String()), together.String(text.String()); got != want {
		t.Errorf("%.300q, want %.300q", got, want)
	}
	start := time.Now()
	for i := range 1000 {
		m.Add(secret.New("more", fmt.Sprintf("ghp_%06dMMMMbbbb1111ccccDDDD2222eeeeFF", i)))
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("a thousand values took %s", took)
	}
}

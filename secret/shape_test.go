package secret_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/secret"
)

// drawn is text that a vendor could have drawn: the same each time.
func drawn(seed uint64, n int, chars string) string {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = chars[rng.IntN(len(chars))]
	}
	return string(b)
}

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	capital = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	digits  = "0123456789abcdef"
	base64s = letters + "+/"
	urlSafe = letters + "-_"
)

// shaped are keys by their kind. They are put together here, so that no scanner
// of repositories takes them for real.
func shaped() map[string][]string {
	privateKey := func(kind, eol string) string {
		var b strings.Builder
		b.WriteString("-----BEGIN " + kind + "-----" + eol)
		for i := range uint64(6) {
			b.WriteString(drawn(i, 64, base64s) + eol)
		}
		return b.String() + "-----END " + kind + "-----"
	}
	return map[string][]string{
		"aws-access-key":     {"AKIA" + drawn(1, 16, capital), "ASIA" + drawn(2, 16, capital)},
		"github-token":       {"ghp_" + drawn(3, 36, letters), "ghs_" + drawn(4, 36, letters), "github_pat_" + drawn(5, 22, letters) + "_" + drawn(6, 59, letters)},
		"openai-key":         {"sk-proj-" + drawn(7, 150, urlSafe+"x"), "sk-svcacct-" + drawn(8, 60, letters)},
		"api-key":            {"sk-" + drawn(9, 48, letters), "sk-" + drawn(10, 32, digits)},
		"anthropic-key":      {"sk-ant-api03-" + drawn(11, 93, urlSafe) + "AA"},
		"openrouter-key":     {"sk-or-v1-" + drawn(12, 64, digits)},
		"google-key":         {"AIza" + drawn(13, 35, urlSafe)},
		"google-token":       {"ya29." + drawn(14, 120, urlSafe)},
		"google-secret":      {"GOCSPX-" + drawn(15, 28, urlSafe)},
		"slack-token":        {"xoxb-" + drawn(16, 12, "0123456789") + "-" + drawn(17, 12, "0123456789") + "-" + drawn(18, 24, letters), "xapp-1-A" + drawn(19, 60, letters)},
		"slack-webhook":      {"hooks.slack.com/services/T" + drawn(20, 10, capital) + "/B" + drawn(21, 10, capital) + "/" + drawn(22, 24, letters)},
		"stripe-key":         {"sk_live_" + drawn(23, 24, letters), "rk_test_" + drawn(24, 99, letters)},
		"stripe-secret":      {"whsec_" + drawn(25, 32, letters)},
		"npm-token":          {"npm_" + drawn(26, 36, letters)},
		"pypi-token":         {"pypi-AgEIcHlwaS5vcmc" + drawn(27, 150, urlSafe)},
		"gitlab-token":       {"glpat-" + drawn(28, 20, letters)},
		"huggingface-token":  {"hf_" + drawn(29, 34, letters)},
		"digitalocean-token": {"dop_v1_" + drawn(30, 64, digits)},
		"sendgrid-key":       {"SG." + drawn(31, 22, letters) + "." + drawn(32, 43, letters)},
		"groq-key":           {"gsk_" + drawn(33, 52, letters)},
		"xai-key":            {"xai-" + drawn(34, 80, letters)},
		"shopify-token":      {"shpat_" + drawn(35, 32, digits)},
		"jwt":                {"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ" + drawn(36, 80, letters) + "." + drawn(37, 43, urlSafe)},
		"private-key": {privateKey("RSA PRIVATE KEY", "\n"), privateKey("PRIVATE KEY", "\r\n"), privateKey("OPENSSH PRIVATE KEY", `\n`),
			privateKey("PGP PRIVATE KEY BLOCK", "\n")},
	}
}

// beside are keys that are known by what stands before them.
func beside() map[string]string {
	aws := drawn(40, 40, base64s)
	return map[string]string{
		"aws_secret_access_key = " + aws:                            aws,
		"AWS_SECRET_ACCESS_KEY=" + aws:                              aws,
		`"SecretAccessKey": "` + aws + `"`:                          aws,
		"Authorization: Bearer " + drawn(41, 30, urlSafe):           drawn(41, 30, urlSafe),
		"> authorization: Basic " + drawn(42, 24, letters) + "\r\n": drawn(42, 24, letters),
		`{"Authorization":"token ` + drawn(43, 40, digits) + `"}`:   drawn(43, 40, digits),
	}
}

func shapeMasker(values ...secret.Value) *secret.Masker {
	m := secret.NewMasker(values...)
	m.MaskShapes(nil)
	return m
}

// A key that nobody told of is replaced by what it is, wherever text can end or
// begin beside it.
func TestShapes(t *testing.T) {
	m := shapeMasker()
	for kind, keys := range shaped() {
		mark := "[secret:?" + kind + "]"
		for _, key := range keys {
			for _, around := range [][2]string{{"", ""}, {"key: ", "\n"}, {`{"k":"`, `"}`}, {"KEY=", " next"}, {"(", ")"}, {"https://u:", "@host/"}, {"'", "'"}} {
				if got, want := m.String(around[0]+key+around[1]), around[0]+mark+around[1]; got != want {
					t.Errorf("%s: %q gives %q", kind, around[0]+key+around[1], got)
				}
			}
			if got := m.String("x" + key); got == "x"+mark && kind != "private-key" {
				t.Errorf("%s: within a word: %q", kind, got)
			}
		}
	}
	for text, key := range beside() {
		got := m.String(text)
		if strings.Contains(got, key) || !strings.Contains(got, "[secret:?a") || len(got) < len(text)-len(key) {
			t.Errorf("%q gives %q", text, got)
		}
	}
}

// What documents show, and what only looks like a beginning, is left.
func TestShapesLeave(t *testing.T) {
	m := shapeMasker()
	hash := drawn(50, 40, digits)
	for _, text := range []string{
		"AKIAIOSFODNN7EXAMPLE", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		"ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "sk-" + strings.Repeat("0", 48),
		"sk-learn-contrib/some-package-of-a-name-that-is-long", "task-" + hash, "risk-" + drawn(51, 48, letters), "npm_config_registry=https://registry.npmjs.org",
		"npm_lifecycle_script=node-gyp-build-optional-packages", "hf_hub_download(repo_id, filename)", "glpat-", "pypi-server", "AIzaBase", "eyJhbGci.",
		"Authorization: Bearer $TOKEN", "Authorization: Bearer <token>", "Authorization: Bearer [secret:key]", "Authorization: Bearer short",
		"-----BEGIN CERTIFICATE-----\n" + drawn(52, 64, base64s) + "\n-----END CERTIFICATE-----",
		"-----BEGIN PUBLIC KEY-----\n" + drawn(53, 64, base64s) + "\n-----END PUBLIC KEY-----",
		"-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----", `grep -- "-----BEGIN RSA PRIVATE KEY-----" *`,
		"sha256:" + drawn(54, 64, digits), "commit " + hash, "sb-01m8nrx7f3hsy7wbed87tsatya", "SG.com and SG.net", drawn(55, 400, base64s), "[secret:?github-token]",
	} {
		if got := m.String(text); got != text {
			t.Errorf("%q gives %q", text, got)
		}
	}
}

// A key that is a part of what was known, and one that is exempt.
func TestShapesBesideValues(t *testing.T) {
	key := shaped()["github-token"][0]
	other := "ghp_" + drawn(60, 36, letters)
	m := shapeMasker(secret.New("gh", key))
	if got, want := m.String(key+" "+other+" Bearer "+key), "[secret:gh] [secret:?github-token] Bearer [secret:gh]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := m.String("Authorization: Bearer "+key), "Authorization: Bearer [secret:gh]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if known := m.FindKnown([]byte(other + key)); len(known) != 1 || known[0].Mark != "[secret:gh]" || len(m.Find([]byte(other+" "+key))) != 2 {
		t.Errorf("known: %v", known)
	}
	m.MaskShapes(func(text []byte) bool { return string(text) == other })
	if got, want := m.String(other+" "+key), other+" [secret:gh]"; got != want {
		t.Errorf("exempt: %q, want %q", got, want)
	}
	m.Add(secret.New("more", "another value"))
	if got := m.String("another value " + "AKIA" + drawn(61, 16, capital)); got != "[secret:more] [secret:?aws-access-key]" {
		t.Errorf("after Add: %q", got)
	}
}

// However a text is cut into writes, no key of a known shape remains in it.
func TestShapesSplit(t *testing.T) {
	m := shapeMasker()
	all := shaped()
	for text, key := range beside() {
		all[text] = []string{text, key}
	}
	for kind, keys := range all {
		text, key := "the key is: "+keys[0]+"\nnext line", keys[len(keys)-1]
		if !strings.Contains(text, key) {
			key = keys[0]
		}
		want := m.String(text)
		for at := range text {
			for _, size := range []int{1, len(text)} { // byte by byte from there on, or in one
				var out bytes.Buffer
				w := m.Writer(&out)
				write(t, w, text[:at])
				for rest := text[at:]; rest != ""; {
					n := min(size, len(rest))
					write(t, w, rest[:n])
					rest = rest[n:]
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if out.String() != want || strings.Contains(out.String(), key) {
					t.Fatalf("%s cut at %d: %q, want %q", kind, at, out.String(), want)
				}
			}
		}
	}
}

func write(t *testing.T, w interface{ Write([]byte) (int, error) }, s string) {
	t.Helper()
	if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("Write: %d, %v", n, err)
	}
}

// A piece of a key at the end of a text that goes on is left out.
func TestShapesPartial(t *testing.T) {
	m := shapeMasker()
	for kind, keys := range shaped() {
		text := "key: " + keys[0]
		for cut := len("key: ") + 12; cut < len(text); cut++ {
			if _, end := m.Partial([]byte(text[:cut])); end != cut-len("key: ") {
				t.Errorf("%s cut at %d of %d: left out %d", kind, cut, len(text), end)
				break
			}
		}
	}
}

// A key in JSON is masked in its string.
func TestShapesJSON(t *testing.T) {
	m := shapeMasker()
	for kind, keys := range shaped() {
		for _, key := range keys {
			text, err := json.Marshal(map[string]any{"a": "x " + key, "b": []string{key}})
			if err != nil {
				t.Fatal(err)
			}
			want, _ := json.Marshal(map[string]any{"a": "x [secret:?" + kind + "]", "b": []string{"[secret:?" + kind + "]"}})
			if got := m.JSON(text); string(got) != string(want) {
				t.Errorf("%s: %s, want %s", kind, got, want)
			}
		}
	}
}

// What is between two members that hold the first line of a key and its last stays.
func TestShapesJSONMembers(t *testing.T) {
	text := `{"a":"-----BEGIN PRIVATE KEY-----","ok":false,"b":"` + drawn(70, 200, letters) + `","c":"-----END PRIVATE KEY-----"}`
	if got := string(shapeMasker().JSON([]byte(text))); got != text {
		t.Errorf("%s", got)
	}
}

// A text that never ends a key holds back no more than a key can have.
func TestShapesHoldBackLittle(t *testing.T) {
	m := shapeMasker()
	for _, begin := range []string{"ghp_", "eyJhbGci", "-----BEGIN PRIVATE KEY-----\n", "Authorization: Bearer "} {
		var out bytes.Buffer
		w := m.Writer(&out)
		write(t, w, begin)
		for range 100 {
			write(t, w, strings.Repeat("aB3", 1000))
		}
		if held := len(begin) + 300_000 - out.Len(); held > 17<<10 {
			t.Errorf("%q holds back %d bytes", begin, held)
		}
	}
}

// What a program says of keys in PEM may be shown where a page of it ends.
func TestShapesSpokenOf(t *testing.T) {
	m := shapeMasker()
	for _, text := range []string{
		"const begin = \"-----BEGIN RSA PRIVATE KEY-----\"\n\nfunc isKey(s string) bool {\n\treturn strings.Contains(s, begin)\n",
		"if '-----BEGIN PRIVATE KEY-----' in text:\n    found_key = True\n",
		"-----BEGIN PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\nMII",
	} {
		if _, end := m.Partial([]byte(text)); end != 0 {
			t.Errorf("%q: %d bytes could be a key's", text, end)
		}
	}
	for _, text := range []string{"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMII", `-----BEGIN PRIVATE KEY-----\n" +` + "\n  \"MII", "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIV"} {
		if _, end := m.Partial([]byte(text)); end != len(text) {
			t.Errorf("%q: %d bytes could be a key's", text, end)
		}
	}
}

// A text of nothing but beginnings costs what it is long, not the square of that:
// four times the text takes about four times the processor, and not sixteen times.
func TestShapesOfBeginnings(t *testing.T) {
	runtime.LockOSThread() // whose time is taken
	defer runtime.UnlockOSThread()
	m := shapeMasker()
	for _, begin := range []string{"-----BEGIN PRIVATE KEY-----", "_eyJhbGciOi", "-sk-proj-", "Authorization: Bearer "} {
		cost := func(size int) time.Duration {
			text := strings.Repeat(begin, size/len(begin))
			before := threadTime(t)
			w := m.Writer(io.Discard)
			for rest := text; rest != ""; {
				n := min(100, len(rest))
				write(t, w, rest[:n])
				rest = rest[n:]
			}
			return threadTime(t) - before
		}
		ratio := math.Inf(1)
		for i := 0; i < 20 && ratio >= 8; i++ {
			ratio = min(ratio, float64(cost(256<<10))/float64(cost(64<<10)))
		}
		if ratio >= 8 {
			t.Errorf("%q: 256 KiB take %.1f times what 64 KiB take", begin, ratio)
		}
	}
}

// threadTime is the processor time of this thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// In the logs of compilers, test runners, package managers and whole jobs there is
// no key, and none is found.
func TestShapesInLogs(t *testing.T) {
	logs, err := filepath.Glob("../evidence/testdata/corpus/*.log.gz")
	if err != nil || len(logs) < 50 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	m := shapeMasker()
	for _, path := range logs {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		for _, s := range m.Find(text) {
			t.Errorf("%s: %s for %q", path, s.Mark, text[s.Start:s.End])
		}
	}
}

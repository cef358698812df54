package price_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/price"
)

func day(s string) time.Time {
	d, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return d
}

func published(t testing.TB) *price.Table {
	t.Helper()
	table, err := price.Published()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestPublished(t *testing.T) {
	vendors := map[string]int{}
	for _, r := range published(t).Rows() {
		vendors[r.Vendor]++
		if r.Price.Input <= 0 || r.Price.Output < r.Price.Input || r.Price.Cached >= r.Price.Input || r.Read.Before(day("2026-01-01")) {
			t.Errorf("%s/%s: %+v, read %s", r.Vendor, r.Model, r.Price, r.Read.Format(time.DateOnly))
		}
		if w := r.Price.CacheWrite; w != 0 && math.Abs(w/r.Price.Input-1.25) > 1e-9 {
			t.Errorf("%s/%s: writing costs %v", r.Vendor, r.Model, w)
		}
	}
	for _, v := range []string{"openai", "anthropic", "gemini"} {
		if vendors[v] < 5 {
			t.Errorf("%d prices of %s", vendors[v], v)
		}
	}
}

func TestFind(t *testing.T) {
	table := published(t)
	now := day("2026-11-30")
	for _, c := range []struct {
		vendor, model string
		at            time.Time
		input         float64 // 0: not there
	}{
		{"anthropic", "claude-opus-5-5", now, 4},
		{"anthropic", "claude-haiku-4-5-20251001", now, 1},
		{"openai", "gpt-5.4-2026-03-05", now, 2.5},
		{"gemini", "gemini-3.8-flash", now, 0.75},
		{"gemini", "gemini-3.8-flash", day("2027-01-01"), 1.5},
		{"openai", "claude-opus-5-5", now, 0},
		{"openai", "gpt-5.4-latest", now, 0},
		{"openai", "", now, 0},
		{"openai", "-20251001", now, 0},
	} {
		r, ok := table.Find(c.vendor, c.model, c.at)
		if ok != (c.input > 0) || r.Price.Input != c.input {
			t.Errorf("%s/%s at %s: %v, %+v", c.vendor, c.model, c.at.Format(time.DateOnly), ok, r)
		}
	}
}

func TestCost(t *testing.T) {
	const million = 1_000_000
	flat := price.Price{Input: 2, Output: 10}
	full := price.Price{Input: 2, Cached: 0.2, CacheWrite: 2.5, Output: 10, Over: million, Long: &price.Price{Input: 4, Cached: 0.4, Output: 15}}
	untold := full
	untold.WritesUntold = true
	for _, c := range []struct {
		name string
		p    price.Price
		t    price.Tokens
		want int64 // billionths
	}{
		{"nothing", flat, price.Tokens{}, 0},
		{"free", price.Price{}, price.Tokens{Input: million, Output: million}, 0},
		{"plain", flat, price.Tokens{Input: million, Output: million}, 12e9},
		{"cached at the full price", flat, price.Tokens{Input: million, Cached: million}, 2e9},
		{"each kind", full, price.Tokens{Input: million, Cached: 500_000, Written: 100_000, Output: 1}, 800e6 + 100e6 + 250e6 + 10_000},
		{"untold", untold, price.Tokens{Input: million, Cached: 500_000}, 100e6 + 1250e6},
		{"long", full, price.Tokens{Input: million + 1, Cached: million, Output: 10}, 400e6 + 4_000 + 150_000},
		{"rounded up", price.Price{Input: 0.0000001}, price.Tokens{Input: 1}, 1},
		{"more cached than there is", full, price.Tokens{Input: 10, Cached: 20, Written: 20}, 2_000},
		{"negative", full, price.Tokens{Input: -10, Cached: -20, Written: -3, Output: -1}, 0},
		{"too much", price.Price{Input: price.MaxRate}, price.Tokens{Input: math.MaxInt64}, math.MaxInt64},
	} {
		if got := c.p.Cost(c.t); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// Whatever part of its input turns out to be cached, a request within the
// tokens it was reserved for costs no more than the most it can.
func TestMostIsTheMost(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	rows := published(t).Rows()
	for range 50_000 {
		p := rows[rng.IntN(len(rows))].Price
		in, out := rng.Int64N(600_000), rng.Int64N(100_000)
		used := price.Tokens{Input: rng.Int64N(in + 1), Output: rng.Int64N(out + 1)}
		used.Cached = rng.Int64N(used.Input + 1)
		used.Written = rng.Int64N(used.Input - used.Cached + 1)
		if cost, most := p.Cost(used), p.Most(in, out); cost > most {
			t.Fatalf("%+v of %d in, %d out: %d is more than %d (%+v)", used, in, out, cost, most, p)
		}
	}
}

const head = "vendor,model,input,cached,write,output,over,long_input,long_cached,long_write,long_output,from,read,source\n"

func TestReadRefuses(t *testing.T) {
	const good = "v,m,1,,,2,,,,,,,2026-01-02,https://example.com/prices\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "EOF"},
		{"other columns", "vendor,model\n", "wrong number of fields"},
		{"renamed columns", strings.Replace(head, "input", "in", 1), "the columns are"},
		{"a price", head + strings.Replace(good, ",1,", ",cheap,", 1), `line 2: input: "cheap" is no price`},
		{"no output", head + strings.Replace(good, ",2,", ",,", 1), `output: "" is no price`},
		{"a negative price", head + strings.Replace(good, ",1,", ",-1,", 1), "is no price"},
		{"no number", head + strings.Replace(good, ",1,", ",NaN,", 1), "is no price"},
		{"no day", head + strings.Replace(good, "2026-01-02", "yesterday", 1), "is no day"},
		{"no source", head + strings.Replace(good, "https://example.com/prices", "a friend", 1), "is no https address"},
		{"no name", head + strings.Replace(good, "v,m", "v,", 1), "is no name"},
		{"half a tier", head + "v,m,1,,,2,1000,,,,,,2026-01-02,https://example.com/\n", "go together"},
		{"a cheap tier", head + "v,m,1,,,2,1000,0.5,,,2,,2026-01-02,https://example.com/\n", "costs no less"},
		{"twice", head + "# a word\n" + good + good, "line 4: v/m has that price already"},
	} {
		if _, err := price.Read(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := price.Read(strings.NewReader(head + good)); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(head + "v,m,1,0.1,1.25,2,1000,2,,,4,2026-01-01,2026-01-02,https://example.com/\n"))
	f.Add([]byte(head + "\"v\",m,1e3,,,2,,,,,,,2026-01-02,https://example.com/\n#\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := price.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, r := range table.Rows() {
			if got, ok := table.Find(r.Vendor, r.Model, r.From); !ok || got.Model != r.Model {
				t.Errorf("%s/%s is not found", r.Vendor, r.Model)
			}
			if r.Price.Cost(price.Tokens{Input: 2000, Output: 10}) > r.Price.Most(2000, 10) {
				t.Errorf("%+v costs more than the most", r)
			}
		}
	})
}

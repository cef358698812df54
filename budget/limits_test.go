package budget_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/budget"
)

// The numbers users are promised.
func TestPresets(t *testing.T) {
	call := budget.Limits{CallTimeout: 60 * time.Second, MaxCallTimeout: 120 * time.Second, OutputBytes: 16384, OutputLines: 400}
	with := func(n int, wall time.Duration, tokens int64, dollars float64) budget.Limits {
		l := call
		l.MaxSteps, l.MaxToolCalls, l.MaxWallTime, l.MaxTokens, l.MaxCost = n, n, wall, tokens, budget.Dollars(dollars)
		return l
	}
	want := map[string]budget.Limits{
		"quick":    with(10, 5*time.Minute, 200_000, 1),
		"standard": with(20, 15*time.Minute, 1_000_000, 5),
		"long":     with(200, 2*time.Hour, 10_000_000, 25),
		"wrap":     with(200, time.Hour, 5_000_000, 5),
		"mcp":      with(500, 8*time.Hour, 10_000_000, 25),
	}
	got := map[string]budget.Limits{}
	for _, name := range budget.Presets() {
		l, ok := budget.Preset(name)
		if !ok || l.Validate() != nil {
			t.Errorf("preset %s: %v, %v", name, ok, l.Validate())
		}
		got[name] = l
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, ok := budget.Preset("unlimited"); ok {
		t.Error("there is a preset that does not exist")
	}
}

// Every field that is zero, negative or out of range is named; none means "no limit".
func TestValidate(t *testing.T) {
	for field, bad := range map[string][]int64{
		"CallTimeout":    {0, -1},
		"MaxCallTimeout": {0, -1, int64(time.Second)},
		"OutputBytes":    {0, -1, 1023, 1<<20 + 1},
		"OutputLines":    {0, -1, 7},
		"MaxSteps":       {0, -1},
		"MaxToolCalls":   {0, -1},
		"MaxWallTime":    {0, -1},
		"MaxTokens":      {0, -1},
		"MaxCost":        {0, -1},
		"TTL":            {-1, 1, int64(time.Minute)},
	} {
		for _, n := range bad {
			l := budget.Standard()
			reflect.ValueOf(&l).Elem().FieldByName(field).SetInt(n)
			err := l.Validate()
			e, ok := errors.AsType[*budget.InvalidError](err)
			if !ok || e.Field != field || !strings.Contains(err.Error(), string(e.Limit)) || !strings.Contains(e.Hint(), e.Limit.Flag()) {
				t.Errorf("%s = %d: %v", field, n, err)
			}
		}
	}
	zero := budget.Limits{}.Validate()
	joined, ok := zero.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 8 { // all but MaxCallTimeout (0 is not below 0) and TTL
		t.Errorf("the zero Limits: %v", zero)
	}
	if _, err := budget.NewTree(budget.Limits{}, budget.TreeOptions{}); err == nil {
		t.Error("a Tree without limits")
	}
}

// Every limit is listed once, has a flag and a layer.
func TestList(t *testing.T) {
	var got []string
	for _, s := range budget.Standard().List() {
		got = append(got, s.Limit.Layer()+" "+s.Limit.Flag()+" "+s.Value)
	}
	want := []string{
		"call --call-timeout 1m", "call --max-call-timeout 2m", "call --output-bytes 16 KiB", "call --output-lines 400",
		"round --max-steps 20", "round --max-tool-calls 20",
		"run --max-wall-time 15m", "run --max-tokens 1000000", "run --max-cost $5.00",
		"resource --ttl 18m",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := reflect.TypeFor[budget.Limits]().NumField(); n != len(want) {
		t.Errorf("Limits has %d fields, %d are listed", n, len(want))
	}
	l := budget.Standard()
	l.TTL = 5 * time.Minute
	if s := l.List(); s[len(s)-1].Value != "5m" {
		t.Errorf("a TTL of 5 minutes is listed as %s", s[len(s)-1].Value)
	}
}

func TestFormat(t *testing.T) {
	for _, tc := range []struct {
		limit  budget.Limit
		amount int64
		want   string
	}{
		{budget.LimitWallTime, int64(2 * time.Hour), "2h"},
		{budget.LimitWallTime, int64(90 * time.Minute), "1h30m"},
		{budget.LimitWallTime, int64(10 * time.Second), "10s"},
		{budget.LimitWallTime, int64(20 * time.Minute), "20m"},
		{budget.LimitWallTime, int64(15*time.Minute + 1500*time.Microsecond), "15m0.002s"},
		{budget.LimitWallTime, 0, "0s"},
		{budget.LimitOutputBytes, 1000, "1000 B"},
		{budget.LimitOutputBytes, 0, "0 B"},
		{budget.LimitOutputBytes, 4096, "4 KiB"},
		{budget.LimitTokens, 1500, "1500"},
		{budget.LimitCost, int64(5 * budget.Dollar), "$5.00"},
	} {
		if got := tc.limit.Format(tc.amount); got != tc.want {
			t.Errorf("%s.Format(%d) = %q, want %q", tc.limit, tc.amount, got, tc.want)
		}
	}
}

func TestUSD(t *testing.T) {
	for _, tc := range []struct {
		d    float64
		want string
	}{
		{0, "$0.00"}, {5, "$5.00"}, {0.1, "$0.10"}, {0.0042, "$0.0042"}, {1e-9, "$0.000000001"}, {-1.5, "-$1.50"}, {25.000000001, "$25.000000001"},
		{math.NaN(), "$0.00"}, {math.Inf(1), "$9223372036.854775807"}, {-1e300, "-$9223372036.854775808"},
	} {
		if got := budget.Dollars(tc.d).String(); got != tc.want {
			t.Errorf("Dollars(%g) = %s, want %s", tc.d, got, tc.want)
		}
	}
	if d := budget.Dollars(0.15).Float(); d != 0.15 {
		t.Errorf("0.15 dollars came back as %g", d)
	}
}

package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/price"
)

// Price is what a model costs in dollars per million tokens, written
// "INPUT,OUTPUT", "INPUT,OUTPUT,CACHED" or "INPUT,OUTPUT,CACHED,CACHE_WRITE". The
// zero value is an unknown price; "0,0" is a known price of nothing.
type Price struct {
	Known bool
	price.Price
	// Source says where it is from, for people; it is not written.
	Source string
}

// UnmarshalText reads a price.
func (p *Price) UnmarshalText(text []byte) error {
	fields := strings.Split(string(text), ",")
	var rates [4]float64
	ok := len(fields) >= 2 && len(fields) <= len(rates)
	for i := 0; ok && i < len(fields); i++ {
		var err error
		rates[i], err = strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		ok = err == nil && rates[i] >= 0 && rates[i] <= price.MaxRate
	}
	if !ok {
		return fmt.Errorf("%q is no price; write dollars per million tokens as INPUT,OUTPUT, such as 2.5,10, and after them what cached input costs, and writing the cache", text)
	}
	*p = Price{Known: true, Price: price.Price{Input: rates[0], Output: rates[1], Cached: rates[2], CacheWrite: rates[3]}}
	return nil
}

// MarshalText writes the price; an unknown one is empty.
func (p Price) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p Price) String() string {
	if !p.Known {
		return ""
	}
	rates := []float64{p.Input, p.Output, p.Cached, p.CacheWrite}
	for len(rates) > 2 && rates[len(rates)-1] == 0 {
		rates = rates[:len(rates)-1]
	}
	var s []string
	for _, r := range rates {
		s = append(s, strconv.FormatFloat(r, 'f', -1, 64))
	}
	return strings.Join(s, ",")
}

// prices checks that each names a vendor's model.
func (v *validator) prices(prices map[string]Price, known Known) {
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		at := "prices." + name
		vendor, model, _ := strings.Cut(name, "/")
		switch {
		case model == "" || vendor == "":
			v.fault(at, "write VENDOR/MODEL, such as openai/gpt-5", "%q names no model", name)
		case !slices.Contains(known.Vendors, vendor):
			v.fault(at, DidYouMean(vendor, known.Vendors), "no vendor %q", vendor)
		case !prices[name].Known:
			v.fault(at, "write INPUT,OUTPUT in dollars per million tokens", "there is no price")
		}
	}
}

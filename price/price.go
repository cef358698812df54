// Package price is what models cost: a table of the vendors' published prices,
// each row with its source and the day that was read, and the arithmetic of a
// request's cost. A price that is not in the table is not known, and is not
// guessed.
package price

import (
	"math"
	"math/bits"
)

// Price of a model in dollars per million tokens, 0 to MaxRate. The zero Price
// is that of a model that costs nothing.
type Price struct {
	Input, Output float64
	// Cached is input read from the vendor's cache, CacheWrite input written to
	// it; 0 for either: as Input.
	Cached, CacheWrite float64
	// WritesUntold: the vendor charges for CacheWrite without saying how much was
	// written, so that all input that was not read from the cache counts as it.
	WritesUntold bool
	// Over, when above 0, is the input in tokens above which Long is the price of
	// the whole request.
	Over int64
	Long *Price
}

// MaxRate is the most a million tokens may cost.
const MaxRate = 1e6

// Tokens of one request. Input includes Cached and Written.
type Tokens struct{ Input, Cached, Written, Output int64 }

// Cost is what a request costs, in billionths of a dollar, rounded up.
func (p Price) Cost(t Tokens) int64 {
	p = p.tier(t.Input)
	input := max(t.Input, 0)
	cached := min(max(t.Cached, 0), input)
	written := min(max(t.Written, 0), input-cached)
	if p.WritesUntold {
		written = input - cached
	}
	var s sum
	s.add(input-cached-written, p.Input)
	s.add(cached, or(p.Cached, p.Input))
	s.add(written, or(p.CacheWrite, p.Input))
	s.add(max(t.Output, 0), p.Output)
	return s.nano()
}

// Most is the most a request with at most so many tokens can cost, in billionths
// of a dollar: all input at the dearest price there is for it.
func (p Price) Most(input, output int64) int64 {
	most := func(p Price) int64 {
		var s sum
		s.add(max(input, 0), max(p.Input, p.Cached, p.CacheWrite))
		s.add(max(output, 0), p.Output)
		return s.nano()
	}
	return max(most(p.tier(input)), most(p.tier(min(input, p.Over)))) // it may turn out shorter
}

// tier is the price of a request with that input.
func (p Price) tier(input int64) Price {
	if p.Over > 0 && p.Long != nil && input > p.Over {
		long := *p.Long
		long.WritesUntold = p.WritesUntold
		return long
	}
	return p
}

func or(rate, other float64) float64 {
	if rate == 0 {
		return other
	}
	return rate
}

// sum adds amounts in units of which a million are a billionth of a dollar,
// exactly, so that more tokens or a higher rate never come out cheaper.
type sum struct{ hi, lo uint64 }

// add adds tokens at a rate in dollars per million. One token costs rate*1e9
// units; a rate is exact to a billionth.
func (s *sum) add(tokens int64, rate float64) {
	if !(rate > 0) {
		return
	}
	unit := uint64(math.Round(min(rate, MaxRate) * 1e9))
	hi, lo := bits.Mul64(uint64(tokens), unit)
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi, _ = bits.Add64(s.hi, hi, carry)
}

// nano is the sum in billionths of a dollar, rounded up.
func (s *sum) nano() int64 {
	const unit = 1e6
	if s.hi >= unit {
		return math.MaxInt64
	}
	q, r := bits.Div64(s.hi, s.lo, unit)
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

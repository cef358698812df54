package budget

import (
	"fmt"
	"math"
	"strings"
)

// USD is an amount of money in billionths of a dollar, so that the price of one
// token is exact. It holds up to 9 billion dollars.
type USD int64

// Dollar is one dollar.
const Dollar USD = 1e9

// Dollars returns d dollars, rounded to the nearest billionth; the largest or
// smallest amount when d is out of range, 0 when d is not a number.
func Dollars(d float64) USD {
	switch n := math.Round(d * float64(Dollar)); {
	case math.IsNaN(n):
		return 0
	case n >= math.MaxInt64:
		return math.MaxInt64
	case n <= math.MinInt64:
		return math.MinInt64
	default:
		return USD(n)
	}
}

// Float returns the amount in dollars.
func (u USD) Float() float64 { return float64(u) / float64(Dollar) }

// String writes the amount exactly, with two decimals or as many as it needs:
// "$5.00", "$0.0042".
func (u USD) String() string {
	sign, n := "", uint64(u)
	if u < 0 {
		sign, n = "-", -n
	}
	cents := fmt.Sprintf("%09d", n%uint64(Dollar))
	cents = cents[:2] + strings.TrimRight(cents[2:], "0")
	return fmt.Sprintf("%s$%d.%s", sign, n/uint64(Dollar), cents)
}

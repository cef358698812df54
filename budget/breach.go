package budget

import (
	"cmp"
	"fmt"
	"strconv"
)

// Breach is a limit that stops the work. Used and Max are in the unit of the
// limit (Limit.Format writes them).
type Breach struct {
	Limit Limit
	Used  int64
	Max   int64
	Flag  string // what raises it; empty when nothing does
	// Kept is the part of Max that is set aside for the last turn, 0 when the
	// limit itself is used up.
	Kept int64
	// Needed is what was asked for and is more than is left; 0 when anything
	// would have been.
	Needed int64
	// Of is, for LimitProviderOverrun, what went over: LimitTokens or LimitCost.
	Of Limit
}

func breach(l Limit, used, most int64) *Breach {
	return &Breach{Limit: l, Used: used, Max: most, Flag: l.Flag()}
}

func (b *Breach) Error() string {
	if b.Limit == LimitProviderOverrun {
		return fmt.Sprintf("stopped by %s: a reply used %s, and at most %s were set aside for it", b.Limit, b.Format(b.Used), b.Format(b.Max))
	}
	s := fmt.Sprintf("stopped by %s: %s of %s", b.Limit, b.Format(b.Used), b.Format(b.Max))
	if b.Kept > 0 {
		s += ", " + b.Format(b.Kept) + " kept for the last turn"
	}
	if b.Needed > 0 {
		s += ", and the next request may need " + b.Format(b.Needed)
	}
	return s
}

// Format writes an amount of what the breach is about, with its unit.
func (b *Breach) Format(amount int64) string {
	if b.Of == LimitTokens {
		return strconv.FormatInt(amount, 10) + " tokens"
	}
	return cmp.Or(b.Of, b.Limit).Format(amount)
}

// Hint names the flag that raises the limit, or says what else there is to do.
func (b *Breach) Hint() string {
	if b.Limit == LimitProviderOverrun {
		return "the model's server counted more than it was asked for: check its address, and whether it keeps the cap of a reply"
	}
	return "raise it with " + b.Flag
}

// Warning says that a limit is nearly used up. Each is given once a limit (once
// a round, for the limits of a round) and mark; one event that passes both
// marks gives the higher only.
type Warning struct {
	Limit   Limit
	Percent int // 80 or 95
	Used    int64
	Max     int64
	Flag    string
}

func (w Warning) String() string {
	return fmt.Sprintf("%d%% of %s used: %s of %s (%s raises it)", w.Percent, w.Limit, w.Limit.Format(w.Used), w.Limit.Format(w.Max), w.Flag)
}

// marks remembers the highest mark that was told of each limit, and of which
// amount: a limit that was changed is told of anew.
type marks map[Limit]struct {
	percent int
	most    int64
}

// due appends the warning that is due of a limit, if one is.
func (m marks) due(list []Warning, l Limit, used, most int64) []Warning {
	for _, percent := range []int{95, 80} {
		if used < share(most, percent) {
			continue
		}
		known := m[l]
		if known.most == most && known.percent >= percent {
			break
		}
		known.percent, known.most = percent, most
		m[l] = known
		return append(list, Warning{Limit: l, Percent: percent, Used: used, Max: most, Flag: l.Flag()})
	}
	return list
}

// share is percent of n, rounded up, without overflow.
func share(n int64, percent int) int64 {
	p := int64(percent)
	return n/100*p + (n%100*p+99)/100
}

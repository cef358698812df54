package budget

import "fmt"

// Breach is a limit that stops the work. Used and Max are in the unit of the
// limit (Limit.Format writes them).
type Breach struct {
	Limit Limit
	Used  int64
	Max   int64
	Flag  string // what raises it
}

func breach(l Limit, used, most int64) *Breach {
	return &Breach{Limit: l, Used: used, Max: most, Flag: l.Flag()}
}

func (b *Breach) Error() string {
	return fmt.Sprintf("stopped by %s: %s of %s", b.Limit, b.Limit.Format(b.Used), b.Limit.Format(b.Max))
}

// Hint names the flag that raises the limit.
func (b *Breach) Hint() string { return "raise it with " + b.Flag }

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

// marks remembers the highest mark that was told of each limit.
type marks map[Limit]int

// due appends the warning that is due of a limit, if one is.
func (m marks) due(list []Warning, l Limit, used, most int64) []Warning {
	for _, percent := range []int{95, 80} {
		if used < share(most, percent) {
			continue
		}
		if m[l] >= percent {
			break
		}
		m[l] = percent
		return append(list, Warning{Limit: l, Percent: percent, Used: used, Max: most, Flag: l.Flag()})
	}
	return list
}

// share is percent of n, rounded up, without overflow.
func share(n int64, percent int) int64 {
	p := int64(percent)
	return n/100*p + (n%100*p+99)/100
}

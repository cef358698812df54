package tool

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

// MaxNetwork is how many records of the network a result has. All are in the
// record of the sandbox.
const MaxNetwork = 20

// FewerRecords returns the result with no more than so many records of the
// network: what was refused before what was allowed, and each target before any
// of them again.
func (r Result) FewerRecords(most int) Result {
	if len(r.Network) <= most {
		return r
	}
	type target struct {
		host, proto, verdict string
		port                 int
	}
	seen := map[target]bool{}
	rank := make([]int, len(r.Network)) // the lowest are shown
	order := make([]int, len(r.Network))
	for i, n := range r.Network {
		order[i] = i
		if n.Verdict != "deny" {
			rank[i]++
		}
		t := target{cmp.Or(n.Name, n.Address), n.Proto, n.Verdict, n.Port}
		if seen[t] {
			rank[i] += 2
		}
		seen[t] = true
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	order = order[:max(most, 0)]
	slices.Sort(order)
	r.NetworkLeft += len(r.Network) - len(order)
	kept := make([]sandbox.NetworkRecord, len(order))
	for i, at := range order {
		kept[i] = r.Network[at]
	}
	r.Network = kept
	return r
}

// refusedBecause is why an attempt was refused, with the rule when the reason does
// not name it.
func refusedBecause(n *sandbox.NetworkRecord) string {
	if n.Rule == "" || n.Rule == policy.RuleDefault || strings.Contains(n.Reason, n.Rule) {
		return n.Reason
	}
	return n.Reason + " (" + n.Rule + ")"
}

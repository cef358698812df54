package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/rein-sh/rein/sandbox"
)

// HostReached is one host that the sandbox reached or tried to, all its
// connections to one port taken together.
type HostReached struct {
	Host  string `json:"host"` // a name, or an address
	Port  int    `json:"port,omitempty"`
	Proto string `json:"proto"` // tls, http, tcp, dns, udp, icmp, other
	// Verdict is allow, deny, or report: it would have been denied.
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Count   int    `json:"count"`
	// BytesOut left the sandbox, BytesIn came back.
	BytesOut int64 `json:"bytes_out,omitempty"`
	BytesIn  int64 `json:"bytes_in,omitempty"`
}

// Reached reports whether anything got there, or came from there: of a connection
// on which every request was refused, or that was allowed in vain, nothing did.
func (h HostReached) Reached() bool { return h.Verdict != "deny" && h.BytesOut+h.BytesIn > 0 }

// hostsOf takes records together. Those that were reached come first, the first
// MaxNetwork of each kind; left is how many there are besides.
func hostsOf(records []sandbox.NetworkRecord) (hosts []HostReached, left int) {
	at := map[HostReached]int{} // by what they share
	var all []HostReached
	for _, n := range records {
		h := HostReached{Host: n.Name, Port: n.Port, Proto: n.Proto, Verdict: n.Verdict, Rule: n.Rule, Reason: n.Reason}
		switch {
		case h.Host == "":
			h.Host = n.Address
		case n.Proto == "dns": // the port is that of who was asked for the name
			h.Port = 0
		}
		i, ok := at[h]
		if !ok {
			i = len(all)
			at[h], all = i, append(all, h)
		}
		all[i].Count += n.Count
		all[i].BytesOut += n.BytesOut
		all[i].BytesIn += n.BytesIn
	}
	for _, reached := range []bool{true, false} {
		these := slices.DeleteFunc(slices.Clone(all), func(h HostReached) bool { return h.Reached() != reached })
		n := min(len(these), MaxNetwork)
		hosts, left = append(hosts, these[:n]...), left+len(these)-n
	}
	return hosts, left
}

// Refused tells the watcher of targets that the sandbox tried after the record
// with that number and that were refused, and returns the number of the newest.
func (s *Session) Refused(ctx context.Context, after uint64) uint64 {
	log, err := sandbox.NetworkRecords(ctx, s.r.o.Provider, s.Sandbox().ID(), after)
	if err != nil {
		return after // the record is read again at the end, which says what is wrong
	}
	for _, n := range log.Records {
		if n.Verdict == "deny" {
			s.r.emit(Event{Kind: EventNetwork, Text: fmt.Sprintf("refused %s %s:%d: %s", n.Proto, cmp.Or(n.Name, n.Address), n.Port, n.Reason)})
		}
	}
	return max(after, log.Last)
}

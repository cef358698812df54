package policy_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress/policy"
)

// hundreds is a policy of 200 rules: names, wildcards, ranges and denials.
func hundreds(b *testing.B) *policy.Policy {
	var d policy.Document
	for i := range 50 {
		d.Rules = append(d.Rules, policy.Rule{Host: fmt.Sprintf("host%d.example.org", i)},
			policy.Rule{Host: fmt.Sprintf("*.zone%d.example.net", i)},
			policy.Rule{CIDR: fmt.Sprintf("20.%d.0.0/16", i)},
			policy.Rule{Host: fmt.Sprintf("bad.zone%d.example.net", i), Action: "deny"})
	}
	return compile(b, d)
}

// What one decision costs, with 200 rules; it is to take less than 2 µs.
func BenchmarkDecide(b *testing.B) {
	p := hundreds(b)
	public, private := addr("20.49.1.1"), addr("10.0.0.1")
	for _, c := range []struct {
		name string
		want policy.Action
		ask  func() policy.Verdict
	}{
		{"name", policy.Allow, func() policy.Verdict { return p.Name("host49.example.org") }},
		{"exact", policy.Allow, func() policy.Verdict { return p.Connect("host49.example.org", 443) }},
		{"wildcard", policy.Allow, func() policy.Verdict { return p.Connect("a.b.c.zone49.example.net", 443) }},
		{"denied", policy.Deny, func() policy.Verdict { return p.Connect("bad.zone49.example.net", 443) }},
		{"unknown", policy.Deny, func() policy.Verdict { return p.Connect("a.b.c.d.example.com", 443) }},
		{"address", policy.Allow, func() policy.Verdict { return p.Address("host49.example.org", public, 443, nil) }},
		{"private", policy.Deny, func() policy.Verdict { return p.Address("host49.example.org", private, 443, nil) }},
		{"literal", policy.Allow, func() policy.Verdict { return p.Literal(public, 443, nil) }},
		{"server", policy.Allow, func() policy.Verdict { return p.Server("host49.example.org", 443, "host49.example.org") }},
		{"http", policy.Allow, func() policy.Verdict { return p.HTTP("host49.example.org", 80, "host49.example.org", "GET", "/") }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			before := spent(b)
			for b.Loop() {
				if v := c.ask(); v.Action != c.want {
					b.Fatal(v)
				}
			}
			b.ReportMetric(float64(spent(b)-before)/float64(b.N), "cpu-ns/op") // holds on a busy machine too
		})
	}
}

// spent is the processor time of this process so far.
func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

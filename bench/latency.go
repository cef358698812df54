package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// A subject makes isolated machines. Create returns when a command can be run.
type subject struct {
	name   string
	create func(context.Context) (machine, error)
	// fleeting subjects have no machine apart from the command.
	fleeting bool
}

// A machine runs the command true, and can be ended.
type machine interface {
	command(context.Context) error
	end(context.Context) error
}

// figures of one subject.
type figures struct {
	ready, command []time.Duration
}

// The subjects the targets compare.
const (
	reinRunc   = "rein, runc"
	reinGVisor = "rein, gVisor"
	docker     = "docker run -d / exec"
)

// latency measures all subjects turn by turn, so that what disturbs the
// machine disturbs all of them.
func latency(ctx context.Context, c config) error {
	subjects, notes, err := subjects(ctx, c)
	if err != nil {
		return err
	}
	results := map[string]*figures{}
	for _, s := range subjects {
		results[s.name] = &figures{}
	}
	each := max(c.commands/c.creates, 1)
	for i := range c.creates + 1 {
		for _, s := range subjects {
			f, err := once(ctx, s, each)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if i == 0 {
				continue // the first of each warms caches
			}
			r := results[s.name]
			r.ready = append(r.ready, f.ready...)
			r.command = append(r.command, f.command...)
		}
	}
	printLatency(subjects, results, notes)
	return nil
}

// once makes one machine, runs n commands in it, and ends it.
func once(ctx context.Context, s subject, n int) (f figures, err error) {
	start := time.Now()
	m, err := s.create(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, m.end(context.WithoutCancel(ctx))) }()
	if !s.fleeting {
		f.ready = append(f.ready, time.Since(start))
		if err := m.command(ctx); err != nil { // opens connections
			return f, err
		}
	}
	for range n {
		start := time.Now()
		if err := m.command(ctx); err != nil {
			return f, err
		}
		f.command = append(f.command, time.Since(start))
	}
	return f, nil
}

func printLatency(subjects []subject, results map[string]*figures, notes []string) {
	fmt.Println("\nLatency (create: until a command can be run; command: true)")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tcreate p50\tp99\tcommand p50\tp99\tn\t")
	for _, s := range subjects {
		r := results[s.name]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d/%d\t\n", s.name,
			ms(quantile(r.ready, 50)), ms(quantile(r.ready, 99)),
			ms(quantile(r.command, 50)), ms(quantile(r.command, 99)), len(r.ready), len(r.command))
	}
	w.Flush()
	for _, n := range notes {
		fmt.Println("not measured:", n)
	}

	peer, ok := results[docker]
	if !ok {
		return
	}
	fmt.Println("\nTargets, by p50")
	for _, t := range []struct {
		subject         string
		create, command float64
	}{{reinRunc, 3, 20}, {reinGVisor, 1.5, 5}} {
		r := results[t.subject]
		target(t.subject+": ready faster than docker run", ratio(peer.ready, r.ready), t.create, "×")
		target(t.subject+": command faster than docker exec", ratio(peer.command, r.command), t.command, "×")
	}
}

// target prints a figure that should be at least want.
func target(what string, got, want float64, unit string) {
	word := "met"
	if got < want {
		word = "MISSED"
	}
	fmt.Printf("  %-52s %8.1f%s  (target %g%s)  %s\n", what, got, unit, want, unit, word)
}

func ratio(peer, ours []time.Duration) float64 {
	if len(ours) == 0 {
		return 0
	}
	return float64(quantile(peer, 50)) / float64(quantile(ours, 50))
}

// quantile returns the p-th percentile by nearest rank, 0 of nothing.
func quantile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return s[min((len(s)*p+99)/100, len(s))-1]
}

func ms(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

package run_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/inference"
	"github.com/rein-sh/rein/price"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/telemetry"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// metered does work that asks models by the meter that its sandbox's gateway has.
func metered(t *testing.T, o run.Options, work func(context.Context, inference.Meter) run.Reason) *run.Report {
	t.Helper()
	g := &gateway{Provider: o.Provider}
	o.Provider = g
	if o.Metered == nil {
		o.Metered = &run.Metered{Rate: func(string) (price.Price, bool) { return price.Price{}, true }}
	}
	rep, err := run.Do(t.Context(), o, worker(func(ctx context.Context, _ *run.Session) (run.Outcome, error) {
		return run.Outcome{Reason: work(ctx, g.meter)}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func ask(input, likely, output int64) inference.Ask {
	return inference.Ask{Host: "api.example.org", API: inference.Messages, Model: "m", Input: input, Likely: likely, Output: output, Turn: "t"}
}

func used(input, output int64) inference.Ended {
	return inference.Ended{Usage: inference.Usage{Known: true, Input: input, Output: output}, Status: 200, Sent: true}
}

// begin asks for a request that has to be granted.
func begin(t *testing.T, ctx context.Context, m inference.Meter, a inference.Ask) (inference.Grant, func(inference.Ended)) {
	t.Helper()
	g, end, err := m.Begin(ctx, a)
	if err != nil || g.Stop != nil {
		t.Errorf("%+v: %+v %v", a, g.Stop, err)
		return g, func(inference.Ended) {}
	}
	return g, end
}

// Each request is a span in the run's trace, under the agent's.
func TestMeteredTraced(t *testing.T) {
	t.Parallel()
	o, spans := options(t), tracetest.NewSpanRecorder()
	recorder, err := telemetry.New(telemetry.Options{Tracers: trace.NewTracerProvider(trace.WithSpanProcessor(spans), trace.WithIDGenerator(telemetry.IDs{})), Meters: metric.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	o.Telemetry, o.Model, o.Agent = recorder, "anthropic/first", &run.AgentInfo{Name: "claude", Version: "1.2.3"}
	rep := metered(t, o, func(ctx context.Context, m inference.Meter) run.Reason {
		for _, e := range []inference.Ended{used(400, 100), {Status: 429, Sent: true}, {Status: 200, Sent: true, Cut: true}, {Error: "nobody is there"}} {
			_, end := begin(t, ctx, m, ask(1000, 500, 200))
			end(e)
		}
		return run.Done
	})
	var failures []string
	var root, chats int
	for _, s := range spans.Ended() {
		if s.SpanContext().TraceID().String() != rep.TraceID {
			t.Errorf("%s: trace %s", s.Name(), s.SpanContext().TraceID())
		}
		switch said := attribute.NewSet(s.Attributes()...); s.Name() {
		case "invoke_agent claude":
			root++
		case "chat m":
			chats++
			failure, _ := said.Value("error.type")
			failures = append(failures, failure.AsString())
			if box, _ := said.Value("rein.sandbox.id"); box.AsString() == "" || !s.Parent().IsValid() {
				t.Errorf("%v", s.Attributes())
			}
		}
	}
	if got := strings.Join(failures, " "); root != 1 || chats != 4 || got != " 429 cut no_answer" {
		t.Errorf("%d roots, %d requests, failures %q", root, chats, got)
	}
}

// A request that its vendor takes with no less than some cap is refused where that is
// not left, as by any limit, and else has it.
func TestMeteredLeast(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Limits.MaxTokens = 100_000
	rep := metered(t, o, func(ctx context.Context, m inference.Meter) run.Reason {
		a := ask(1000, 500, 0)
		a.Least = 40_000
		g, end := begin(t, ctx, m, a)
		if g.Output < a.Least || g.Output > 99_000 {
			t.Errorf("cap %d", g.Output)
		}
		end(used(900, 61_000))
		g, _, err := m.Begin(ctx, a)
		if err != nil || g.Stop == nil || g.Stop.Code != inference.StopBudget || !strings.Contains(g.Stop.Reason, "tokens") {
			t.Errorf("%+v, stop %+v, %v", g, g.Stop, err)
		}
		return run.OverBudget
	})
	if len(rep.Models) != 1 || rep.Models[0].Requests != 1 || rep.Models[0].Refused != 1 || rep.Brake == nil {
		t.Errorf("%+v, brake %+v", rep.Models, rep.Brake)
	}
}

func TestMetered(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Limits.MaxTokens, o.Limits.MaxSteps = 10_000, 5
	rep := metered(t, o, func(ctx context.Context, m inference.Meter) run.Reason {
		g, end := begin(t, ctx, m, ask(1000, 500, 20_000))
		if g.Output != 9000 {
			t.Errorf("cap %d, want what is left", g.Output)
		}
		end(used(400, 100))
		end(used(400, 100)) // counts once
		if g, end := begin(t, ctx, m, ask(1000, 500, 200)); g.Output != 200 {
			t.Errorf("cap %d", g.Output)
		} else {
			end(inference.Ended{Status: 500, Sent: true}) // costs nothing
		}
		_, end = begin(t, ctx, m, ask(1000, 500, 2000))
		end(inference.Ended{Status: 200, Sent: true, Cut: true}) // all that was set aside
		// More than is left by the bound, and not by what is likely: all of it is set aside.
		if g, end := begin(t, ctx, m, ask(9000, 4000, 0)); g.Output < 1024 || g.Output > 2500 {
			t.Errorf("cap %d", g.Output)
		} else {
			end(used(3900, g.Output))
		}
		g, _, err := m.Begin(ctx, ask(200, 150, 10))
		if err != nil || g.Stop == nil || g.Stop.Code != inference.StopBudget || !strings.Contains(g.Stop.Reason, "tokens") && !strings.Contains(g.Stop.Reason, "max_tokens") {
			t.Errorf("%+v %v", g.Stop, err)
		}
		return run.OverBudget
	})
	if rep.Steps != 4 || rep.Tokens.Total > 10_000 || rep.Tokens.Total != 500+3000+3900+2500 || !rep.Tokens.Estimated {
		t.Errorf("%d steps, %+v", rep.Steps, rep.Tokens)
	}
	if len(rep.Models) != 1 || rep.Models[0].Requests != 4 || rep.Models[0].Refused != 1 || rep.Models[0].Failed != 2 {
		t.Errorf("%+v", rep.Models)
	}
	if rep.Reason != run.OverBudget || rep.Brake == nil || rep.Brake.Limit != string(budget.LimitTokens) || rep.ExitCode != 4 {
		t.Errorf("%s %+v", rep.Reason, rep.Brake)
	}
}

// However many ask at once, what is counted stays within the limit, and nobody is
// refused for what another has only set aside.
func TestMeteredAtOnce(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Limits.MaxTokens, o.Limits.MaxSteps = 20_000, 100
	rep := metered(t, o, func(ctx context.Context, m inference.Meter) run.Reason {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, end := begin(t, ctx, m, ask(15_000, 1500, 4000))
				end(used(500, 100))
			})
		}
		all.Wait()
		return run.Done
	})
	if rep.Tokens.Total != 6000 || rep.Steps != 10 || rep.Brake != nil {
		t.Errorf("%+v %d %+v", rep.Tokens, rep.Steps, rep.Brake)
	}
}

// A vendor that counts more than could have been ends the run.
func TestMeteredOverrun(t *testing.T) {
	t.Parallel()
	o := options(t)
	rep := metered(t, o, func(ctx context.Context, m inference.Meter) run.Reason {
		_, end := begin(t, ctx, m, ask(100, 50, 100))
		end(used(100, 5000))
		<-ctx.Done()
		return run.Failed
	})
	if rep.Reason != run.OverBudget || rep.Brake == nil || rep.Brake.Limit != string(budget.LimitProviderOverrun) || rep.Tokens.Total != 5100 {
		t.Errorf("%s %+v %+v", rep.Reason, rep.Brake, rep.Tokens)
	}
}

// Money counts as tokens do, steps too, and when the work is over nobody is asked.
func TestMeteredMoney(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Limits.MaxCost, o.Limits.MaxSteps = budget.Dollars(0.01), 2
	o.Metered = &run.Metered{Rate: func(string) (price.Price, bool) { return price.Price{Input: 1, Output: 5}, true }}
	var late inference.Meter
	rep := metered(t, o, func(ctx context.Context, m inference.Meter) run.Reason {
		late = m
		g, end := begin(t, ctx, m, ask(1000, 500, 0))
		if g.Output != 1800 { // $0.001 for the input, $0.009 for the rest
			t.Errorf("cap %d", g.Output)
		}
		end(used(1000, 100))
		_, end = begin(t, ctx, m, ask(1000, 500, 1000))
		end(used(1000, 1000))
		if g, _, err := m.Begin(ctx, ask(1, 1, 1)); err != nil || g.Stop == nil || !strings.Contains(g.Stop.Reason, "max_steps") {
			t.Errorf("%+v %v", g.Stop, err)
		}
		return run.Done
	})
	if rep.Tokens.CostUSD != 0.0075 || rep.Models[0].CostUSD != 0.0075 {
		t.Errorf("%+v", rep.Tokens)
	}
	if g, _, err := late.Begin(t.Context(), ask(1, 1, 1)); err != nil || g.Stop == nil || g.Stop.Code != inference.StopClosed {
		t.Errorf("%+v %v", g.Stop, err)
	}
}

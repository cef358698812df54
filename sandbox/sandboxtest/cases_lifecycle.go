package sandboxtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

func lifecycleCases() []Case {
	labels := caps(sandbox.CapLabels)
	return []Case{
		{Name: "life/what create says", fresh: true, run: created},
		{Name: "life/probe is complete", run: probeComplete},
		{Name: "life/bad specs refused", run: badSpecs},
		{Name: "life/what is missing is refused", run: requireMissing},
		{Name: "life/list by label", Needs: labels, run: listByLabel},
		{Name: "life/unknown id", run: unknownSandbox},
		{Name: "life/created at once", Needs: caps(sandbox.CapExec, sandbox.CapLabels), run: createdAtOnce},
		{Name: "life/create and kill race", Needs: labels, run: createKillRace},
		{Name: "life/cancelled create leaves nothing", Needs: labels, run: cancelledCreate},
		{Name: "life/separate file systems", Needs: caps(sandbox.CapFiles), fresh: true, run: separate},
		{Name: "life/attach and close", Needs: caps(sandbox.CapExec), run: attachClose},
	}
}

func created(e *env) {
	info := e.Info()
	e.equal("provider", info.Provider, e.suite.provider.Name())
	e.equal("state", info.State, sandbox.StateRunning)
	if ttl := info.ExpiresAt.Sub(info.CreatedAt); ttl < 9*time.Minute || ttl > 11*time.Minute {
		e.Errorf("the sandbox lives %v, want 10 minutes", ttl)
	}
	if age := time.Since(info.CreatedAt); age < -time.Minute || age > time.Minute {
		e.Errorf("created at %v", info.CreatedAt)
	}
	if !strings.HasPrefix(info.Cwd, "/") || info.Image == "" {
		e.Errorf("cwd %q, image %q", info.Cwd, info.Image)
	}
	got, err := e.suite.provider.Get(e.Context(), e.ID())
	e.must(err)
	e.equal("get's id and state", got.ID+string(got.State), info.ID+string(info.State))
	e.equal("get's end", got.ExpiresAt.Equal(info.ExpiresAt), true)
	e.equal("labels", maps.Equal(got.Labels, e.suite.spec().Labels), true)
}

func probeComplete(e *env) {
	seen := map[sandbox.Capability]bool{}
	for _, a := range e.suite.report.Abilities {
		e.must(sandbox.CheckCapabilities(caps(a.Capability)))
		seen[a.Capability] = true
		if !a.Available && a.Reason == "" {
			e.Errorf("probe does not say why %q is not available", a.Capability)
		}
	}
	for _, c := range sandbox.Capabilities {
		if !seen[c] {
			e.Errorf("probe does not mention %q", c)
		}
	}
}

func badSpecs(e *env) {
	for name, change := range map[string]func(*sandbox.Spec){
		"no TTL":             func(s *sandbox.Spec) { s.TTL = 0 },
		"negative TTL":       func(s *sandbox.Spec) { s.TTL = -time.Second },
		"relative cwd":       func(s *sandbox.Spec) { s.Cwd = "work" },
		"bad label":          func(s *sandbox.Spec) { s.Labels = map[string]string{"a b": "c"} },
		"unknown capability": func(s *sandbox.Spec) { s.Require = caps("teleport") },
		"bad variable":       func(s *sandbox.Spec) { s.Env = map[string]string{"A=B": "c"} },
		"negative limit":     func(s *sandbox.Spec) { s.Resources.Memory = -1 },
	} {
		spec := e.suite.spec()
		change(&spec)
		sb, err := sandbox.Create(e.Context(), e.suite.provider, spec, sandbox.Options{Log: record()})
		if err == nil {
			e.Errorf("%s: was not refused", name)
			e.must(sb.Kill(e.Context()))
			continue
		}
		e.wantKind(err, sandbox.KindInvalid)
	}
}

func requireMissing(e *env) {
	for _, c := range sandbox.Capabilities {
		spec := e.suite.spec()
		spec.Require = caps(c)
		if e.suite.report.Has(c) {
			continue
		}
		info, err := e.suite.provider.Create(e.Context(), spec)
		if err == nil {
			e.Errorf("a sandbox without %q was made although it is required", c)
			_ = e.suite.provider.Kill(e.Context(), info.ID)
			continue
		}
		e.wantKind(err, sandbox.KindUnsupported)
	}
}

// label is a label value that only this case has.
func label() map[string]string { return map[string]string{"case": rand.Text()[:16]} }

// listed returns the ids of the sandboxes with labels.
func (e *env) listed(labels map[string]string) []string {
	e.Helper()
	infos, err := e.suite.provider.List(e.Context(), labels)
	e.must(err)
	var ids []string
	for _, i := range infos {
		ids = append(ids, i.ID)
	}
	return ids
}

func listByLabel(e *env) {
	own := label()
	make1 := func(extra string) string {
		return e.create(func(s *sandbox.Spec) {
			s.Labels = map[string]string{"case": own["case"], "kind": extra}
		}).ID()
	}
	a, b := make1("a"), make1("b")
	e.equal("newest first", fmt.Sprint(e.listed(own)), fmt.Sprint([]string{b, a}))
	e.equal("by two labels", fmt.Sprint(e.listed(map[string]string{"case": own["case"], "kind": "a"})), fmt.Sprint([]string{a}))
	e.equal("by a value nobody has", len(e.listed(map[string]string{"case": own["case"], "kind": "c"})), 0)
	all := strings.Join(e.listed(nil), " ")
	if !strings.Contains(all, a) || !strings.Contains(all, b) {
		e.Errorf("all are %s", all)
	}
	e.must(e.suite.provider.Kill(e.Context(), b))
	e.equal("after a kill", fmt.Sprint(e.listed(own)), fmt.Sprint([]string{a}))
}

func unknownSandbox(e *env) {
	p, ctx := e.suite.provider, e.Context()
	for _, id := range []string{"no-such-sandbox", "", "../..", e.ID() + "x"} {
		_, err := p.Get(ctx, id)
		e.wantKind(err, sandbox.KindNotFound)
		_, err = p.Renew(ctx, id, time.Now().Add(time.Hour))
		e.wantKind(err, sandbox.KindNotFound)
		_, err = p.Endpoint(ctx, id, 80)
		e.wantKind(err, sandbox.KindNotFound)
		e.must(p.Kill(ctx, id))
		_, err = sandbox.Attach(ctx, p, id, sandbox.Options{Log: record()})
		e.wantKind(err, sandbox.KindNotFound)
	}
}

func createdAtOnce(e *env) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids, own := map[string]bool{}, label()
	for i := range 6 {
		wg.Go(func() {
			spec := e.suite.spec()
			spec.Labels = own
			sb, err := sandbox.Create(e.Context(), e.suite.provider, spec, sandbox.Options{Log: record()})
			if err != nil {
				e.Error(err)
				return
			}
			defer sb.Close()
			r, err := sb.Run(e.Context(), sandbox.Command{Shell: fmt.Sprintf("exit %d", i+10)})
			if err != nil {
				e.Error(err)
			} else {
				e.wantExit(r, i+10)
			}
			mu.Lock()
			ids[sb.ID()] = true
			mu.Unlock()
			if err := sb.Kill(e.Context()); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	e.equal("ids", len(ids), 6)
	e.equal("left", len(e.listed(own)), 0)
}

func createKillRace(e *env) {
	var wg sync.WaitGroup
	own, p := label(), e.suite.provider
	for range 3 {
		wg.Go(func() {
			spec := e.suite.spec()
			spec.Labels = own
			info, err := p.Create(e.Context(), spec)
			if err != nil {
				e.Error(err)
				return
			}
			var kills sync.WaitGroup
			for range 3 {
				kills.Go(func() {
					if err := p.Kill(e.Context(), info.ID); err != nil {
						e.Errorf("kill: %v", err)
					}
				})
				kills.Go(func() { // answers or says that it is gone
					if _, err := p.Get(e.Context(), info.ID); err != nil {
						e.wantKind(err, sandbox.KindNotFound)
					}
				})
			}
			kills.Wait()
			_, err = p.Get(e.Context(), info.ID)
			e.wantKind(err, sandbox.KindNotFound)
		})
	}
	wg.Wait()
	e.equal("left", len(e.listed(own)), 0)
}

func cancelledCreate(e *env) {
	own := label()
	spec := e.suite.spec()
	spec.Labels = own
	for _, after := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(e.Context(), after)
		if info, err := e.suite.provider.Create(ctx, spec); err == nil {
			e.must(e.suite.provider.Kill(e.Context(), info.ID)) // it was quicker
		}
		cancel()
	}
	e.equal("left", len(e.listed(own)), 0)
}

func separate(e *env) {
	e.put("secret", "one")
	other := e.create(nil)
	_, err := other.ReadFile(e.Context(), e.dir+"/secret", sandbox.ReadOptions{})
	e.wantKind(err, sandbox.KindNotFound)
}

func attachClose(e *env) {
	sb, err := sandbox.Attach(e.Context(), e.suite.provider, e.ID(), sandbox.Options{Log: record()})
	e.must(err)
	e.equal("end", sb.Info().ExpiresAt.Equal(e.Info().ExpiresAt), true)
	r, err := sb.Run(e.Context(), sandbox.Command{Shell: "exit 5"})
	e.must(err)
	e.wantExit(r, 5)
	for range 2 {
		e.must(sb.Close())
	}
	e.wantExit(e.run("exit 6"), 6)
}

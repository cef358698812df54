package sandboxtest

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// endCases are about how sandboxes end.
func endCases() []Case {
	exec := caps(sandbox.CapExec, sandbox.CapFiles)
	renew := caps(sandbox.CapRenew)
	return []Case{
		{Name: "end/kill", fresh: true, run: kill},
		{Name: "end/kill while commands run", Needs: exec, fresh: true, run: killWhileRunning},
		{Name: "end/kill with a context that has ended", fresh: true, run: killShielded},
		{Name: "end/killed by another", Needs: exec, fresh: true, run: killedByAnother},
		{Name: "end/use after kill", Needs: exec, fresh: true, run: useAfterKill},
		{Name: "end/expiry", Needs: exec, run: expiry},
		{Name: "end/renew longer", Needs: append(caps(sandbox.CapExec), renew...), run: renewLonger},
		{Name: "end/renew shorter", Needs: renew, fresh: true, run: renewShorter},
		{Name: "end/renew to the past refused", Needs: renew, fresh: true, run: renewPast},
		{Name: "end/renew races expiry", Needs: renew, run: renewRace},
	}
}

func (e *env) gone(id string) bool {
	_, err := e.suite.provider.Get(e.Context(), id)
	return sandbox.KindOf(err) == sandbox.KindNotFound
}

func kill(e *env) {
	e.within(15*time.Second, func() { e.must(e.Kill(e.Context())) })
	e.equal("gone", e.gone(e.ID()), true)
	e.must(e.Kill(e.Context()))
	e.must(e.suite.provider.Kill(e.Context(), e.ID()))
}

func killWhileRunning(e *env) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Cwd: e.dir, Shell: "touch started; sleep 300", Timeout: time.Minute})
			e.wantKind(err, sandbox.KindLost)
		})
	}
	e.appears("started")
	e.within(15*time.Second, func() {
		e.must(e.Kill(e.Context()))
		wg.Wait()
	})
}

func killShielded(e *env) {
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	e.must(e.Kill(ctx))
	e.equal("gone", e.gone(e.ID()), true)
}

func killedByAnother(e *env) {
	other := e.attach(e.suite.provider)
	done := make(chan error, 1)
	go func() {
		_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Cwd: e.dir, Shell: "touch started; sleep 300", Timeout: time.Minute})
		done <- err
	}()
	e.appears("started")
	e.within(15*time.Second, func() {
		e.must(other.Kill(e.Context()))
		e.wantKind(<-done, sandbox.KindLost)
	})
	_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "true"})
	e.wantKind(err, sandbox.KindLost, sandbox.KindNotFound)
}

func useAfterKill(e *env) {
	e.must(e.Kill(e.Context()))
	gone := []sandbox.Kind{sandbox.KindNotFound, sandbox.KindLost}
	e.within(5*time.Second, func() {
		_, err := e.Sandbox.Run(e.Context(), sandbox.Command{Shell: "true"})
		e.wantKind(err, gone...)
		_, err = e.ReadFile(e.Context(), "/etc/passwd", sandbox.ReadOptions{})
		e.wantKind(err, gone...)
		_, err = e.WriteFile(e.Context(), "/tmp/x", nil, sandbox.WriteOptions{})
		e.wantKind(err, gone...)
		_, err = e.Status(e.Context(), "x")
		e.wantKind(err, gone...)
		_, err = e.Renew(e.Context(), time.Now().Add(time.Hour))
		e.wantKind(err, gone...)
		_, err = e.Refresh(e.Context())
		e.wantKind(err, gone...)
	})
}

// short makes a sandbox with a short life.
func (e *env) short() *sandbox.Sandbox {
	return e.create(func(s *sandbox.Spec) { s.TTL = e.scale(cmp.Or(e.suite.Life, 6*time.Second)) })
}

func expiry(e *env) {
	sb := e.short()
	done := make(chan error, 1)
	go func() {
		_, err := sb.Run(e.Context(), sandbox.Command{Shell: "sleep 300", Timeout: time.Minute})
		done <- err
	}()
	e.wantKind(<-done, sandbox.KindLost)
	if early := time.Until(sb.Info().ExpiresAt); early > 300*time.Millisecond {
		e.Errorf("it ended %v too early", early)
	}
	e.eventually(10*time.Second, "the sandbox has expired", func() bool { return e.gone(sb.ID()) })
	if late := time.Since(sb.Info().ExpiresAt); late > e.scale(5*time.Second) {
		e.Errorf("it ended %v too late", late)
	}
	_, err := sb.Renew(e.Context(), time.Now().Add(time.Hour))
	e.wantKind(err, sandbox.KindNotFound, sandbox.KindLost)
	e.equal("still gone", e.gone(sb.ID()), true)
}

func renewLonger(e *env) {
	sb := e.short()
	first := sb.Info().ExpiresAt
	until := first.Add(time.Minute)
	got, err := sb.Renew(e.Context(), until)
	e.must(err)
	if d := got.Sub(until).Abs(); d > time.Second {
		e.Errorf("the end is %v, want %v", got, until)
	}
	e.wait(time.Until(first) + 500*time.Millisecond)
	r, err := sb.Run(e.Context(), sandbox.Command{Shell: "exit 3"})
	e.must(err)
	e.wantExit(r, 3)
	info, err := sb.Refresh(e.Context())
	e.must(err)
	e.equal("end", info.ExpiresAt.Equal(got), true)
}

func renewShorter(e *env) {
	until := time.Now().Add(time.Second)
	got, err := e.Renew(e.Context(), until)
	e.must(err)
	if d := got.Sub(until).Abs(); d > time.Second {
		e.Errorf("the end is %v, want %v", got, until)
	}
	e.eventually(10*time.Second, "the sandbox has expired", func() bool { return e.gone(e.ID()) })
}

func renewPast(e *env) {
	_, err := e.Renew(e.Context(), time.Now().Add(-time.Hour))
	e.wantKind(err, sandbox.KindInvalid)
	e.equal("gone", e.gone(e.ID()), false)
}

// renewRace renews at about the moment of expiry: either it held, and the
// sandbox answers afterwards, or it came too late, and the sandbox stays gone.
func renewRace(e *env) {
	var wg sync.WaitGroup
	for _, lead := range []time.Duration{200, 20, 5, 0, -5, -200} {
		wg.Go(func() {
			info, err := e.suite.provider.Create(e.Context(), e.suite.spec())
			if err != nil {
				e.Error(err)
				return
			}
			defer e.suite.provider.Kill(context.Background(), info.ID)
			end, err := e.suite.provider.Renew(e.Context(), info.ID, time.Now().Add(1500*time.Millisecond))
			if err != nil {
				e.Error(err)
				return
			}
			<-time.After(time.Until(end.Add(-lead * time.Millisecond)))
			_, renewed := e.suite.provider.Renew(e.Context(), info.ID, time.Now().Add(time.Minute))
			if renewed != nil {
				e.wantKind(renewed, sandbox.KindNotFound)
			}
			<-time.After(e.scale(700 * time.Millisecond))
			_, err = e.suite.provider.Get(e.Context(), info.ID)
			switch {
			case renewed == nil && err != nil:
				e.Errorf("renewed %v ms before its end, the sandbox is gone: %v", int(lead), err)
			case renewed != nil && sandbox.KindOf(err) != sandbox.KindNotFound:
				e.Errorf("refused %v ms before its end, the sandbox is there: %v", int(lead), err)
			}
		})
	}
	wg.Wait()
}

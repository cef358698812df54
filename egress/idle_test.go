package egress

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A connection that carries nothing ends after an hour, or after what the policy
// says, however it was used before; also when one direction has ended.
func TestIdle(t *testing.T) {
	for what, limit := range map[string]int{"default": 0, "limit": 90} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, e := simulated(t, Options{Host: &stillHost{}, Limits: Limits{IdleSeconds: limit}}, anySSH)
				allowed := time.Hour
				if limit > 0 {
					allowed = time.Duration(limit) * time.Second
				}
				f := begin(t, g)
				for range 5 { // in use
					time.Sleep(allowed - time.Second)
					if _, err := f.outside.Write([]byte("keep")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(allowed - time.Second)
					if _, err := f.outside.Read(make([]byte, 1)); err != nil {
						t.Fatal(err)
					}
				}
				if err := f.outside.(*counted).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(allowed - time.Nanosecond)
				synctest.Wait()
				if err := context.Cause(f.ctx); err != nil {
					t.Fatalf("ended before its time: %v", err)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				wantRule(t, context.Cause(f.ctx), "limit:idle_seconds")
				f.end(errors.New("a consequence"))
				g.Flush()
				if list := e.get(); len(list) != 1 || list[0].Rule != "limit:idle_seconds" || list[0].Verdict != verdictDeny || list[0].BytesOut != 20 {
					t.Errorf("recorded %+v", list)
				}
			})
		})
	}
}

// When something was carried is told by the clock that nobody sets, from the
// flow's own begin.
func TestIdleByMonotonicClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := simulated(t, Options{Host: &stillHost{}}, anySSH)
		f := begin(t, g)
		time.Sleep(10 * time.Second)
		if _, err := f.outside.Write([]byte("keep")); err != nil {
			t.Fatal(err)
		}
		if at := time.Duration(f.carried.Load()); at != 10*time.Second {
			t.Errorf("carried %v after the begin", at)
		}
		time.Sleep(time.Second)
		if d := f.quiet(); d != time.Second {
			t.Errorf("quiet for %v", d)
		}
		f.end(errors.New("over"))
	})
}

// A limit that stands for none ends nothing.
func TestIdleForAsLongAsCanBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := simulated(t, Options{Host: &stillHost{}, Limits: Limits{IdleSeconds: 10_000_000_000}}, anySSH)
		f := begin(t, g)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if err := context.Cause(f.ctx); err != nil {
			t.Errorf("it ended: %v", err)
		}
		f.end(errors.New("over"))
	})
}

// What has ended is not looked at again.
func TestIdleOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, e := simulated(t, Options{Host: &stillHost{}}, anySSH)
		f := begin(t, g)
		f.end(errors.New("over"))
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		g.Flush()
		if list := e.get(); len(list) != 1 || list[0].Verdict != verdictAllow {
			t.Errorf("recorded %+v", list)
		}
	})
}

package run_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/budget"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
	"github.com/rein-sh/rein/secret"
)

// holding is a provider whose sandboxes have one secret, and writes down what it
// is changed to, and when.
type holding struct {
	*sandboxtest.Memory
	begin time.Time

	mu  sync.Mutex
	had []string
}

func (h *holding) note(value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.had = append(h.had, time.Since(h.begin).String()+" "+value)
}

func (h *holding) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	h.note(spec.Secrets[0].Value.Reveal())
	spec.Secrets = nil
	return h.Memory.Create(ctx, spec)
}

func (h *holding) RotateSecret(_ context.Context, id, name string, value secret.Value) error {
	if strings.HasPrefix(value.Reveal(), "longer") {
		return &sandbox.Error{Kind: sandbox.KindInvalid, Op: "rotate", Subject: id, Err: errors.New(name + " is longer")}
	}
	h.note(value.Reveal())
	return nil
}

// A secret is read again as often as is said, and sooner where that failed; all
// values are masked. A key that nothing uses any more is withdrawn then, and the
// others at the end, when the sandbox is gone, once.
func TestSecretsOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holding{Memory: memory(t), begin: time.Now()}
		values := []string{"second-of-them", "", "longer-than-that", "third-of-them"}
		revoked := 0
		var unused []string
		masker := secret.NewMasker(secret.New("key", "first-of-them"))
		o := run.Options{Task: "x", Provider: h, StateDir: t.TempDir(), Limits: budget.Long(), Masker: masker,
			Target: run.Target{Spec: sandbox.Spec{Secrets: []vault.Secret{{Name: "key", Value: secret.New("key", "first-of-them"),
				Use: []vault.Binding{{Host: "api.example.com", As: vault.Bearer}}}}}},
			Secrets: run.Secrets{
				Refresh: map[string]time.Duration{"key": 30 * time.Minute},
				Read: func(context.Context, string) (secret.Value, error) {
					value := values[0]
					values = values[1:]
					if value == "" {
						return secret.Value{}, errors.New("the server is away")
					}
					return secret.New("key", value), nil
				},
				RevokeOne: func(_ context.Context, name string, value secret.Value) []run.Revocation {
					unused = append(unused, time.Since(h.begin).String()+" "+value.Reveal())
					return []run.Revocation{{Secret: name, OK: true}}
				},
				Revoke: func(ctx context.Context) []run.Revocation {
					revoked++
					if left, err := h.List(ctx, nil); err != nil || len(left) > 0 {
						t.Errorf("withdrawn while there is a sandbox: %v, %v", left, err)
					}
					code := 3
					return []run.Revocation{{Secret: "key", OK: true}, {Secret: "key", ExitCode: &code, Output: "third-of-them is unknown"}}
				},
			}}
		rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			for i := range 10 { // renewals need something new
				time.Sleep(7 * time.Minute)
				shell(t, ctx, s, "echo "+strings.Repeat("another ", i+1))
			}
			return done("first-of-them, second-of-them, third-of-them")
		})
		if diff := cmp.Diff([]string{"0s first-of-them", "30m0s second-of-them", "1h6m0s third-of-them"}, h.had); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"1h3m0s longer-than-that", "1h6m0s first-of-them"}, unused); diff != "" {
			t.Error(diff)
		}
		if rep.Reason != run.Done || rep.Answer != "[secret:key], [secret:key], [secret:key]" || revoked != 1 {
			t.Errorf("%s, %q, withdrawn %d times", rep.Reason, rep.Answer, revoked)
		}
		if diff := cmp.Diff([]run.GivenSecret{{Name: "key", To: []string{"api.example.com on port 443, as bearer"}}}, rep.Secrets); diff != "" {
			t.Error(diff)
		}
		if text, err := os.ReadFile(filepath.Join(rep.Dir, "report.md")); err != nil || !strings.Contains(string(text), "\n- key: api.example.com on port 443, as bearer\n") {
			t.Errorf("%v: %s", err, text)
		}
		if len(rep.Revocations) != 4 || rep.Revocations[3].Says() != "NOT withdrawn: exit code 3" || rep.Revocations[3].Output != "[secret:key] is unknown" {
			t.Errorf("%+v", rep.Revocations)
		}
		warned := strings.Join(rep.Warnings, "\n")
		if strings.Count(warned, "could not be refreshed") != 1 || !strings.Contains(warned, "the server is away") || !strings.Contains(warned, "may still be good") {
			t.Error(warned)
		}
		record, err := os.ReadFile(filepath.Join(rep.Dir, run.AuditFile))
		if err != nil || strings.Contains(string(record), "of-them") || !strings.Contains(string(record), `"secrets":[{"name":"key","use":[{"host":"api.example.com","as":"bearer"}]}]`) || strings.Count(string(record), `"secret.rotated"`) != 3 || strings.Count(string(record), `"secret.revoked"`) != 4 {
			t.Errorf("%v: %s", err, record)
		}
	})
}

// What is made for a run is withdrawn whatever becomes of it.
func TestRevokeOnEveryPath(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]worker{
		"failed":   func(context.Context, *run.Session) (run.Outcome, error) { return run.Outcome{Reason: run.Failed}, nil },
		"an error": func(context.Context, *run.Session) (run.Outcome, error) { return run.Outcome{}, errors.New("x") },
		"a panic":  func(context.Context, *run.Session) (run.Outcome, error) { panic("x") },
		"finished": func(ctx context.Context, s *run.Session) (run.Outcome, error) {
			_, err := s.Finish(ctx)
			return run.Outcome{Reason: run.Done}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, revoked := options(t), 0
			o.Secrets.Revoke = func(context.Context) []run.Revocation {
				revoked++
				return []run.Revocation{{Secret: "key", OK: true}}
			}
			rep, _ := run.Do(t.Context(), o, w)
			if revoked != 1 || rep == nil || len(rep.Revocations) != 1 {
				t.Errorf("withdrawn %d times: %+v", revoked, rep)
			}
		})
	}
}

package run_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rein-sh/rein/run"
	"github.com/rein-sh/rein/secret"
)

// A report comes out whatever the secrets are, and holds none of them.
func TestReportIsMaskedWhateverTheSecret(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ secret, warning string }{
		"a text":                    {"hunter2hunter2", ""},
		"a quote":                   {`hunter2" \\`, ""},
		"a number":                  {"7654321", "tokens.input is not told"},
		"a part of a number":        {"654321", "tokens.total is not told"},
		"a count":                   {"0.123456", "tokens.cost_usd is not told"},
		"a time":                    {time.Now().Format("2006-01"), "started_at is not told"},
		"what a report begins with": {run.ReportVersion, ""},
		"what stands between two":   {`": "`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			o.Task = "use " + c.secret
			o.Masker = secret.NewMasker(secret.New("key", c.secret))
			rep := do(t, o, func(ctx context.Context, s *run.Session) (run.Outcome, error) {
				call(t, ctx, s, c.secret, nil)
				if err := s.Spent(run.Tokens{Input: 7_654_321, CostUSD: 0.123456}); err == nil {
					t.Error("the limit allows it")
				}
				return done("used " + c.secret)
			})
			again, err := run.ReadReport(rep.Dir)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(rep, again); d != "" {
				t.Error(d)
			}
			if got := strings.Join(rep.Warnings, "\n"); !strings.Contains(got, c.warning) {
				t.Errorf("warnings: %s", got)
			}
			if c.warning == "" && rep.Tokens.Input != 7_654_321 {
				t.Errorf("input: %d", rep.Tokens.Input)
			}
			if c.secret == `": "` || c.secret == run.ReportVersion { // the format's own
				return
			}
			for _, file := range []string{"report.json", "report.md", "provenance.json"} {
				if b, err := os.ReadFile(filepath.Join(rep.Dir, file)); err != nil || len(b) == 0 || strings.Contains(string(b), c.secret) {
					t.Errorf("%s, %v: %s", file, err, b)
				}
			}
		})
	}
}

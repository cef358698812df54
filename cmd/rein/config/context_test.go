package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/history"
)

func TestContext(t *testing.T) {
	for _, c := range []struct{ name, text, want, hint string }{
		{"strategy", "context: {strategy: sumary}\n", "context.strategy", "summary"},
		{"low over high", "context: {low: 30KiB}\n", "context: low must be less than high", "8KiB and 24KiB"},
		{"zero", "context: {high: 0}\n", "context.high: there is no room", "above zero"},
		{"share", "context: {share: 120}\n", "context.share: 120 is no share", "1 to 100"},
		{"no share", "context: {share: 0}\n", "context.share: 0 is no share", "1 to 100"},
		{"window", "models:\n  m: {vendor: openai, model: x, context_window: 200}\n", "c.yaml:2:33: models.m.context_window: no task can be done in 200 tokens", "at least 4096"},
		{"no window", "models:\n  m: {vendor: openai, model: x, context_window: 0}\n", "models.m.context_window", "leave it out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := config.Decode("c.yaml", []byte(c.text))
			if err == nil {
				err = config.Validate(f, known)
			}
			e, ok := errors.AsType[*config.Error](err)
			if !ok || !strings.Contains(e.Error(), c.want) || !strings.Contains(e.Hint(), c.hint) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	f, err := config.Decode("c.yaml", []byte("context: {strategy: structured, high: 64KiB, low: 32KiB, share: 50}\n"))
	if err == nil {
		err = config.Validate(f, known)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := history.Options{Strategy: history.Structured, High: 64 << 10, Low: 32 << 10, Share: 50}
	if got := f.Config.Context.Options(); got.Strategy != want.Strategy || got.High != want.High || got.Low != want.Low || got.Share != want.Share {
		t.Errorf("got %+v", got)
	}
}

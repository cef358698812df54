package secret_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rein-sh/rein/secret"
)

const password = "hunter2-hunter2"

// A Value must not show itself through any of the ways values get printed, also
// inside structures with unexported fields, which fmt reads by reflection.
func TestValueNeverPrints(t *testing.T) {
	v := secret.New("db", password)
	type hidden struct {
		v    secret.Value
		list []secret.Value
		m    map[string]secret.Value
		any  any
	}
	h := hidden{v, []secret.Value{v}, map[string]secret.Value{"k": v}, v}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%T", "%t"} {
		for _, x := range []any{v, &v, h, &h, []secret.Value{v}, map[secret.Value]int{v: 1}, struct{ V secret.Value }{v}} {
			got := fmt.Sprintf(verb, x)
			if strings.Contains(got, password) || strings.Contains(got, fmt.Sprintf("%x", password)) {
				t.Errorf("Sprintf(%q, %T) = %q", verb, x, got)
			}
		}
	}
	b, err := json.Marshal(map[string]any{"v": v, "p": &v, "h": struct{ V secret.Value }{v}})
	if err != nil || strings.Contains(string(b), password) || !strings.Contains(string(b), "[secret:db]") {
		t.Errorf("Marshal = %s, %v", b, err)
	}
	var log strings.Builder
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("m", "v", v, "h", struct{ V secret.Value }{v})
	}
	if strings.Contains(log.String(), password) {
		t.Errorf("slog: %s", log.String())
	}
	if err := fmt.Errorf("failed: %w / %v", fmt.Errorf("%v", v), v); strings.Contains(err.Error(), password) {
		t.Errorf("error: %v", err)
	}
}

func TestValue(t *testing.T) {
	v := secret.New("db", password)
	if v.Reveal() != password || v.Name() != "db" || v.IsZero() || !v.Maskable() || v.String() != "[secret:db]" {
		t.Errorf("%q %q %v %v %q", v.Reveal(), v.Name(), v.IsZero(), v.Maskable(), v.String())
	}
	var zero secret.Value
	if zero.Reveal() != "" || !zero.IsZero() || zero.Maskable() || !secret.New("x", "").IsZero() {
		t.Error("the zero value is not empty")
	}
	if secret.New("x", "12345").Maskable() || !secret.New("x", "123456").Maskable() {
		t.Error("MinLength is not the boundary")
	}
}

// A mark is put into JSON, terminals and Markdown: no name may break them.
func TestMarksAreSafe(t *testing.T) {
	for name, want := range map[string]string{
		"OPENAI_API_KEY":         "[secret:OPENAI_API_KEY]",
		"a/b.c-d":                "[secret:a/b.c-d]",
		"a\"b\\c\n\x1b]":         "[secret:a_b_c___]",
		"é\u202e":                "[secret:__]",
		strings.Repeat("n", 100): "[secret:" + strings.Repeat("n", 64) + "]",
	} {
		if got := secret.New(name, password).String(); got != want {
			t.Errorf("New(%q).String() = %q, want %q", name, got, want)
		}
	}
}

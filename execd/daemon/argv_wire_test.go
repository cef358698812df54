package daemon_test

import (
	"testing"

	"github.com/rein-sh/rein/execd"
)

// What is started is argv, and the command is no more than what is told of it.
func TestArgvOnTheWire(t *testing.T) {
	r := serve(t, bestUser())
	f, err := r.Features(t.Context())
	if err != nil || !f.Argv {
		t.Fatalf("%+v, %v", f, err)
	}
	req := execd.RunRequest{Command: "exit 77", Rein: &execd.RunOptions{ID: "argv", Capture: 1000, Fixed: true, Argv: []string{"printf", "%s", "\x01 $A\x7f"}}}
	out, err := r.Run(t.Context(), req, nil)
	if err != nil || out.ExitCode == nil || *out.ExitCode != 0 || string(out.Stdout.Head)+string(out.Stdout.Tail) != "\x01 $A\x7f" {
		t.Errorf("%+v, %v", out, err)
	}
	if st, err := r.Status(t.Context(), "argv"); err != nil || st.Content != "exit 77" {
		t.Errorf("%+v, %v", st, err)
	}
	req.Rein = &execd.RunOptions{Capture: 1000, Argv: []string{"no-such-program"}}
	if out, err := r.Run(t.Context(), req, nil); err != nil || out.ExitCode == nil || *out.ExitCode != 127 {
		t.Errorf("%+v, %v", out, err)
	}
	id, err := r.CreateSession(t.Context(), execd.SessionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.RunInSession(t.Context(), id, req, nil); err == nil {
		t.Error("a session started it")
	}
}

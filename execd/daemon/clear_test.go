package daemon_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/execd"
)

// These are not parallel: to a machine, the commands of another in the same
// process are its own.

// Whatever a command in the background, or a terminal, did to get away is ended
// by a clear, and commands can be run afterwards.
func TestClear(t *testing.T) {
	for user, opts := range users(t) {
		t.Run(user, func(t *testing.T) {
			r := serve(t, opts)
			var files []string
			start := func(name, command string) {
				file := filepath.Join(r.work, strings.ReplaceAll(name, " ", "-"))
				files = append(files, file)
				if _, err := r.Run(t.Context(), execd.RunRequest{Command: command, Background: true,
					Envs: map[string]string{"F": file, "L": aliveLoop}}, nil); err != nil {
					t.Fatal(err)
				}
			}
			for name, command := range escapes {
				start(name, command)
			}
			start("over before its child", `(setsid sh -c "(setsid sh -c \"\$L\" &)" &) ; exit 0`)
			start("stops itself", `setsid sh -c "$L" & sleep 0.2; kill -STOP $$`)
			id, err := r.CreateTerminal(t.Context(), execd.TerminalRequest{Command: `while :; do echo x >>typed; sleep 0.01; done`})
			if err != nil {
				t.Fatal(err)
			}
			attachTo(t, r, id, execd.AttachOptions{Since: -1, Pipe: true})
			files = append(files, r.work+"/typed")
			for _, f := range files {
				grown(t, f)
			}
			c, err := r.Clear(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.Processes < len(files) {
				t.Errorf("%d processes ended, there were %d loops at least", c.Processes, len(files))
			}
			before := map[string]int64{}
			for _, f := range files {
				before[f] = size(t, f)
			}
			time.Sleep(still)
			for _, f := range files {
				if size(t, f) != before[f] {
					t.Errorf("%s is still written to", f)
				}
			}
			o, err := r.Run(t.Context(), execd.RunRequest{Command: "echo on", Rein: &execd.RunOptions{Capture: 100}}, nil)
			if err != nil || string(o.Stdout.Head)+string(o.Stdout.Tail) != "on\n" {
				t.Errorf("afterwards: %+v, %v", o, err)
			}
			if c, err := r.Clear(t.Context()); err != nil || c.Processes > 1 { // what ran the last command may be on its way out
				t.Errorf("again: %+v, %v", c, err)
			}
			if c, err := r.Clear(t.Context()); err != nil || c.Processes != 0 {
				t.Errorf("with nothing left: %+v, %v", c, err)
			}
		})
	}
}

// What forks without end is ended, too.
func TestClearOfForks(t *testing.T) {
	for user, opts := range users(t) {
		t.Run(user, func(t *testing.T) {
			r := serve(t, opts)
			if _, err := r.Run(t.Context(), execd.RunRequest{Background: true, Command: `
				hop() { echo x >>hops; (trap '' TERM; setsid bash -c "$(declare -f hop); hop" &); sleep 0.01; }
				for i in 1 2 3 4; do hop; done`}, nil); err != nil {
				t.Fatal(err)
			}
			grown(t, r.work+"/hops")
			if _, err := r.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := size(t, r.work+"/hops")
			time.Sleep(still)
			if after := size(t, r.work+"/hops"); after != before {
				t.Errorf("%d bytes were written afterwards", after-before)
			}
		})
	}
}

func TestClearWhilePaused(t *testing.T) {
	r := serve(t, bestUser())
	pause(t, r)
	wantError(t, "clear", request(t, r, "POST", "/rein/clear", strings.NewReader(""), nil), 409, execd.CodeConflict)
	resume(t, r)
	if _, err := r.Clear(t.Context()); err != nil {
		t.Error(err)
	}
}

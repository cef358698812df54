package local_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// A clear ends what commands left behind, whatever it did to get away.
func TestClear(t *testing.T) {
	const beat = `beat() { trap '' TERM HUP INT; while :; do echo x >>/tmp/beat-$1; sleep 0.02; done; }; export -f beat; `
	hidden := []string{
		`beat 1 & sleep 100`,
		`setsid bash -c 'beat 2' & sleep 100`,
		`(setsid bash -c '(setsid bash -c "beat 3" &)' &) ; exit 0`,
		`hop() { echo x >>/tmp/beat-4; sleep 0.02; (setsid bash -c "$(declare -f hop); hop" &); }; (setsid bash -c "$(declare -f hop); hop" &); exit 0`,
		`exec 3<>/tmp/fifo-is-none 2>/dev/null; (trap '' TERM; exec -a '[kworker/0:0]' bash -c 'beat 5') & disown; exit 0`,
	}
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			p := provider(t, runtime)
			box, err := sandbox.Create(t.Context(), p, sandbox.Spec{TTL: 5 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			defer box.Kill(t.Context())
			sh := func(command string) string {
				r, err := box.Run(t.Context(), sandbox.Command{Shell: command})
				if err != nil || !r.OK() {
					t.Fatalf("%s: %+v, %v", command, r.Outcome, err)
				}
				return strings.TrimSpace(string(r.Stdout.Head) + string(r.Stdout.Tail))
			}
			for _, command := range hidden {
				if _, err := box.Run(t.Context(), sandbox.Command{Shell: beat + command, Background: true}); err != nil {
					t.Fatal(err)
				}
			}
			sh(`for i in 1 2 3 4 5; do until test -s /tmp/beat-$i; do sleep 0.05; done; done`)
			n, err := box.Clear(t.Context(), sandbox.Access{})
			if err != nil || n < len(hidden) {
				t.Fatalf("%d processes were ended, %v", n, err)
			}
			const sizes = "cat /tmp/beat-* | wc -c"
			before := sh(sizes)
			if after := sh("sleep 0.5; " + sizes); after != before {
				t.Errorf("something still writes: %s bytes, then %s", before, after)
			}
			if n, err := box.Clear(t.Context(), sandbox.Access{}); err != nil || n != 0 {
				t.Errorf("a second time: %d, %v", n, err)
			}
		})
	}
}

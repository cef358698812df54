package local_test

import (
	"archive/tar"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/sandbox"
)

// A number that the image has no entry for runs with the group 0, as the image
// specification says, and images rely on: whatever starts a program does so, the
// image's files of that group are the user's, and nothing of the sandbox's is.
func TestImageNumericUser(t *testing.T) {
	ref := system(t, v1.Config{User: "1234", Entrypoint: []string{"sh", "-c", "id -u; id -g; id -un; id -gn"}},
		layerWith(t, tar.Header{Typeflag: tar.TypeDir, Name: "app", Mode: 0o775},
			tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644, PAXRecords: map[string]string{"body": "root:x:0:0::/root:/bin/sh"}}))
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			box, err := sandbox.Create(t.Context(), withImages(t, runtime), sandbox.Spec{Image: ref, TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			want, note := "1234\n0\nuser\nroot\n", ""
			if os.Geteuid() != 0 && runtime == "runc" { // one id is mapped
				want, note = "0\n0\nroot\nroot\n", `not as the image's user "1234"`
			}
			if notes := strings.Join(box.Info().Notes, "; "); !strings.Contains(notes, note) || (note == "") != (notes == "") {
				t.Errorf("notes %q, want %q", notes, note)
			}
			who := "id -u; id -g; id -un; id -gn"
			for how, run := range map[string]func(context.Context) (string, error){
				"entrypoint": func(ctx context.Context) (string, error) {
					r, err := box.Wait(ctx, sandbox.EntrypointID)
					return string(r.Stdout.Head), err
				},
				"command": func(ctx context.Context) (string, error) {
					r, err := box.Run(ctx, sandbox.Command{Shell: who})
					return string(r.Stdout.Head), err
				},
				"session": func(ctx context.Context) (string, error) {
					id, err := box.OpenSession(ctx, sandbox.SessionOptions{}, sandbox.Access{})
					if err != nil {
						return "", err
					}
					r, err := box.Run(ctx, sandbox.Command{Session: id, Shell: who})
					return string(r.Stdout.Head), err
				},
				"terminal": func(ctx context.Context) (string, error) { return onTerminal(ctx, box, who, false) },
				"pipes":    func(ctx context.Context) (string, error) { return onTerminal(ctx, box, who, true) },
			} {
				if got, err := run(t.Context()); err != nil || got != want {
					t.Errorf("%s: %v\n%s\nwant\n%s", how, err, got, want)
				}
			}
			if _, err := box.WriteFile(t.Context(), "given", []byte("x"), sandbox.WriteOptions{}); err != nil {
				t.Error(err)
			}
			script := `echo x >> given && echo x > $HOME/f && echo x > /app/f && echo wrote; stat -c '%u:%g' given /app/f`
			if os.Geteuid() == 0 || runtime == "gvisor" { // else user code has execd's own id
				script += `; find / /dev /run -xdev -writable ! -user 1234 ! -perm -0002 ! -type l ! -path '/app*' 2>/dev/null`
			}
			ids := strings.Join(strings.Fields(want)[:2], ":") + "\n"
			r, err := box.Run(t.Context(), sandbox.Command{Shell: script})
			if got := string(r.Stdout.Head); err != nil || got != "wrote\n"+ids+ids {
				t.Errorf("%v\n%s%s\nwant wrote, and twice %s", err, got, r.Stderr.Head, ids)
			}
		})
	}
}

// onTerminal is what a program prints on a terminal, or into pipes.
func onTerminal(ctx context.Context, box *sandbox.Sandbox, command string, pipes bool) (string, error) {
	id, err := box.OpenTerminal(ctx, sandbox.TerminalOptions{Command: command}, sandbox.Access{})
	if err != nil {
		return "", err
	}
	term, err := box.AttachTerminal(ctx, id, execd.AttachOptions{Pipe: pipes}, sandbox.Access{})
	if err != nil {
		return "", err
	}
	defer term.Close()
	var out strings.Builder
	for {
		ev, err := term.Next(ctx)
		if err != nil {
			return out.String(), err
		}
		out.Write(ev.Data)
		if ev.ExitCode != nil {
			return strings.ReplaceAll(out.String(), "\r\n", "\n"), nil
		}
	}
}

package local_test

import (
	"archive/tar"
	"os"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/rein-sh/rein/sandbox"
)

// Links of an image lead nowhere outside it, also while the sandbox's own files
// are put there. Where the sandbox must have a directory of its own, the link is
// replaced; where the image has the say, one that leads nowhere is refused.
func TestHostileImage(t *testing.T) {
	outside := t.TempDir()
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir     string
		refused bool
	}{
		{".rein", false}, {"run", false}, {"dev", false}, {"tmp", false}, {"var/tmp", false},
		{"etc", true}, {"var", true}, {"workspace", true}, {"home", true},
	} {
		for _, target := range []string{outside, "../../../../../.." + outside} {
			ref := newImage(t, v1.Config{}, layerWith(t, tar.Header{Typeflag: tar.TypeSymlink, Name: c.dir, Linkname: target, Mode: 0o777}))
			for _, runtime := range runtimes {
				t.Run(runtime+" "+strings.ReplaceAll(c.dir+" "+target, "/", ":"), func(t *testing.T) {
					refused := ""
					if c.refused {
						refused = "the image has no room for /" + c.dir
					}
					if box := created(t, withImages(t, runtime), sandbox.Spec{Image: ref, TTL: time.Minute}, refused); box != nil {
						if err := box.Kill(t.Context()); err != nil {
							t.Error(err)
						}
					}
					left, err := os.ReadDir(outside)
					if err != nil || len(left) > 0 {
						t.Errorf("it put something outside: %v %v", left, err)
					}
				})
			}
		}
	}
}

// What execd and its records lie in is the sandbox's own, whatever owners, modes
// and links the image has there.
func TestImageCannotTakeOver(t *testing.T) {
	user := []tar.Header{
		{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644, PAXRecords: map[string]string{"body": "taker:x:1000:1000::/run/rein:/bin/sh\n"}},
		{Typeflag: tar.TypeDir, Name: ".", Mode: 0o777, Uid: 1000, Gid: 1000},
		{Typeflag: tar.TypeDir, Name: "run", Mode: 0o777, Uid: 1000, Gid: 1000},
		{Typeflag: tar.TypeSymlink, Name: "dev", Linkname: "home", Mode: 0o777},
	}
	open := newImage(t, v1.Config{User: "taker"}, must(shell()), layerWith(t, user...))
	linked := newImage(t, v1.Config{}, must(shell()), layerWith(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "workspace", Linkname: "/run/rein", Mode: 0o777}))
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			p := withImages(t, runtime)
			box, err := sandbox.Create(t.Context(), p, sandbox.Spec{Image: open, TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			script := `echo "$HOME"; stat -c '%n %u %a %F' / /run /.rein /dev; test -w /run/rein && echo writable`
			if os.Geteuid() != 0 && runtime == "runc" { // user code has execd's own id
				script = strings.TrimSuffix(script, "; test -w /run/rein && echo writable")
			}
			r, err := box.Run(t.Context(), sandbox.Command{Shell: script})
			want := "/home/user\n"
			for _, dir := range []string{"/", "/run", "/.rein", "/dev"} {
				want += dir + " 0 755 directory\n"
			}
			if got := string(r.Stdout.Head); err != nil || got != want {
				t.Errorf("%v\n%s%s\nwant\n%s", err, got, r.Stderr.Head, want)
			}
			if info, err := p.Create(t.Context(), sandbox.Spec{Image: linked, TTL: time.Minute}); err == nil || !strings.Contains(err.Error(), "part of the sandbox itself") {
				t.Errorf("a workspace that is execd's directory: %+v %v", info, err)
			}
		})
	}
}

// What everybody writes to is a directory of its own, and never one that a link of
// the image makes of the sandbox's.
func TestImageLinksTmp(t *testing.T) {
	for _, c := range []struct{ name, to, refused string }{
		{"var/tmp", "/.rein", ""}, {"tmp", "/", ""}, {"var/tmp", "/etc", ""}, {"tmp", "/run/rein", ""}, {"var/tmp", "../tmp", ""},
		{"var", "/.rein", "part of the sandbox itself"}, {"var", "/etc", "part of the sandbox itself"}, {"var", "/", "below /"},
		{"etc", "/.rein", "part of the sandbox itself"}, {"etc", "run/rein", "part of the sandbox itself"}, {"etc", "/proc", "part of the sandbox itself"},
	} {
		ref := newImage(t, v1.Config{}, must(shell()), layerWith(t, tar.Header{Typeflag: tar.TypeSymlink, Name: c.name, Linkname: c.to, Mode: 0o777}))
		for _, runtime := range runtimes {
			t.Run(runtime+" "+strings.ReplaceAll(c.name+" "+c.to, "/", ":"), func(t *testing.T) {
				box := created(t, withImages(t, runtime), sandbox.Spec{Image: ref, TTL: 2 * time.Minute}, c.refused)
				if box == nil {
					return
				}
				script := `stat -c '%n %u %a %F' / /run /run/rein /.rein /etc /tmp /var/tmp; echo x > /tmp/mine && echo x > /var/tmp/mine && echo wrote`
				if os.Geteuid() == 0 || runtime == "gvisor" { // else user code has execd's own id
					script += `; for d in / /.rein /run/rein /etc; do if touch $d/mine; then echo took $d; fi; done 2>/dev/null`
				}
				r, err := box.Run(t.Context(), sandbox.Command{Shell: script})
				want := ""
				for _, dir := range []string{"/ 0 755", "/run 0 755", "/run/rein 0 711", "/.rein 0 755", "/etc 0 755", "/tmp 0 1777", "/var/tmp 0 1777"} {
					want += dir + " directory\n"
				}
				if got := string(r.Stdout.Head); err != nil || got != want+"wrote\n" {
					t.Errorf("%v\n%s%s\nwant\n%swrote", err, got, r.Stderr.Head, want)
				}
			})
		}
	}
}

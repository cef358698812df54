package local_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/image"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/sandbox/sandboxtest"
)

// essentials is a layer with what every Debian system has, taken from this one:
// the programs of its essential packages.
var essentials = sync.OnceValues(func() (v1.Layer, error) {
	return programs("$(dpkg-query -L $(dpkg-query -W -f '${Package} ${Essential}\n' | awk '$2 == \"yes\" { print $1 }') mawk)")
})

// shell is a layer with a shell and few programs more.
var shell = sync.OnceValues(func() (v1.Layer, error) {
	return programs("/usr/bin/sh /usr/bin/dash /usr/bin/stat /usr/bin/touch")
})

// programs is a layer of those files that are programs or libraries, a list for
// the shell, and of the libraries they need.
func programs(files string) (v1.Layer, error) {
	script := "set -e\nfiles=$(printf '%s\n' " + files + ` | grep -E '^/(usr/)?(bin|sbin|lib|lib64)/' | sort -u)
for f in $files; do if [ -f "$f" ]; then printf '%s\n' "$f"; fi; done
for f in $files; do case $f in */bin/*|*/sbin/*) if [ -f "$f" ]; then printf '%s\n' "$f"; fi;; esac; done |
	xargs ldd 2>/dev/null | awk '/=> \// { print $3 } /^[ \t]*\/.*\(0x/ { print $1 }' | sort -u
`
	cmd := exec.Command("/bin/sh", "-c", script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s: %w: %s", files, err, stderr.String())
	}
	b, err := layerOf(strings.Fields(string(list)))
	return plain(b), err
}

// plain is a layer of a tar that is not compressed: these tests are not of
// compression, on which most of their time would go.
func plain(b []byte) v1.Layer { return static.NewLayer(b, types.OCIUncompressedLayer) }

// layerOf is a tar of host files with merged /usr, and of the directories and
// links a system has besides.
func layerOf(files []string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, body []byte) error {
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(body)
		return err
	}
	for name, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/bin/awk": "mawk"} {
		if err := add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, nil); err != nil {
			return nil, err
		}
	}
	for name, mode := range map[string]int64{"tmp": 0o1777, "etc": 0o755, "root": 0o700, "var/lib/kept": 0o755} {
		if err := add(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, nil); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	for i := 0; i < len(files); i++ {
		name := files[i]
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		if err != nil {
			return nil, err
		}
		inside := strings.TrimPrefix(filepath.Join(dir, filepath.Base(name)), "/")
		if seen[inside] {
			continue
		}
		seen[inside] = true
		st, err := os.Lstat(name)
		if err != nil {
			return nil, err
		}
		h := tar.Header{Typeflag: tar.TypeReg, Name: inside, Mode: int64(st.Mode().Perm())}
		var body []byte
		if st.Mode()&fs.ModeSymlink != 0 {
			h.Typeflag = tar.TypeSymlink
			h.Linkname, err = os.Readlink(name)
			if target, err := filepath.EvalSymlinks(name); err == nil {
				files = append(files, target)
			}
		} else {
			body, err = os.ReadFile(name)
		}
		if err == nil {
			err = add(h, body)
		}
		if err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// layerWith is a layer of few entries.
func layerWith(t *testing.T, entries ...tar.Header) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		body := h.PAXRecords["body"]
		h.PAXRecords = nil
		h.Size = int64(len(body))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, body)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return plain(b.Bytes())
}

// newImage writes an OCI layout with one image and returns its reference.
func newImage(t *testing.T, config v1.Config, layers ...v1.Layer) string {
	t.Helper()
	img := empty.Image
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", goruntime.GOARCH, config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "layout")
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "oci:" + dir
}

// system is an image of essentials.
func system(t *testing.T, config v1.Config, more ...v1.Layer) string {
	t.Helper()
	return newImage(t, config, append([]v1.Layer{must(essentials())}, more...)...)
}

func must(l v1.Layer, err error) v1.Layer {
	if err != nil {
		panic(err)
	}
	return l
}

// images is the one store of all tests: to unpack an image takes longer than
// most of what is done with it.
var images = sync.OnceValues(func() (*image.Store, error) {
	dir, err := os.MkdirTemp("", "rein-images")
	if err != nil {
		return nil, err
	}
	imagesDir = dir
	return image.Open(image.Options{Dir: filepath.Join(dir, "images"), Allow: []string{"oci:/*"}})
})

// imagesDir is where it is, and removed at the end.
var imagesDir string

// withImages is a provider that may use every layout of the tests.
func withImages(t *testing.T, runtime string) *local.Provider {
	t.Helper()
	return withImagesIn(t, runtime, t.TempDir())
}

func withImagesIn(t *testing.T, runtime, state string) *local.Provider {
	t.Helper()
	return imagesWith(t, runtime, state, func(*local.Options) {})
}

func imagesWith(t *testing.T, runtime, state string, change func(*local.Options)) *local.Provider {
	t.Helper()
	o := options(runtime, state)
	change(&o)
	var err error
	if o.Images, err = images(); err != nil {
		t.Fatal(err)
	}
	p, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := p.Sweep(context.WithoutCancel(t.Context()), true); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return p
}

// onImage makes every sandbox of a provider from one image.
type onImage struct {
	*local.Provider
	ref string
}

func (p onImage) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if spec.Image == "" {
		spec.Image = p.ref
	}
	return p.Provider.Create(ctx, spec)
}

func TestConformanceOnImage(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			ref := system(t, v1.Config{})
			sandboxtest.Run(t, sandboxtest.Harness{
				New: func(t *testing.T) sandbox.Provider {
					return onImage{imagesWith(t, runtime, t.TempDir(), func(o *local.Options) { o.Egress.Resolvers = []netip.AddrPort{names(t)} }), ref}
				},
				Must: expected(runtime), Loopback: "suite.test",

				Summary: verified(t, runtime+"-image"),
			})
		})
	}
}

// What an image says about running it holds.
func TestImageConfiguration(t *testing.T) {
	passwd := tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644,
		PAXRecords: map[string]string{"body": "root:x:0:0::/root:/bin/sh\nbuilder:x:1234:2345::/build:/bin/sh\n"}}
	mine := tar.Header{Typeflag: tar.TypeReg, Name: "build/mine", Mode: 0o600, Uid: 1234, Gid: 2345, PAXRecords: map[string]string{"body": "mine"}}
	roots := tar.Header{Typeflag: tar.TypeReg, Name: "build/roots", Mode: 0o600, PAXRecords: map[string]string{"body": "root's"}}
	link := tar.Header{Typeflag: tar.TypeSymlink, Name: "etc/resolv.conf", Linkname: "../run/elsewhere", Mode: 0o777}
	ref := system(t, v1.Config{User: "builder", Env: []string{"GREETING=hello world", "PATH=/build/bin:/usr/bin:/bin"}, WorkingDir: "/build/src",
		Entrypoint: []string{"sh", "-c", `echo "started in $PWD with $1" > /tmp/started; echo said`, "--"}, Cmd: []string{"it's"}},
		layerWith(t, passwd, tar.Header{Typeflag: tar.TypeDir, Name: "build", Mode: 0o755, Uid: 1234, Gid: 2345}, mine, roots, link))
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			box, err := sandbox.Create(t.Context(), withImages(t, runtime), sandbox.Spec{Image: ref, TTL: 2 * time.Minute}, sandbox.Options{Log: discard()})
			if err != nil {
				t.Fatalf("%v: %s", err, sandbox.HintOf(err))
			}
			if info := box.Info(); !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(info.ImageDigest) || info.Cwd != "/build/src" {
				t.Errorf("%+v", info)
			}
			if r, err := box.Wait(t.Context(), sandbox.EntrypointID); err != nil || !r.OK() {
				t.Errorf("the entrypoint: %+v %v", r.Outcome, err)
			}
			script := `pwd; echo "$GREETING"; echo "$PATH"; cat /tmp/started; touch made && echo made; cat ../mine; echo; cat ../roots 2>/dev/null && echo || echo no; id -un; echo "$HOME"; grep -c nameserver /etc/resolv.conf`
			r, err := box.Run(t.Context(), sandbox.Command{Shell: script})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"/build/src", "hello world", "/build/bin:/usr/bin:/bin", "started in /build/src with it's", "made", "mine", "no", "builder", "/build", "2"}
			if os.Geteuid() != 0 && runtime == "runc" { // one id is mapped: the image's are all root's
				want[6], want[7] = "root's", "root"
			}
			got := strings.Split(strings.TrimSpace(string(r.Stdout.Head)), "\n")
			if os.Geteuid() != 0 && runtime == "gvisor" { // files of others than root are the user's own, shown as root's
				got[5], want[5] = "", ""
			}
			if !slices.Equal(got, want) {
				t.Errorf("\n%q\nwant\n%q\n%s", got, want, r.Stderr.Head)
			}
		})
	}
}

// The image stays as it is, and the writable layer over it is bounded.
func TestImageIsShared(t *testing.T) {
	ref := system(t, v1.Config{})
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			p := withImages(t, runtime)
			create := func() *sandbox.Sandbox {
				box, err := sandbox.Create(t.Context(), p, sandbox.Spec{Image: ref, TTL: 2 * time.Minute, Resources: sandbox.Resources{Disk: 64 << 20}}, sandbox.Options{Log: discard()})
				if err != nil {
					t.Fatal(err)
				}
				return box
			}
			a, b := create(), create()
			for _, step := range []struct {
				box         *sandbox.Sandbox
				shell, want string
			}{
				{a, "mkdir d && echo a > d/f && cat d/f", "a\n"},
				{b, "ls d 2>/dev/null || echo none", "none\n"},
				{a, "head -c 100M /dev/zero > big; test $(stat -c %s big) -lt 67108864 && echo full; rm big; echo again > small && cat small", "full\nagain\n"},
			} {
				r, err := step.box.Run(t.Context(), sandbox.Command{Shell: step.shell})
				if err != nil {
					t.Fatal(err)
				}
				if got := string(r.Stdout.Head); got != step.want {
					t.Errorf("%s: %q %q", step.shell, got, r.Stderr.Head)
				}
			}
		})
	}
}

// An environment that execd cannot be told is refused, and nothing waits for it.
func TestImageEnvironmentTooLarge(t *testing.T) {
	ref := newImage(t, v1.Config{Env: []string{"LARGE=" + strings.Repeat("x", 64<<10)}})
	_, err := withImages(t, "runc").Create(t.Context(), sandbox.Spec{Image: ref, TTL: time.Minute})
	if sandbox.KindOf(err) != sandbox.KindTooLarge {
		t.Errorf("%v, want too_large", err)
	}
}

// A sandbox from an image ends with its keeper, too: nobody sweeps here.
func TestImageEndsWithKeeper(t *testing.T) {
	ref := system(t, v1.Config{})
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			state := t.TempDir()
			p := withImagesIn(t, runtime, state)
			for range 3 {
				if _, err := p.Create(t.Context(), sandbox.Spec{Image: ref, TTL: time.Minute}); err != nil {
					t.Fatal(err)
				}
			}
			seen := processes(state)
			for _, victim := range victims["keeper"](process{}, seen) {
				unix.Kill(victim.pid, unix.SIGKILL)
			}
			deadline := time.Now().Add(10 * time.Second)
			for _, s := range seen {
				awaitEnd(t, s, deadline)
			}
		})
	}
}

func awaitEnd(t *testing.T, p process, deadline time.Time) {
	t.Helper()
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil || !p.alive() {
		return
	}
	defer unix.Close(fd)
	left := max(time.Until(deadline), 0)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())); n == 0 {
		t.Errorf("%s (pid %d) does not end: %v", p.what, p.pid, err)
	}
}

package daemon_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rein-sh/rein/execd"
	"github.com/rein-sh/rein/execd/daemon"
)

func TestSpecialFiles(t *testing.T) {
	r := serve(t, bestUser())
	if err := syscall.Mkfifo(filepath.Join(r.work, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(r.work, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink("fifo", filepath.Join(r.work, "link")); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"", r.work} {
		for _, p := range []string{"fifo", "socket", "link", ".", "/dev/null"} {
			if root != "" && p == "/dev/null" {
				continue
			}
			if _, err := get(t, r, execd.DownloadRequest{Path: p, Root: root}); !hasCode(err, execd.CodeInvalidFile) {
				t.Errorf("download of %s in %q: %v", p, root, err)
			}
			meta := execd.UploadMetadata{Path: p, Rein: &execd.UploadOptions{Root: root}}
			if err := put(t, r, meta, "x"); !hasCode(err, execd.CodeInvalidFile) {
				t.Errorf("upload to %s in %q: %v", p, root, err)
			}
			if _, err := r.Replace(t.Context(), root, map[string]execd.Replace{p: {Old: "a", New: "b"}}); !hasCode(err, execd.CodeInvalidFile) {
				t.Errorf("replace in %s in %q: %v", p, root, err)
			}
		}
	}
}

func TestConfinement(t *testing.T) {
	r := serve(t, bestUser())
	outside := publicDir(t)
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(r.work, "root")
	if err := os.MkdirAll(filepath.Join(root, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"abs": secret, "rel": "../../" + filepath.Base(outside) + "/secret", "dir": outside, "up": "..", "chain": "sub/../rel",
		"inside": "sub/file", "newout": filepath.Join(outside, "new"),
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"abs", "rel", "chain", "dir/secret", "up/../../secret", "../x", "sub/../../x", secret, r.work, "newout", "dir/new", "up/new"} {
		if _, err := get(t, r, execd.DownloadRequest{Path: p, Root: root}); err == nil {
			t.Errorf("download of %s left its root", p)
		}
		if err := put(t, r, execd.UploadMetadata{Path: p, Rein: &execd.UploadOptions{Root: root}}, "overwritten"); err == nil {
			t.Errorf("upload to %s left its root", p)
		}
		if err := r.Move(t.Context(), root, execd.Move{Src: p, Dest: "sub/moved"}); err == nil && !slices.Contains([]string{"abs", "rel", "chain", "newout"}, p) {
			t.Errorf("move of %s left its root", p)
		}
		os.Rename(filepath.Join(root, "sub/moved"), filepath.Join(root, p)) // a link that was moved as itself
		if _, err := r.List(t.Context(), root, p, 1); err == nil {
			t.Errorf("list of %s left its root", p)
		}
		if err := r.Mkdir(t.Context(), root, map[string]execd.Permission{p + "/d": {}}); err == nil {
			t.Errorf("mkdir in %s left its root", p)
		}
		if err := r.Permissions(t.Context(), root, map[string]execd.Permission{p: {Mode: 600}}); err == nil {
			t.Errorf("permissions of %s left its root", p)
		}
		if err := r.RemoveAll(t.Context(), root, p+"/secret"); err == nil && strings.Contains(p, "/") {
			if _, err := os.Stat(secret); err != nil {
				t.Errorf("remove in %s left its root", p)
			}
		}
	}
	if b, err := os.ReadFile(secret); err != nil || string(b) != "secret" {
		t.Errorf("the file outside: %q %v", b, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("came into being outside: %v %v", entries, err)
	}
	// A link that stays inside is followed, as anywhere.
	if err := put(t, r, execd.UploadMetadata{Path: "inside", Rein: &execd.UploadOptions{Root: root}}, "x"); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "sub/file")); err != nil || string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
}

func TestConfinementAgainstSwaps(t *testing.T) {
	r := serve(t, daemon.OSOptions{})
	outside := publicDir(t)
	if err := os.WriteFile(filepath.Join(outside, "f"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(r.work, "root")
	dir, link, flip := filepath.Join(root, "dir"), filepath.Join(root, "link"), filepath.Join(root, "flip")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("inside"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Rename(dir, flip)
			os.Rename(flip, dir)
			os.Rename(link, flip)
			os.Rename(flip, link)
		}
	}()
	for i := range 300 {
		if got, err := get(t, r, execd.DownloadRequest{Path: "flip/f", Root: root}); err == nil && got == "secret" {
			t.Fatal("a swapped link led a read outside")
		}
		put(t, r, execd.UploadMetadata{Path: fmt.Sprintf("flip/new%d", i%3), Rein: &execd.UploadOptions{Root: root}}, "x")
		r.Remove(t.Context(), root, "flip/f2")
	}
	close(stop)
	<-stopped
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("a swapped link led a write outside: %v %v", entries, err)
	}
}

func TestServerRoot(t *testing.T) {
	root := publicDir(t)
	r := serve(t, daemon.OSOptions{}, func(c *daemon.Config) {
		c.Root, c.StateDir, c.Cwd, c.Home = root, "/state", "/", "/"
	})
	if err := put(t, r, execd.UploadMetadata{Path: "/workspace/f"}, "x"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "workspace/f")); err != nil || string(b) != "x" {
		t.Fatalf("%q %v", b, err)
	}
	if _, err := get(t, r, execd.DownloadRequest{Path: "/../../etc/passwd"}); !hasStatus(err, 404) {
		t.Errorf("%v", err)
	}
	if err := os.Symlink("/etc", filepath.Join(root, "etc")); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, r, execd.DownloadRequest{Path: "/etc/passwd"}); !hasStatus(err, 403) {
		t.Errorf("%v", err)
	}
	if l, err := r.List(t.Context(), "/workspace", "/workspace", 1); err != nil || len(l) != 1 || l[0].Path != "/workspace/f" {
		t.Errorf("%+v %v", l, err)
	}
}

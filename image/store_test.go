package image_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rein-sh/rein/image"
)

// Many who want the same image at once fetch it once, and nobody waits for the
// others to be done with it.
func TestOnce(t *testing.T) {
	f := newFake(t, false)
	ref, _ := pushed(t, f)
	dir := cache(t)
	var wg sync.WaitGroup
	fetched := make(chan bool, 8)
	for range cap(fetched) { // each a store of its own, as processes have
		s := open(t, image.Options{Dir: dir, Allow: []string{ref}, Transport: transport(t, "", nil)})
		wg.Go(func() {
			img, err := s.Get(t.Context(), ref)
			if err != nil {
				t.Error(err)
				return
			}
			fetched <- img.Fetched
			t.Cleanup(func() {
				if err := img.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
	wg.Wait()
	close(fetched)
	n := 0
	for yes := range fetched {
		if yes {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of them fetched it, want 1", n)
	}
	if layers := f.count("GET /v2/org/app/blobs/"); layers > 2+8 { // and a configuration each
		t.Errorf("%d blobs were read", layers)
	}
}

// What is used is neither removed nor pruned; the lock that says so can be held
// by whoever goes on using the tree.
func TestInUse(t *testing.T) {
	m := made(t, []entry{dir("closed", 0o555), file("closed/f", "x")})
	ref := "oci:" + m.layout(m.manifest())
	s, dir := storeIn(t, image.Options{Allow: anyLayout})
	img, err := s.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	keep := func(when string) {
		t.Helper()
		if _, err := s.Remove(t.Context(), ref); image.KindOf(err) != image.KindInUse {
			t.Errorf("%s, remove: %v, want it in use", when, err)
		}
		if gone, err := s.Prune(t.Context(), image.Policy{}); err != nil || len(gone) > 0 {
			t.Errorf("%s, prune removed %v (%v)", when, gone, err)
		}
		list, err := s.List(t.Context())
		if err != nil || len(list) != 1 || !list[0].InUse || list[0].Digest != img.Digest || list[0].References[0] != ref {
			t.Errorf("%s, list is %+v (%v)", when, list, err)
		}
		if listing(t, img.Root)["closed/f"] != "x" {
			t.Errorf("%s, the tree is gone", when)
		}
	}
	keep("held by Get")
	lock, err := os.Open(img.Lock)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	if err := img.Close(); err != nil {
		t.Fatal(err)
	}
	keep("held by another")
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if gone, err := s.Remove(t.Context(), img.Digest[:19]); err != nil || gone.Digest != img.Digest {
		t.Errorf("remove: %+v, %v", gone, err)
	}
	leftNothing(t, dir)
	if _, err := s.Remove(t.Context(), ref); image.KindOf(err) != image.KindNotFound {
		t.Errorf("remove once more: %v, want it not found", err)
	}
	again, err := s.Get(t.Context(), ref)
	if err != nil || !again.Fetched {
		t.Fatalf("fetched again: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	hex := strings.TrimPrefix(img.Digest, "sha256:")
	for _, few := range []string{"sha256:" + hex[:5], "sha256:", "SHA256:" + hex} {
		if _, err := s.Remove(t.Context(), few); image.KindOf(err) != image.KindInvalid {
			t.Errorf("remove %q: %v, want it refused", few, err)
		}
	}
	if _, err := s.Remove(t.Context(), hex[:11]); image.KindOf(err) != image.KindNotFound { // may be a name
		t.Errorf("remove by 11 digits: %v, want it not found", err)
	}
	if gone, err := s.Remove(t.Context(), hex[:12]); err != nil || gone.Digest != img.Digest {
		t.Errorf("remove by 12 digits: %+v, %v", gone, err)
	}
}

func TestPrune(t *testing.T) {
	now := time.Now()
	s, dir := storeIn(t, image.Options{Allow: anyLayout, Now: func() time.Time { return now }})
	refs := []string{}
	for _, name := range []string{"old", "used", "new"} {
		m := made(t, []entry{file(name, "x")})
		refs = append(refs, "oci:"+m.layout(m.manifest()))
	}
	use := func(i int) string {
		img, err := s.Get(t.Context(), refs[i])
		if err != nil {
			t.Fatal(err)
		}
		defer img.Close()
		return img.Digest
	}
	old := use(0)
	use(1)
	now = now.Add(48 * time.Hour)
	use(1)
	use(2)
	gone, err := s.Prune(t.Context(), image.Policy{Unused: 24 * time.Hour})
	if err != nil || len(gone) != 1 || gone[0].Digest != old {
		t.Errorf("pruned %+v (%v), want the old one", gone, err)
	}
	if gone, err = s.Prune(t.Context(), image.Policy{}); err != nil || len(gone) != 2 {
		t.Errorf("pruned %+v (%v), want the two others", gone, err)
	}
	leftNothing(t, dir)
}

// A process that is killed while it fetches leaves a directory, which the next
// one removes; that of a live process it leaves alone.
func TestCrash(t *testing.T) {
	f := newFake(t, false)
	ref, _ := pushed(t, f)
	hold, arrived := make(chan struct{}), make(chan struct{}, 8)
	defer close(hold)
	f.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || f.count("blobs") == 1 { // the first is the configuration
			return false
		}
		arrived <- struct{}{}
		select {
		case <-hold:
		case <-r.Context().Done():
		}
		return true
	})
	dir := cache(t)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), "IMAGE_TEST_DIR="+dir, "IMAGE_TEST_REF="+ref)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	<-arrived
	tmp := func() int {
		entries, err := os.ReadDir(filepath.Join(dir, "tmp"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	s := open(t, image.Options{Dir: dir, Allow: []string{ref}, Transport: transport(t, "", nil)})
	if tmp() != 1 {
		t.Errorf("%d directories while it fetches, want its own", tmp())
	}
	waiting, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Get(waiting, ref); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another, while it is fetched: %v, want it to wait", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	f.intercept(nil)
	s = open(t, image.Options{Dir: dir, Allow: []string{ref}, Transport: transport(t, "", nil)})
	if tmp() != 0 {
		t.Errorf("%d directories are left of it", tmp())
	}
	if !get(t, s, ref).Fetched {
		t.Error("it was not fetched")
	}
}

// TestChild is the process that TestCrash kills.
func TestChild(t *testing.T) {
	dir := os.Getenv("IMAGE_TEST_DIR")
	if dir == "" {
		t.Skip("only as a child of TestCrash")
	}
	s, err := image.Open(image.Options{Dir: dir, Allow: []string{os.Getenv("IMAGE_TEST_REF")}})
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Get(t.Context(), os.Getenv("IMAGE_TEST_REF"))
	t.Fatal("it ended by itself", img, err)
}

// A cache that others could have written to is not used.
func TestCache(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{shared: "others may enter it", link: "no directory", "relative": "no absolute path", "/proc/1/fd": ""} {
		if _, err := image.Open(image.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", dir, err, says)
		}
	}
	for _, o := range []image.Options{{Allow: []string{"*"}}, {Insecure: []string{"http://x"}}, {Platform: "amd64"}} {
		o.Dir = cache(t)
		if _, err := image.Open(o); image.KindOf(err) != image.KindInvalid {
			t.Errorf("%+v: %v, want it invalid", o, err)
		}
	}
	dir := cache(t)
	open(t, image.Options{Dir: dir})
	for _, d := range []string{dir, filepath.Join(dir, "images"), filepath.Join(dir, "tmp")} {
		info, err := os.Stat(d)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v (%v)", d, info.Mode(), err)
		}
	}
}

// Progress is told in order, and of all bytes.
func TestProgress(t *testing.T) {
	f := newFake(t, false)
	ref, _ := pushed(t, f)
	fetched, unpacked := map[int]image.Progress{}, map[int]image.Progress{}
	var last image.Progress
	s := open(t, image.Options{Allow: []string{ref}, Transport: transport(t, "", nil), Progress: func(p image.Progress) {
		switch last = p; p.Stage {
		case image.StageFetch:
			fetched[p.Layer] = p
		case image.StageUnpack:
			if len(fetched) != p.Layers || fetched[p.Layer].Done != p.Total {
				t.Errorf("layer %d is unpacked before it is there", p.Layer)
			}
			unpacked[p.Layer] = p
		}
	}})
	get(t, s, ref)
	for _, of := range []map[int]image.Progress{fetched, unpacked} {
		if len(of) != 2 || of[1].Done != of[1].Total || of[2].Done != of[2].Total || of[1].Layers != 2 {
			t.Errorf("told %+v", of)
		}
	}
	if last.Stage != image.StageDone || last.Reference != ref {
		t.Errorf("the last is %+v", last)
	}
}

// What the image says about running it arrives.
func TestConfig(t *testing.T) {
	m := made(t, []entry{file("f", "x")})
	m.config = map[string]any{"User": "app:staff", "Env": []string{"PATH=/bin", "nonsense", "A=b=c"}, "Entrypoint": []string{"/init"}, "Cmd": []string{"run", "me"},
		"WorkingDir": "srv/app/", "Labels": map[string]string{"a": "b"}, "StopSignal": "SIGINT"}
	s := open(t, image.Options{Allow: anyLayout})
	ref := "oci:" + m.layout(m.manifest())
	for range 2 { // fetched, and from the cache
		img := get(t, s, ref)
		c := img.Config
		if c.User != "app:staff" || fmt.Sprint(c.Env) != "[PATH=/bin A=b=c]" || fmt.Sprint(c.Entrypoint, c.Cmd) != "[/init] [run me]" ||
			c.WorkingDir != "/srv/app" || c.Labels["a"] != "b" || c.StopSignal != "SIGINT" || c.OS != "linux" {
			t.Errorf("the configuration is %+v", c)
		}
		if len(img.Notes) != 1 || !strings.Contains(img.Notes[0], "nonsense") {
			t.Errorf("the notes are %q", img.Notes)
		}
	}
}

// What no program could be started with is refused when it is fetched.
func TestLongEntrypoint(t *testing.T) {
	m := made(t, []entry{file("f", "x")})
	m.config = map[string]any{"Cmd": []string{"sh", "-c", strings.Repeat("x", 64<<10)}}
	s := open(t, image.Options{Allow: anyLayout})
	img, err := s.Get(t.Context(), "oci:"+m.layout(m.manifest()))
	if image.KindOf(err) != image.KindTooLarge || !strings.Contains(err.Error(), "entrypoint") {
		t.Errorf("%v, %v", img, err)
	}
}

// A full disk is the host's fault, and nothing is left.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a small file system")
	}
	small := t.TempDir()
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no small file system can be made, as in a container without CAP_SYS_ADMIN:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	m := made(t, []entry{file("f", strings.Repeat("x", 4<<20))})
	dir := filepath.Join(small, "images")
	s := open(t, image.Options{Dir: dir, Allow: anyLayout})
	if _, err := s.Get(t.Context(), "oci:"+m.layout(m.manifest())); image.KindOf(err) != image.KindHost || !strings.Contains(err.Error(), "no space") {
		t.Errorf("got %v, want no space", err)
	}
	leftNothing(t, dir)
}

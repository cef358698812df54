package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rein-sh/rein/image"
)

// damages are what can be wrong with the record of an image.
var damages = map[string]struct {
	do   func(record string) error
	says string
}{
	"cut":              {func(record string) error { return os.WriteFile(record, []byte(`{"digest":`), 0o600) }, "cannot be read"},
	"missing":          {os.Remove, "missing"},
	"of another image": {func(record string) error { return os.WriteFile(record, []byte(`{"digest":"sha256:00"}`), 0o600) }, "is about"},
	"a file in its place": {func(record string) error {
		return errors.Join(os.RemoveAll(filepath.Dir(record)), os.WriteFile(filepath.Dir(record), nil, 0o600))
	}, "not a directory"},
}

// damaged is a cache with a sound image and a damaged one that nobody uses, the
// second's reference and digest, and the cache's directory.
func damaged(t *testing.T, do func(record string) error) (s *image.Store, ref, digest, dir string) {
	t.Helper()
	s, dir = storeIn(t, image.Options{Allow: anyLayout})
	for _, name := range []string{"sound", "damaged"} {
		m := made(t, []entry{file(name, "x")})
		ref = "oci:" + m.layout(m.manifest())
		img, err := s.Get(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		digest = img.Digest
		if err := img.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := do(filepath.Join(dir, "images", strings.Replace(digest, ":", "-", 1), "image.json")); err != nil {
		t.Fatal(err)
	}
	return s, ref, digest, dir
}

// A record that says nothing costs no more than its own image, which is listed
// as damaged and fetched again.
func TestDamage(t *testing.T) {
	for name, c := range damages {
		t.Run(name, func(t *testing.T) {
			s, ref, digest, dir := damaged(t, c.do)
			list, err := s.List(t.Context())
			if err != nil || len(list) != 2 {
				t.Fatalf("list: %+v, %v; want both", list, err)
			}
			for _, i := range list {
				if bad := i.Digest == digest; bad != (i.Damage != "") || bad && (!strings.Contains(i.Damage, c.says) || i.References[0] != ref || i.InUse) {
					t.Errorf("list has %+v, want %s alone damaged: %q", i, digest, c.says)
				}
			}
			img := get(t, s, ref)
			if !img.Fetched || listing(t, img.Root)["damaged"] != "x" || len(img.Notes) != 1 || !strings.Contains(img.Notes[0], c.says) {
				t.Errorf("got %+v, want it fetched again, with a note", img)
			}
			if again := get(t, s, ref); again.Fetched || len(again.Notes) > 0 {
				t.Errorf("once more: %+v, want it from the cache", again)
			}
			if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

// What is damaged can be removed like anything else, and a prune takes it even
// when it was used of late.
func TestRemoveDamaged(t *testing.T) {
	for name, c := range damages {
		t.Run(name, func(t *testing.T) {
			s, ref, digest, dir := damaged(t, c.do)
			if gone, err := s.Remove(t.Context(), ref); err != nil || gone.Digest != digest {
				t.Errorf("remove: %+v, %v", gone, err)
			}
			if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0].Damage != "" {
				t.Errorf("after it, list: %+v, %v", list, err)
			}
			if gone, err := s.Prune(t.Context(), image.Policy{}); err != nil || len(gone) != 1 {
				t.Errorf("prune: %+v, %v", gone, err)
			}
			leftNothing(t, dir)
		})
		t.Run(name+", pruned", func(t *testing.T) {
			s, _, digest, _ := damaged(t, c.do)
			if gone, err := s.Prune(t.Context(), image.Policy{Unused: time.Hour}); err != nil || len(gone) != 1 || gone[0].Digest != digest {
				t.Errorf("prune: %+v, %v; want the damaged one alone", gone, err)
			}
		})
	}
}

// A damaged record of where a reference led to is as none.
func TestDamagedReference(t *testing.T) {
	s, ref, _, dir := damaged(t, func(string) error { return nil })
	records, err := filepath.Glob(filepath.Join(dir, "refs", "*.json"))
	if err != nil || len(records) != 2 {
		t.Fatal(records, err)
	}
	for _, r := range records {
		if err := os.WriteFile(r, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != 2 || len(list[0].References)+len(list[1].References) > 0 {
		t.Errorf("list: %+v, %v", list, err)
	}
	img, err := s.Get(t.Context(), ref)
	if err != nil || img.Fetched {
		t.Fatalf("got %+v, %v; want it from the cache", img, err)
	}
	if err := img.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Remove(t.Context(), ref); err != nil {
		t.Errorf("its reference was not written again: %v", err)
	}
	if _, err := s.Prune(t.Context(), image.Policy{}); err != nil {
		t.Error(err)
	}
	leftNothing(t, dir)
}

// Looking at images while others remove them leaves no lock file behind.
func TestLocksGo(t *testing.T) {
	s, dir := storeIn(t, image.Options{Allow: anyLayout})
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := s.List(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 10 {
		m := made(t, []entry{file(strconv.Itoa(i), "x")})
		ref := "oci:" + m.layout(m.manifest())
		img, err := s.Get(t.Context(), ref)
		if err == nil {
			err = img.Close()
		}
		if err != nil {
			t.Error(err)
			break
		}
		for err = errors.New("once"); err != nil; {
			_, err = s.Remove(t.Context(), ref)
			if err != nil && image.KindOf(err) != image.KindInUse { // a list may hold its lock longer than removing waits
				t.Error(err)
				break
			}
		}
	}
	close(done)
	wg.Wait()
	leftNothing(t, dir)
}

// Who takes the lock of an image that another has just removed takes its file
// away again, the last of several.
func TestLockOfNothing(t *testing.T) {
	s, dir := storeIn(t, image.Options{Allow: anyLayout})
	digest := "sha256:" + strings.Repeat("a", 64)
	files := func() int {
		entries, err := os.ReadDir(filepath.Join(dir, "locks"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	err := s.UseLock(digest, func() {
		if err := s.UseLock(digest, func() {}); err != nil {
			t.Error(err)
		}
		if n := files(); n != 1 {
			t.Errorf("%d lock files while another holds it, want its own", n)
		}
	})
	if n := files(); n != 0 || err != nil {
		t.Errorf("%d lock files are left (%v)", n, err)
	}
	m := made(t, []entry{file("f", "x")})
	img := get(t, s, "oci:"+m.layout(m.manifest()))
	if err := s.UseLock(img.Digest, func() {}); err != nil || files() != 1 {
		t.Errorf("%d lock files of an image that is there (%v), want one", files(), err)
	}
}

// A lock file of an image that never came is removed when the cache is opened.
func TestLocksSwept(t *testing.T) {
	dir := cache(t)
	open(t, image.Options{Dir: dir})
	for _, name := range []string{"sha256-" + strings.Repeat("a", 64), "something else"} {
		if err := os.WriteFile(filepath.Join(dir, "locks", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open(t, image.Options{Dir: dir})
	left, err := os.ReadDir(filepath.Join(dir, "locks"))
	if err != nil || len(left) != 1 || left[0].Name() != "something else" {
		t.Errorf("left: %v (%v)", left, err)
	}
}

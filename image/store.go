package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A Store is the cache of images of one user, at
//
//	images/sha256-HEX/root        an unpacked root file system
//	images/sha256-HEX/image.json  what is known about it; written last
//	locks/sha256-HEX              held shared by its users
//	refs/HEX.json                 where a reference led to
//	tmp/NAME                      what is being fetched or removed
//
// It is safe for concurrent use, also by several processes.
type Store struct {
	o        Options
	allow    []Pattern
	platform v1.Platform
	stall    time.Duration // how long a registry may send nothing of a layer
	answer   time.Duration // how long a document may take

	mu sync.Mutex // one call of Progress at a time
}

// Open opens the cache, making it if need be, and removes what a crash has left
// in it. Nothing is held open.
func Open(o Options) (*Store, error) {
	s := &Store{o: o, stall: stallAfter, answer: documentTimeout}
	if err := s.configureStore(); err != nil {
		return nil, failed("open", "images", KindInvalid, err)
	}
	if err := s.prepare(); err != nil {
		return nil, failed("open", o.Dir, KindHost, err)
	}
	return s, nil
}

func (s *Store) configureStore() error {
	if !filepath.IsAbs(s.o.Dir) {
		return bad("", "the cache %q is no absolute path", s.o.Dir)
	}
	s.o.Dir = filepath.Clean(s.o.Dir)
	for _, text := range s.o.Allow {
		p, err := ParsePattern(text)
		if err != nil {
			return err
		}
		s.allow = append(s.allow, p)
	}
	for _, host := range s.o.Insecure {
		if err := CheckRegistry(host); err != nil {
			return err
		}
	}
	platform, err := parsePlatform(s.o.Platform)
	s.platform = platform
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	if s.o.Transport == nil {
		s.o.Transport = NewTransport()
	}
	s.o.Limits = s.o.Limits.withDefaults()
	return err
}

func parsePlatform(text string) (v1.Platform, error) {
	if text == "" {
		return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, nil
	}
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return v1.Platform{}, bad("such as linux/arm64", "%.100q is no platform", text)
	}
	p := v1.Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	return p, nil
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Manifest:     cmp.Or(l.Manifest, 4<<20),
		IndexDepth:   cmp.Or(l.IndexDepth, 3),
		IndexEntries: cmp.Or(l.IndexEntries, 512),
		Layers:       cmp.Or(l.Layers, 128),
		Compressed:   cmp.Or(l.Compressed, 8<<30),
		Unpacked:     cmp.Or(l.Unpacked, 16<<30),
		Entries:      cmp.Or(l.Entries, 2_000_000),
		Steps:        cmp.Or(l.Steps, 32_000_000),
		Path:         cmp.Or(l.Path, 2048),
		Depth:        cmp.Or(l.Depth, 128),
		File:         cmp.Or(l.File, 8<<30),
		Ratio:        cmp.Or(l.Ratio, 250),
	}
}

// prepare makes the directories and sweeps. What others could have written to
// is not used.
func (s *Store) prepare() error {
	if err := os.MkdirAll(s.o.Dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(s.o.Dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return &fault{kind: KindHost, err: errors.New("it is no directory"), hint: "name another directory"}
	case !ok || int(st.Uid) != os.Geteuid():
		return &fault{kind: KindHost, err: fmt.Errorf("it belongs to another user than uid %d", os.Geteuid()), hint: "name a directory of your own"}
	case info.Mode().Perm()&0o077 != 0:
		return &fault{kind: KindHost, err: errors.New("others may enter it"), hint: "chmod 700 " + s.o.Dir}
	}
	for _, d := range []string{"images", "locks", "refs", "tmp"} {
		if err := os.Mkdir(filepath.Join(s.o.Dir, d), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return s.sweep()
}

// progress tells the owner of the store.
func (s *Store) progress(p Progress) {
	if s.o.Progress == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Progress(p)
}

// Get returns an image, unpacked and held until it is closed. What is not
// allowed is refused, before anything is asked for unless only its digest can
// tell. An image that is named by its digest and is in the cache is never asked
// for again; where a tag leads is asked each time, and when the registry does not
// answer, the cache does, with a note. Errors are *Error or those of ctx.
func (s *Store) Get(ctx context.Context, ref string) (*Image, error) {
	r, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	if !s.mayBeAllowed(r) {
		return nil, denied(r)
	}
	img, err := s.get(ctx, r)
	if ended := context.Cause(ctx); err != nil && ended != nil && errors.Is(err, ended) {
		return nil, fmt.Errorf("pull %s: %w", r, err)
	}
	if err != nil {
		return nil, failed("pull", r.String(), KindHost, err)
	}
	return img, nil
}

func (s *Store) get(ctx context.Context, r Reference) (*Image, error) {
	src, err := s.source(r)
	if err != nil {
		return nil, err
	}
	defer src.close()
	img, err := s.cached(ctx, r, src)
	if img != nil || err != nil {
		return img, err
	}
	p, err := src.plan(ctx)
	if err != nil {
		return nil, err
	}
	if !s.allowed(r, p.documents) {
		return nil, denied(r)
	}
	note := ""
	for fetched := false; ; {
		img, err := s.use(ctx, r, p.digest)
		if err != nil {
			return nil, err
		}
		if img != nil {
			img.Fetched = fetched
			if note != "" {
				img.Notes = append(img.Notes, note)
			}
			return s.remember(r, p, img)
		}
		// Fetching gives its lock up, so somebody may remove the image before it
		// is used: then once more.
		if fetched, note, err = s.fetch(ctx, r, p); err != nil {
			return nil, err
		}
	}
}

// remember notes where the reference led to.
func (s *Store) remember(r Reference, p *plan, img *Image) (*Image, error) {
	err := s.writeRef(refRecord{Reference: r.String(), Platform: platformText(s.platform), Digest: p.digest, Documents: p.documents, Resolved: s.o.Now()})
	if err != nil {
		return nil, errors.Join(err, img.Close())
	}
	return img, nil
}

// cached returns the image if the cache has what the reference means now, and
// nil without an error if it has not.
func (s *Store) cached(ctx context.Context, r Reference, src source) (*Image, error) {
	rec, err := s.readRef(r)
	if err == nil && rec == nil && r.digest != "" {
		rec, err = s.findDigest(r)
	}
	if err != nil || rec == nil || !s.allowed(r, rec.Documents) {
		return nil, err // what it leads to now may be allowed
	}
	stale := ""
	if r.digest == "" {
		root, err := src.head(ctx)
		switch {
		case err != nil && KindOf(failed("", "", KindHost, err)) == KindUnavailable && ctx.Err() == nil:
			stale = fmt.Sprintf("the registry did not answer (%v); used the image it named on %s", err, rec.Resolved.UTC().Format(time.RFC3339))
		case err != nil:
			return nil, err
		case root != rec.Documents[0]:
			return nil, nil
		}
	}
	img, err := s.use(ctx, r, rec.Digest)
	if img != nil && stale != "" {
		img.Notes = append(img.Notes, stale)
	}
	return img, err
}

// use takes an image of the cache; nil without an error when it is not there, or
// damaged.
func (s *Store) use(ctx context.Context, r Reference, digest string) (*Image, error) {
	name := dirName(digest)
	if there, err := s.hasImage(name); !there || err != nil {
		return nil, err
	}
	held, err := s.lock(ctx, name, unix.LOCK_SH, nil, nil)
	if err != nil {
		return nil, err
	}
	m, _, err := s.readMarker(name)
	if m == nil || err != nil {
		return nil, errors.Join(err, s.giveUp(held, name))
	}
	if err := s.touch(name); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return &Image{Reference: r.String(), Digest: digest, Config: m.Config, Root: filepath.Join(s.imagePath(name), "root"),
		Lock: s.lockPath(name), Entries: m.Entries, Size: m.Size, Dropped: m.Dropped, Notes: m.Notes, held: held}, nil
}

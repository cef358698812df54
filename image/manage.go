package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// List returns the images of the cache, the last used first.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	entries, err := os.ReadDir(filepath.Join(s.o.Dir, "images"))
	if err != nil {
		return nil, failed("list", s.o.Dir, KindHost, err)
	}
	references := map[string][]string{}
	err = s.refs(func(_ string, rec *refRecord) error {
		if rec != nil {
			references[rec.Digest] = append(references[rec.Digest], rec.Reference)
		}
		return nil
	})
	out := []Info{}
	for _, e := range entries {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, failed("list", s.o.Dir, KindHost, err)
		}
		var i *Info
		if i, err = s.describe(e.Name()); i != nil {
			i.References = append(i.References, references[i.Digest]...)
			slices.Sort(i.References)
			out = append(out, *i)
		}
	}
	if err != nil {
		return nil, failed("list", s.o.Dir, KindHost, err)
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.Digest, b.Digest)) })
	return out, nil
}

// describe is nil without an error when the image is gone, or never was one.
func (s *Store) describe(name string) (i *Info, err error) {
	digest := nameDigest(name)
	if digest == "" {
		return nil, nil
	}
	held, err := s.tryLock(name, unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	if held != nil {
		defer func() { err = errors.Join(err, s.giveUp(held, name)) }()
	}
	m, damage, err := s.readMarker(name)
	switch {
	case err != nil:
		return nil, err
	case m != nil:
		i = &Info{Digest: m.Digest, Size: m.Size, Entries: m.Entries, Dropped: m.Dropped, Fetched: m.Fetched, Used: m.Fetched}
	case damage != nil:
		i = &Info{Digest: digest, Damage: damage.Error()}
	default:
		return nil, nil
	}
	i.References, i.InUse = []string{}, held == nil
	if info, err := os.Lstat(s.lockPath(name)); err == nil && info.ModTime().After(i.Used) {
		i.Used = info.ModTime()
	}
	return i, nil
}

// Remove removes an image, by a reference that led to it or by the beginning of
// its digest (sha256: and 6 digits or more, or 12 digits or more alone), and
// everything that leads to it. One that is in use stays:
// KindInUse.
func (s *Store) Remove(ctx context.Context, ref string) (Info, error) {
	i, err := s.named(ctx, ref)
	if err != nil {
		return Info{}, failed("remove", ref, KindHost, err)
	}
	gone, err := s.remove(ctx, i)
	switch {
	case err != nil:
		return i, failed("remove", ref, KindHost, err)
	case !gone:
		return i, &Error{Kind: KindInUse, Op: "remove", Subject: ref, Err: errors.New("a sandbox uses it"), Hint: "rein sandbox ls lists them"}
	}
	return i, nil
}

// someDigest is the beginning of a digest that is long enough to be meant, and
// bareDigest one that needs nothing before it.
var (
	someDigest = regexp.MustCompile(`^sha256:[0-9a-f]{6,64}$`)
	bareDigest = regexp.MustCompile(`^[0-9a-f]{12,64}$`)
)

// named finds the one image that ref names.
func (s *Store) named(ctx context.Context, ref string) (Info, error) {
	list, err := s.List(ctx)
	if err != nil {
		return Info{}, err
	}
	is := func(i Info) bool { return strings.HasPrefix(i.Digest, ref) }
	switch {
	case someDigest.MatchString(ref):
	case strings.HasPrefix(ref, "sha256:"):
		return Info{}, bad("write at least 6 of its hexadecimal digits, in lower case", "%.100q is no beginning of a digest", ref)
	default:
		r, err := ParseReference(ref)
		if err != nil {
			return Info{}, err
		}
		is = func(i Info) bool {
			return slices.Contains(i.References, r.String()) || bareDigest.MatchString(ref) && strings.HasPrefix(i.Digest, "sha256:"+ref)
		}
	}
	list = slices.DeleteFunc(list, func(i Info) bool { return !is(i) })
	switch len(list) {
	case 0:
		return Info{}, &fault{kind: KindNotFound, err: errors.New("it is not in the cache"), hint: "rein image ls lists what is"}
	case 1:
		return list[0], nil
	}
	return Info{}, bad("name one by its digest", "it names %d images", len(list))
}

// Prune removes images that nobody uses, as policy says, and returns them. What is
// damaged goes whenever it was used.
func (s *Store) Prune(ctx context.Context, policy Policy) ([]Info, error) {
	list, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	removed := []Info{}
	for _, i := range list {
		if i.InUse || i.Damage == "" && s.o.Now().Sub(i.Used) < policy.Unused {
			continue
		}
		gone, err := s.remove(ctx, i)
		if err != nil {
			return removed, failed("prune", i.Digest, KindHost, err)
		}
		if gone {
			removed = append(removed, i)
		}
	}
	return removed, nil
}

// remove removes an image, or reports false because somebody uses it. It is out
// of its place at once; emptying it takes its time.
func (s *Store) remove(ctx context.Context, i Info) (bool, error) {
	name := dirName(i.Digest)
	brief, cancel := context.WithTimeout(ctx, 4*lockPoll) // a List looks whether it gets the lock
	defer cancel()
	held, err := s.lock(brief, name, unix.LOCK_EX, nil, nil)
	if held == nil && ctx.Err() == nil && brief.Err() != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if there, err := s.hasImage(name); !there || err != nil {
		return false, errors.Join(err, s.giveUp(held, name))
	}
	defer held.Close()
	work, err := s.takeOut(name)
	if err != nil {
		return false, err
	}
	err = s.refs(func(path string, rec *refRecord) error {
		if rec == nil || rec.Digest == i.Digest {
			return ignoreMissing(os.Remove(path))
		}
		return nil
	})
	err = errors.Join(err, os.Remove(held.Name()), discard(work))
	if err != nil {
		return true, fmt.Errorf("it is out of use, but not everything of it is removed: %w", err)
	}
	return true, nil
}

// takeOut moves what is in an image's place into a directory of its own, which
// the caller discards.
func (s *Store) takeOut(name string) (*os.File, error) {
	work, err := s.scratch()
	if err != nil {
		return nil, err
	}
	if err := os.Rename(s.imagePath(name), filepath.Join(work.Name(), "image")); err != nil {
		return nil, errors.Join(err, discard(work))
	}
	return work, nil
}

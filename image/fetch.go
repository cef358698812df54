package image

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// source is where an image comes from.
type source interface {
	// head says what the reference names now, as plan.documents begins.
	head(context.Context) (string, error)
	// plan finds out everything but the layers.
	plan(context.Context) (*plan, error)
	close()
}

func (s *Store) source(r Reference) (source, error) {
	switch r.scheme {
	case schemeLayout:
		return s.openLayout(r)
	case schemeArchive:
		return s.openArchive(r)
	}
	return s.openRegistry(r)
}

// fetch brings the image of p into the cache, unless another does so first. It
// reports whether it was the one, and in a note what it has replaced.
func (s *Store) fetch(ctx context.Context, r Reference, p *plan) (fetched bool, note string, err error) {
	name := dirName(p.digest)
	held, err := s.lock(ctx, name, unix.LOCK_EX, func() { s.progress(Progress{Reference: r.String(), Stage: StageWait}) },
		// Who fetched it may use it already, for as long as a sandbox lives.
		func() (bool, error) { m, _, err := s.readMarker(name); return m != nil, err })
	if held == nil || err != nil {
		return false, "", err
	}
	m, damage, err := s.readMarker(name)
	if m != nil || err != nil {
		return false, "", errors.Join(err, held.Close())
	}
	if damage != nil {
		note = fmt.Sprintf("what the cache had of it was damaged (%v), so it was fetched again", damage)
		err = s.displace(name)
	}
	if err == nil {
		err = s.install(ctx, r, p, name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(held.Name())) // nobody uses what is not there
	}
	return err == nil, note, errors.Join(err, held.Close())
}

// displace removes what is in an image's place and of no use. The image's lock
// is held alone.
func (s *Store) displace(name string) error {
	work, err := s.takeOut(name)
	if err != nil {
		return err
	}
	return discard(work)
}

// install makes the image in a directory of its own and puts it in its place
// when everything is on disk. The image's lock is held.
func (s *Store) install(ctx context.Context, r Reference, p *plan, name string) error {
	work, err := s.scratch()
	if err != nil {
		return err
	}
	m, err := s.build(ctx, r, p, work.Name())
	if err == nil {
		err = s.commit(work, name, m)
	}
	if err != nil {
		s.progress(Progress{Reference: r.String(), Stage: StageFailed, Layers: len(p.layers)})
		return errors.Join(err, discard(work))
	}
	s.progress(Progress{Reference: r.String(), Stage: StageDone, Layers: len(p.layers)})
	return work.Close()
}

// commit writes the marker and renames the directory.
func (s *Store) commit(work *os.File, name string, m *marker) error {
	// The tree first: a marker that is on disk vouches for it.
	if err := unix.Syncfs(int(work.Fd())); err != nil {
		return err
	}
	if err := writeRecord(filepath.Join(work.Name(), "image.json"), m); err != nil {
		return err
	}
	if err := work.Sync(); err != nil {
		return err
	}
	if err := os.Rename(work.Name(), s.imagePath(name)); err != nil {
		return err
	}
	images, err := os.Open(filepath.Join(s.o.Dir, "images"))
	if err != nil {
		return err
	}
	return errors.Join(images.Sync(), images.Close())
}

// build fetches and unpacks the layers into dir/root.
func (s *Store) build(ctx context.Context, r Reference, p *plan, dir string) (*marker, error) {
	tree := filepath.Join(dir, "root")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return nil, err
	}
	u, err := newUnpacker(tree, s.o.Limits)
	if err != nil {
		return nil, err
	}
	blobs := filepath.Join(dir, "blobs")
	if err := os.Mkdir(blobs, 0o700); err != nil {
		return nil, errors.Join(err, u.close())
	}
	m := &marker{Digest: p.digest, Config: p.config, Notes: p.notes, Fetched: s.o.Now()}
	err = s.applyAll(ctx, r, p, u, blobs)
	if err == nil {
		m.Entries, m.Size, err = u.finish()
		m.Dropped = u.dropped
	}
	err = errors.Join(err, u.close(), os.RemoveAll(blobs))
	return m, err
}

// parallel is how many layers are fetched side by side.
const parallel = 3

// applyAll fetches remote layers side by side, and applies all in order.
func (s *Store) applyAll(ctx context.Context, r Reference, p *plan, u *unpacker, blobs string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	defer func() {
		cancel(nil)
		workers.Wait()
	}()
	ready := make([]chan error, len(p.layers))
	next := make(chan int, len(p.layers))
	for i, l := range p.layers {
		ready[i] = make(chan error, 1)
		stage := StageUnpack
		if l.remote {
			stage = StageFetch
			next <- i
		} else {
			ready[i] <- nil
		}
		s.progress(l.told(r, p, i, stage, 0))
	}
	close(next)
	for range min(parallel, len(next)) {
		workers.Go(func() {
			for i := range next {
				ready[i] <- s.spool(ctx, r, p, i, filepath.Join(blobs, strconv.Itoa(i)))
			}
		})
	}
	for i, l := range p.layers {
		if err := <-ready[i]; err != nil {
			return layerError(i, l, err)
		}
		if err := s.apply(ctx, r, p, i, u, filepath.Join(blobs, strconv.Itoa(i))); err != nil {
			return layerError(i, l, err)
		}
	}
	return nil
}

// told is how far a layer is.
func (l layer) told(r Reference, p *plan, i int, stage Stage, done int64) Progress {
	return Progress{Reference: r.String(), Stage: stage, Layer: i + 1, Layers: len(p.layers), Digest: cmp.Or(l.digest, l.diffID), Done: done, Total: l.size}
}

func layerError(i int, l layer, err error) error {
	return fmt.Errorf("layer %d (%.19s): %w", i+1, cmp.Or(l.digest, l.diffID), err)
}

// apply unpacks one layer, from its spooled bytes or its source.
func (s *Store) apply(ctx context.Context, r Reference, p *plan, i int, u *unpacker, spooled string) (err error) {
	l := p.layers[i]
	var raw io.ReadCloser
	if l.remote {
		raw, err = os.Open(spooled)
	} else {
		raw, err = l.open(ctx)
	}
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, raw.Close())
		if l.remote {
			err = errors.Join(err, os.Remove(spooled)) // not needed again
		}
	}()
	compressed := verify(raw, l.size, l.digest)
	watched := &reporter{r: compressed, every: reportEvery, report: func(done int64) {
		s.progress(l.told(r, p, i, StageUnpack, done))
	}}
	archive, release, err := unpacked(watched, l.packing)
	if err != nil {
		return err
	}
	defer release()
	b := &bounds{ctx: ctx, limits: s.o.Limits, total: &u.total, from: compressed, sum: sha256.New(), r: archive}
	u.admit = b.admit
	if err := u.layer(ctx, b); err != nil {
		return err
	}
	// What follows the archive's end belongs to both digests.
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{b}, u.buf); err != nil {
		return err
	}
	if err := sums(b.sum, l.diffID); err != nil {
		return err
	}
	_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{watched}, u.buf)
	u.total.stored += compressed.done()
	return err
}

// spool writes a remote layer to a file, checked; again when the connection was
// lost.
func (s *Store) spool(ctx context.Context, r Reference, p *plan, i int, path string) error {
	const attempts = 3
	for try := 1; ; try++ {
		err := s.spoolOnce(ctx, r, p, i, path)
		if err == nil || try == attempts || !again(ctx, err) {
			return err
		}
		pause := time.NewTimer(time.Second << try / 4)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
	}
}

// again reports whether another attempt may end better.
func again(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if _, ok := errors.AsType[*cutError](err); ok {
		return true
	}
	f, ok := errors.AsType[*fault](err)
	return ok && f.kind == KindUnavailable
}

func (s *Store) spoolOnce(ctx context.Context, r Reference, p *plan, i int, path string) error {
	l, patience := p.layers[i], s.stall
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(patience, func() {
		cancel(&fault{kind: KindUnavailable, err: fmt.Errorf("the registry sent nothing for %s", patience)})
	})
	defer stalled.Stop()
	in, err := l.open(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	watched := &reporter{r: verify(in, l.size, l.digest), every: reportEvery, report: func(done int64) {
		s.progress(l.told(r, p, i, StageFetch, done))
	}, alive: func() { stalled.Reset(patience) }}
	_, err = io.Copy(out, struct{ io.Reader }{watched})
	return errors.Join(ended(ctx, err), out.Close())
}

// stallAfter is how long a registry may send nothing.
const stallAfter = time.Minute

// ended is why ctx ended, if it did, and err otherwise.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// reportEvery is how many bytes are between two reports.
const reportEvery = 256 << 10

// reporter tells how far a reader is.
type reporter struct {
	r          io.Reader
	every      int64
	done, last int64
	report     func(int64)
	alive      func() // something was read; may be nil
}

func (r *reporter) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.done += int64(n)
	if n > 0 && r.alive != nil {
		r.alive()
	}
	if r.done-r.last >= r.every || err == io.EOF && r.done > r.last {
		r.last = r.done
		r.report(r.done)
	}
	return n, err
}

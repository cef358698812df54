package image

import (
	"context"
	"errors"
	"io"
)

// Extracted is what an archive came to.
type Extracted struct {
	Entries int   // files, directories and links in the tree
	Size    int64 // bytes of its files
	Dropped Dropped
}

// Extract writes a tar archive of strangers into dir, an empty directory that nobody
// else writes to, as it would a layer of an image, whiteouts included: nothing
// outside dir is touched, and what has no place in a tree is left out and counted.
// Links may point anywhere. Of the limits those of Manifest, Compressed, Ratio and
// of indexes do not count; nor is r bounded by itself. Errors are *Error or those of
// ctx and of r.
func Extract(ctx context.Context, dir string, r io.Reader, l Limits) (Extracted, error) {
	u, err := newUnpacker(dir, l.withDefaults())
	if err != nil {
		return Extracted{}, failed("unpack", dir, KindHost, err)
	}
	var out Extracted
	if err = u.layer(ctx, r); err == nil {
		out.Entries, out.Size, err = u.finish()
	}
	out.Dropped = u.dropped
	if err = errors.Join(err, u.close()); err != nil && ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if err != nil {
		return out, failed("unpack", dir, KindHost, err)
	}
	return out, nil
}

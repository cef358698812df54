package image

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"
)

// verify returns a reader that ends in an error unless r has exactly size bytes
// with that digest. An empty digest checks the size alone. It never reads more
// than one byte beyond size.
func verify(r io.Reader, size int64, digest string) *verifier {
	return &verifier{r: r, left: size, size: size, want: digest, sum: sha256.New()}
}

type verifier struct {
	r          io.Reader
	size, left int64
	want       string
	sum        hash.Hash
	err        error // sticky
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.err != nil {
		return 0, v.err
	}
	if int64(len(p)) > v.left+1 {
		p = p[:v.left+1]
	}
	n, err := v.r.Read(p)
	if int64(n) > v.left {
		v.err = corrupt("it is larger than the %d bytes it should have", v.size)
		return 0, v.err
	}
	v.left -= int64(n)
	v.sum.Write(p[:n])
	if err == io.EOF {
		err = v.verdict()
	}
	v.err = err
	return n, err
}

func (v *verifier) verdict() error {
	if v.left > 0 {
		return &fault{kind: KindCorrupt, err: &cutError{v.size - v.left, v.size}}
	}
	if got := "sha256:" + hex.EncodeToString(v.sum.Sum(nil)); v.want != "" && got != v.want {
		return corrupt("its digest is %s, it should be %s", got, v.want)
	}
	return io.EOF
}

// done is how many bytes have been read.
func (v *verifier) done() int64 { return v.size - v.left }

// weight is what the layers of an image came to so far.
type weight struct {
	stored int64 // compressed bytes of the layers before this one
	read   int64 // bytes of archives
	files  int64 // bytes of files, which are more where files are sparse
}

// bounds keeps one layer's archive within what the image may unpack to.
type bounds struct {
	ctx    context.Context
	limits Limits
	total  *weight
	from   *verifier // the layer's compressed bytes
	sum    hash.Hash
	r      io.Reader
}

// ratioFrom is how many bytes an image may have whatever it was compressed
// from: files of zeros are no attack while they are small.
const ratioFrom = 256 << 20

func (b *bounds) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, context.Cause(b.ctx)
	}
	n, err := b.r.Read(p)
	b.total.read += int64(n)
	if b.total.read > b.limits.Unpacked {
		return 0, tooLarge("its layers unpack to more than %d bytes", b.limits.Unpacked)
	}
	if err := b.within(b.total.read); err != nil {
		return 0, err
	}
	b.sum.Write(p[:n])
	return n, err
}

// admit takes the bytes that are written to the layer's files.
func (b *bounds) admit(bytes int) error {
	b.total.files += int64(bytes)
	return b.within(b.total.files)
}

// within compares what the image unpacks to with what it was unpacked from. A
// free allowance for each layer would let many of them have many times as much.
func (b *bounds) within(unpacked int64) error {
	if unpacked > ratioFrom && unpacked/b.limits.Ratio > b.total.stored+b.from.done() {
		return tooLarge("its layers unpack to more than %d times their size", b.limits.Ratio)
	}
	return nil
}

// unpacked returns the archive in a layer, and what releases it.
func unpacked(r io.Reader, p packing) (io.Reader, func(), error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	if p == packingAny {
		p = sniff(buffered)
	}
	switch p {
	case packingGzip:
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, nil, noArchive("gzip", err)
		}
		return named{z, "gzip"}, func() {}, nil
	case packingZstd:
		// One goroutine, none besides; no more than 128 MiB for its window.
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, noArchive("zstd", err)
		}
		return named{z, "zstd"}, z.Close, nil
	}
	return buffered, func() {}, nil
}

func sniff(r *bufio.Reader) packing {
	magic, _ := r.Peek(4) // what is too short is no archive, which reading it says
	switch {
	case len(magic) >= 2 && magic[0] == 0x1f && magic[1] == 0x8b:
		return packingGzip
	case string(magic) == "\x28\xb5\x2f\xfd":
		return packingZstd
	}
	return packingNone
}

// named says which compression an error is of.
type named struct {
	io.Reader
	name string
}

func (n named) Read(p []byte) (int, error) {
	c, err := n.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = noArchive(n.name, err)
	}
	return c, err
}

// sums compares a digest.
func sums(h hash.Hash, want string) error {
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != want {
		return corrupt("the digest of what is in it is %s, it should be %s", got, want)
	}
	return nil
}

// cutError is a stream that ended early, which another attempt may not.
type cutError struct{ got, want int64 }

func (e *cutError) Error() string {
	return fmt.Sprintf("it ends after %d of %d bytes", e.got, e.want)
}

// noArchive is data that does not decompress, unless what it was read from
// failed first.
func noArchive(kind string, err error) error {
	if _, ok := errors.AsType[*fault](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return corrupt("it is no valid %s: %w", kind, err)
}

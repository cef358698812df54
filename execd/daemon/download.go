package daemon

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/execd"
)

// download answers GET /files/download.
func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p, err := onePath(q)
	if err != nil {
		fail(w, err)
		return
	}
	sc, err := s.scope(q.Get(execd.RootQuery))
	if err != nil {
		fail(w, err)
		return
	}
	defer sc.done()
	name, err := sc.name(p)
	if err != nil {
		fail(w, err)
		return
	}
	f, info, err := sc.openRegular(name)
	if err != nil {
		fail(w, at(p, err))
		return
	}
	defer f.Close()
	w.Header().Set("Last-Modified", info.ModTime().UTC().Format(http.TimeFormat))
	content, size, err := sized(f, info.Size())
	if err == nil {
		err = sendFile(w, r, q, content, size, path.Base(name))
	}
	if err != nil {
		w.Header().Del("Last-Modified")
		fail(w, at(p, err))
	}
}

// content is what of a file is sent.
type content interface {
	io.ReadSeeker
	io.ReaderAt
}

// maxUnsized bounds a file that does not tell its size, in bytes.
const maxUnsized = 4 << 20

// sized finds the size of a file that says it has none: those of /proc and /sys
// are made as they are read.
func sized(f *os.File, size int64) (content, int64, error) {
	if size > 0 {
		return f, size, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxUnsized+1))
	if err != nil {
		return nil, 0, err
	}
	if len(b) > maxUnsized {
		return nil, 0, refuse(http.StatusRequestEntityTooLarge, execd.CodeTooLarge, "it does not tell its size and is larger than %d bytes", maxUnsized)
	}
	return bytes.NewReader(b), int64(len(b)), nil
}

// sendFile sends what was asked for. An error comes before anything is sent;
// later, a file that turns out shorter cuts the connection.
func sendFile(w http.ResponseWriter, r *http.Request, q url.Values, f content, size int64, name string) error {
	h := w.Header()
	if q.Get("sha256") == "true" {
		sum := sha256.New()
		if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
			return err
		}
		h.Set(execd.HashHeader, hex.EncodeToString(sum.Sum(nil)))
	}
	lines := q.Has("offset") || q.Has("limit")
	byteRange := r.Header.Get("Range")
	if lines && byteRange != "" {
		return refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "offset and limit (lines) cannot be combined with Range (bytes)")
	}
	if lines {
		first, count, err := lineRange(q)
		if err != nil {
			return err
		}
		h.Set("Content-Type", "text/plain; charset=utf-8")
		lines := copyLines
		if q.Get(execd.RootQuery) != "" {
			lines = copyExactLines
		}
		if err := lines(w, f, first, count); err != nil {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	from, n, status := int64(0), size, http.StatusOK
	if byteRange != "" {
		var err error
		if from, n, err = parseRange(byteRange, size); err != nil {
			h.Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
			return err
		}
		status = http.StatusPartialContent
		h.Set("Content-Range", "bytes "+strconv.FormatInt(from, 10)+"-"+strconv.FormatInt(from+n-1, 10)+"/"+strconv.FormatInt(size, 10))
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	w.WriteHeader(status)
	if _, err := io.CopyN(w, f, n); err != nil {
		panic(http.ErrAbortHandler) // the client sees that it is not complete
	}
	return nil
}

// parseRange reads "bytes=a-b", "bytes=a-" or "bytes=-n"; of several ranges it
// takes the first.
func parseRange(header string, size int64) (from, n int64, err error) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	spec, _, _ = strings.Cut(spec, ",")
	a, b, dash := strings.Cut(strings.TrimSpace(spec), "-")
	bad := refuse(http.StatusBadRequest, execd.CodeRange, "range %q is none of bytes=a-b, bytes=a- and bytes=-n", header)
	if !ok || !dash || a == "" && b == "" {
		return 0, 0, bad
	}
	var first, last uint64
	if a != "" {
		if first, err = strconv.ParseUint(a, 10, 62); err != nil {
			return 0, 0, bad
		}
	}
	if b != "" {
		if last, err = strconv.ParseUint(b, 10, 62); err != nil {
			return 0, 0, bad
		}
	}
	outside := refuse(http.StatusRequestedRangeNotSatisfiable, execd.CodeRange, "range %q is outside the file of %d bytes", header, size)
	switch {
	case a == "": // the last so many bytes
		if last == 0 || size == 0 {
			return 0, 0, outside
		}
		n = min(int64(last), size)
		return size - n, n, nil
	case b != "" && last < first:
		return 0, 0, bad
	case int64(first) >= size:
		return 0, 0, outside
	case b == "":
		last = uint64(size - 1)
	}
	return int64(first), min(int64(last), size-1) - int64(first) + 1, nil
}

// lineRange reads offset (the first line, from 1) and limit (0: all).
func lineRange(q url.Values) (first, count int64, err error) {
	first = 1
	for _, v := range []struct {
		key   string
		value *int64
		least int64
	}{{"offset", &first, 1}, {"limit", &count, 1}} {
		if !q.Has(v.key) {
			continue
		}
		n, err := strconv.ParseInt(q.Get(v.key), 10, 64)
		if err != nil || n < v.least {
			return 0, 0, refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "%s must be a number of lines from %d", v.key, v.least)
		}
		*v.value = n
	}
	return first, count, nil
}

// copyLines writes lines joined by newlines, without a carriage return before
// them and without one at the end.
func copyLines(w io.Writer, r io.Reader, first, count int64) error {
	in := bufio.NewReaderSize(r, 64<<10)
	out := bufio.NewWriterSize(w, 64<<10)
	wrote := int64(0)
	for line := int64(1); count == 0 || wrote < count; line++ {
		any, err := copyLine(out, in, line >= first, wrote > 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if any && line >= first {
			wrote++
		}
		if err != nil {
			break
		}
	}
	return out.Flush()
}

// copyExactLines writes lines as they are, with their ends.
func copyExactLines(w io.Writer, r io.Reader, first, count int64) error {
	in := bufio.NewReaderSize(r, 64<<10)
	out := bufio.NewWriterSize(w, 64<<10)
	for line := int64(1); count == 0 || line < first+count; {
		piece, err := in.ReadSlice('\n')
		if line >= first {
			if _, err := out.Write(piece); err != nil {
				return err
			}
		}
		switch err {
		case nil:
			line++
		case bufio.ErrBufferFull: // the line goes on
		case io.EOF:
			return out.Flush()
		default:
			return err
		}
	}
	return out.Flush()
}

// copyLine copies or skips one line of any length, and reports whether there
// was one.
func copyLine(out *bufio.Writer, in *bufio.Reader, keep, separate bool) (any bool, err error) {
	var held bool // a carriage return that may be before the newline
	for {
		piece, err := in.ReadSlice('\n')
		if len(piece) > 0 && !any {
			any = true
			if keep && separate {
				out.WriteByte('\n')
			}
		}
		if keep && len(piece) > 0 {
			ended := piece[len(piece)-1] == '\n'
			piece = bytes.TrimSuffix(piece, newline)
			if held && !(ended && len(piece) == 0) {
				out.WriteByte('\r')
			}
			held = len(piece) > 0 && piece[len(piece)-1] == '\r'
			if held {
				piece = piece[:len(piece)-1]
			}
			if _, wErr := out.Write(piece); wErr != nil {
				return any, wErr
			}
		}
		if err != bufio.ErrBufferFull {
			return any, err
		}
	}
}

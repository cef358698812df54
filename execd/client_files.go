package execd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"strconv"
)

// rooted returns the query of a file operation; root may be empty.
func rooted(root string, more url.Values) url.Values {
	q := url.Values{}
	if root != "" {
		q.Set(RootQuery, root)
	}
	for k, v := range more {
		q[k] = v
	}
	return q
}

// Stat describes files (without following a final link), keyed by the path as
// given. One that is missing fails the whole with CodeFileNotFound.
func (c *Client) Stat(ctx context.Context, root string, paths ...string) (map[string]FileInfo, error) {
	var m map[string]FileInfo
	err := c.call(ctx, http.MethodGet, "/files/info", rooted(root, url.Values{"path": paths}), nil, &m)
	return m, err
}

// List describes what is in a directory, sorted by path, down to depth levels
// (1: the directory itself). Links are not followed.
func (c *Client) List(ctx context.Context, root, dir string, depth int) ([]FileInfo, error) {
	var l []FileInfo
	q := url.Values{"path": {dir}, "depth": {strconv.Itoa(depth)}}
	err := c.call(ctx, http.MethodGet, "/directories/list", rooted(root, q), nil, &l)
	return l, err
}

// Search describes the files beneath dir whose base name matches pattern.
func (c *Client) Search(ctx context.Context, root, dir, pattern string) ([]FileInfo, error) {
	var l []FileInfo
	q := url.Values{"path": {dir}, "pattern": {pattern}}
	err := c.call(ctx, http.MethodGet, "/files/search", rooted(root, q), nil, &l)
	return l, err
}

// Mkdir creates directories and their missing parents. One that exists is left
// as it is.
func (c *Client) Mkdir(ctx context.Context, root string, dirs map[string]Permission) error {
	return c.call(ctx, http.MethodPost, "/directories", rooted(root, nil), dirs, nil)
}

// Remove removes files. One that is missing is success, a directory is not.
func (c *Client) Remove(ctx context.Context, root string, paths ...string) error {
	return c.call(ctx, http.MethodDelete, "/files", rooted(root, url.Values{"path": paths}), nil, nil)
}

// RemoveAll removes directories with all that is in them. One that is missing
// is success.
func (c *Client) RemoveAll(ctx context.Context, root string, dirs ...string) error {
	return c.call(ctx, http.MethodDelete, "/directories", rooted(root, url.Values{"path": dirs}), nil, nil)
}

// Move renames files or directories.
func (c *Client) Move(ctx context.Context, root string, moves ...Move) error {
	return c.call(ctx, http.MethodPost, "/files/mv", rooted(root, nil), moves, nil)
}

// Permissions changes modes and owners.
func (c *Client) Permissions(ctx context.Context, root string, files map[string]Permission) error {
	return c.call(ctx, http.MethodPost, "/files/permissions", rooted(root, nil), files, nil)
}

// Replace replaces text in files and returns how often in each.
func (c *Client) Replace(ctx context.Context, root string, files map[string]Replace) (map[string]Replaced, error) {
	var m map[string]Replaced
	q := rooted(root, url.Values{"verbose": {"true"}})
	err := c.call(ctx, http.MethodPost, "/files/replace", q, files, &m)
	return m, err
}

// Upload writes one file from r, in bounded memory. size is the length of r,
// or -1 when it is not known. The answer is zero from a daemon that is not
// ours.
func (c *Client) Upload(ctx context.Context, meta UploadMetadata, r io.Reader, size int64) (Uploaded, error) {
	if meta.Rein == nil {
		meta.Rein = &UploadOptions{}
	}
	m, err := json.Marshal(meta)
	if err != nil {
		return Uploaded{}, fmt.Errorf("execd: %w", err)
	}
	// The parts before and after the content are built beforehand, so that no
	// goroutine has to copy it.
	var around bytes.Buffer
	mw := multipart.NewWriter(&around)
	if err := addPart(mw, "metadata", "metadata", "application/json", m); err != nil {
		return Uploaded{}, err
	}
	if err := addPart(mw, "file", path.Base(meta.Path), "application/octet-stream", nil); err != nil {
		return Uploaded{}, err
	}
	at := around.Len()
	if err := mw.Close(); err != nil {
		return Uploaded{}, fmt.Errorf("execd: %w", err)
	}
	head, tail := around.Bytes()[:at], around.Bytes()[at:]
	body := io.MultiReader(bytes.NewReader(head), r, bytes.NewReader(tail))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.opts.Load().BaseURL+"/files/upload", body)
	if err != nil {
		return Uploaded{}, fmt.Errorf("execd: %w", err)
	}
	req.ContentLength = -1
	if size >= 0 {
		req.ContentLength = int64(len(head)) + size + int64(len(tail))
	}
	resp, err := c.do(req, mw.FormDataContentType())
	if err != nil {
		return Uploaded{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return Uploaded{}, fmt.Errorf("execd: upload of %s: %w", meta.Path, err)
	}
	var list []Uploaded
	if json.Unmarshal(b, &list) != nil || len(list) != 1 {
		return Uploaded{}, nil
	}
	return list[0], nil
}

func addPart(mw *multipart.Writer, field, filename, contentType string, content []byte) error {
	w, err := newPart(mw, field, filename, contentType)
	if err == nil {
		_, err = w.Write(content)
	}
	if err != nil {
		return fmt.Errorf("execd: %w", err)
	}
	return nil
}

func newPart(mw *multipart.Writer, field, filename, contentType string) (io.Writer, error) {
	h := make(textproto.MIMEHeader)
	h.Set("Content-Disposition", multipart.FileContentDisposition(field, filename))
	h.Set("Content-Type", contentType)
	return mw.CreatePart(h)
}

// DownloadRequest says what to read of which file.
type DownloadRequest struct {
	Path string
	Root string // confines the read, see RootQuery
	// Offset and Length are in bytes; Length 0 means to the end. At most one of
	// bytes and lines can be asked for.
	Offset, Length int64
	// FirstLine (from 1) and Lines select whole lines; Lines 0 means all.
	FirstLine, Lines int
	// Hash asks for the SHA-256 of the whole file.
	Hash bool
}

// Download is an open file of the sandbox. Close it.
type Download struct {
	io.ReadCloser
	Size   int64  // of what will be read, -1 when not known
	Total  int64  // of the whole file, -1 when not known
	SHA256 string // of the whole file, when it was asked for and the daemon is ours
}

// Download opens a file for reading. An end that comes early is an error of
// Read, not io.EOF.
func (c *Client) Download(ctx context.Context, d DownloadRequest) (*Download, error) {
	q := rooted(d.Root, url.Values{"path": {d.Path}})
	if d.FirstLine > 0 {
		q.Set("offset", strconv.Itoa(d.FirstLine))
	}
	if d.Lines > 0 {
		q.Set("limit", strconv.Itoa(d.Lines))
	}
	if d.Hash {
		q.Set("sha256", "true")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.opts.Load().BaseURL+"/files/download?"+q.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("execd: %w", err)
	}
	if d.Offset > 0 || d.Length > 0 {
		r := fmt.Sprintf("bytes=%d-", d.Offset)
		if d.Length > 0 {
			r += strconv.FormatInt(d.Offset+d.Length-1, 10)
		}
		req.Header.Set("Range", r)
	}
	resp, err := c.do(req, "")
	if err != nil {
		return nil, err
	}
	f := &Download{ReadCloser: resp.Body, Size: resp.ContentLength, Total: -1, SHA256: resp.Header.Get(HashHeader)}
	switch {
	case resp.StatusCode == http.StatusPartialContent:
		var from, to int64
		fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &f.Total)
	case d.FirstLine == 0 && d.Lines == 0:
		f.Total = resp.ContentLength
	}
	return f, nil
}

package execd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path"
)

// Source is one file of an UploadAll.
type Source struct {
	Metadata UploadMetadata
	// Open returns the content; it is called when the file's turn comes, and
	// what it returns is closed.
	Open func() (io.ReadCloser, error)
}

// maxBatchAnswer bounds the answer to an UploadAll, in bytes.
const maxBatchAnswer = 16 << 20

// UploadAll writes files in their order with one request: between small files
// no answer is waited for. Files before a failing one stay. The answer is empty
// from a daemon that is not ours.
func (c *Client) UploadAll(ctx context.Context, files []Source) ([]Uploaded, error) {
	if len(files) == 0 {
		return nil, nil
	}
	pr, pw := io.Pipe()
	mw := multipart.NewWriter(pw)
	sent := make(chan error, 1)
	go func() {
		err := sendAll(mw, files)
		pw.CloseWithError(err)
		sent <- err
	}()
	list, err := c.receiveAll(ctx, pr, mw.FormDataContentType())
	pr.CloseWithError(io.ErrClosedPipe) // an answer that came early: the rest is not wanted
	if fault := <-sent; err != nil && fault != nil && fault != io.ErrClosedPipe {
		err = fault // reading a source failed, the request only in consequence
	}
	return list, err
}

func sendAll(mw *multipart.Writer, files []Source) error {
	for _, f := range files {
		if f.Metadata.Rein == nil {
			f.Metadata.Rein = &UploadOptions{}
		}
		m, err := json.Marshal(f.Metadata)
		if err != nil {
			return fmt.Errorf("execd: %w", err)
		}
		if err := addPart(mw, "metadata", "metadata", "application/json", m); err != nil {
			return err
		}
		if err := sendOne(mw, f); err != nil {
			return err
		}
	}
	return mw.Close()
}

func sendOne(mw *multipart.Writer, f Source) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := newPart(mw, "file", path.Base(f.Metadata.Path), "application/octet-stream")
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return err
}

func (c *Client) receiveAll(ctx context.Context, body io.Reader, contentType string) ([]Uploaded, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.opts.Load().BaseURL+"/files/upload", body)
	if err != nil {
		return nil, fmt.Errorf("execd: %w", err)
	}
	resp, err := c.do(req, contentType)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBatchAnswer))
	if err != nil {
		return nil, fmt.Errorf("execd: upload: %w", err)
	}
	var list []Uploaded
	if len(b) > 0 && json.Unmarshal(b, &list) != nil {
		return nil, nil
	}
	return list, nil
}

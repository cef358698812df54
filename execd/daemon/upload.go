package daemon

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/rein-sh/rein/execd"
)

// maxMetadata bounds the metadata part of one file.
const maxMetadata = 1 << 20

// upload answers POST /files/upload: a stream of pairs of parts, "metadata"
// before "file". Files are written as they come; those before a failing one
// stay.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	mr, err := r.MultipartReader()
	if err != nil {
		fail(w, refuse(http.StatusBadRequest, execd.CodeInvalidFile, "the body is not multipart/form-data: %s", err))
		return
	}
	written, ours, err := s.receive(mr)
	if err != nil {
		// The rest of the body is not read: the connection ends with the answer.
		w.Header().Set("Connection", "close")
		fail(w, err)
		return
	}
	if !ours {
		done(w)
		return
	}
	reply(w, written)
}

// receive writes the files of an upload; ours says that the client asked for
// rein's answer.
func (s *Server) receive(mr *multipart.Reader) (written []execd.Uploaded, ours bool, err error) {
	var pending []execd.UploadMetadata // metadata whose file has not come yet
	var files int
	for {
		part, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, refuse(http.StatusBadRequest, execd.CodeInvalidFile, "the upload was cut off: %s", err)
		}
		switch part.FormName() {
		case "metadata":
			meta, err := readMetadata(part)
			if err != nil {
				return nil, false, err
			}
			if pending = append(pending, meta); len(pending) > 1000 {
				return nil, false, refuse(http.StatusBadRequest, execd.CodeInvalidFile, "too much metadata without files")
			}
			ours = ours || meta.Rein != nil
		case "file":
			if len(pending) == 0 {
				return nil, false, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "file %d has no metadata before it", files+1)
			}
			u, err := s.write(pending[0], part)
			if err != nil {
				return nil, false, err
			}
			written, pending = append(written, u), pending[1:]
			files++
		}
	}
	switch {
	case len(pending) > 0 && files == 0:
		return nil, false, refuse(http.StatusBadRequest, execd.CodeInvalidContent, "there is metadata but no file")
	case len(pending) > 0:
		return nil, false, refuse(http.StatusBadRequest, execd.CodeInvalidFile, "there is more metadata than files")
	case files == 0:
		return nil, false, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "the upload has no file")
	}
	return written, ours, nil
}

func readMetadata(part io.Reader) (execd.UploadMetadata, error) {
	var meta execd.UploadMetadata
	b, err := io.ReadAll(io.LimitReader(part, maxMetadata+1))
	if err != nil {
		return meta, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "the metadata was cut off: %s", err)
	}
	if len(b) > maxMetadata {
		return meta, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "the metadata is larger than %d bytes", maxMetadata)
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return meta, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "the metadata is not the JSON it should be: %s", err)
	}
	if meta.Path == "" {
		return meta, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "the metadata has no path")
	}
	if meta.Mode != nil {
		if _, err := parseMode(*meta.Mode); err != nil {
			return meta, err
		}
	}
	if o := meta.Rein; o != nil {
		for _, h := range []string{o.ExpectedHash, o.SHA256} {
			if h == "" || h == execd.HashAbsent && h == o.ExpectedHash {
				continue
			}
			if err := validHash(h); err != nil {
				return meta, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "%s", err)
			}
		}
	}
	return meta, nil
}

// write writes one uploaded file.
func (s *Server) write(meta execd.UploadMetadata, content io.Reader) (execd.Uploaded, error) {
	opts := execd.UploadOptions{}
	if meta.Rein != nil {
		opts = *meta.Rein
	}
	var u execd.Uploaded
	owner, err := s.owner(meta.Owner, meta.Group)
	if err != nil {
		return u, err
	}
	sc, err := s.scope(opts.Root)
	if err != nil {
		return u, err
	}
	defer sc.done()
	name, err := sc.name(meta.Path)
	if err != nil {
		return u, err
	}
	if strings.HasSuffix(meta.Path, "/") {
		return u, refuse(http.StatusBadRequest, execd.CodeInvalidFile, "%s: it is a directory, not a regular file", meta.Path)
	}
	wr, err := sc.create(name)
	if err != nil {
		return u, at(meta.Path, err)
	}
	defer wr.abandon()
	// Owners of a replaced file stay, unless others are asked for.
	if wr.old != nil && meta.Owner == "" && meta.Group == "" {
		owner = nil
	}
	if err := wr.check(opts.ExpectedHash); err != nil {
		return u, at(meta.Path, err)
	}
	if err := wr.fill(content); err != nil {
		return u, at(meta.Path, uploadError(err))
	}
	u = execd.Uploaded{Path: sc.shown(name), Size: wr.size, SHA256: hex.EncodeToString(wr.sum)}
	if opts.SHA256 != "" && !strings.EqualFold(opts.SHA256, u.SHA256) {
		return u, at(meta.Path, mismatch("the uploaded bytes have the SHA-256 %s, not %s", u.SHA256, strings.ToLower(opts.SHA256)))
	}
	perm, err := wr.mode(meta.Mode)
	if err != nil {
		return u, err
	}
	u.Mode = octal(perm)
	if err := wr.commit(meta.Mode, owner, opts.ExpectedHash); err != nil {
		return u, at(meta.Path, err)
	}
	return u, nil
}

// uploadError tells a body that ended early from a disk that is full.
func uploadError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return refuse(http.StatusBadRequest, execd.CodeInvalidContent, "the upload was cut off")
	}
	return err
}

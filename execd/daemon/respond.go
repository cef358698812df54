package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/rein-sh/rein/execd"
)

// refuse makes an error answer.
func refuse(status int, code, format string, args ...any) *execd.Error {
	return &execd.Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// fail writes err as {code, message}; errors of the system get the status that
// fits.
func fail(w http.ResponseWriter, err error) {
	e := asError(err)
	b, mErr := json.Marshal(e)
	if mErr != nil {
		panic(mErr) // two strings
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Del("Content-Length")
	w.WriteHeader(e.Status)
	w.Write(append(b, '\n'))
}

func asError(err error) *execd.Error {
	if e, ok := errors.AsType[*execd.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*StartError](err); ok {
		return refuse(http.StatusBadRequest, execd.CodeInvalidBody, "%s", e)
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refuse(http.StatusRequestEntityTooLarge, execd.CodeTooLarge, "the request is larger than %d bytes", e.Limit)
	}
	for _, m := range systemErrors {
		if errors.Is(err, m.err) {
			return refuse(m.status, m.code, "%s", err)
		}
	}
	return refuse(http.StatusInternalServerError, execd.CodeRuntime, "%s", err)
}

var systemErrors = []struct {
	err    error
	status int
	code   string
}{
	{fs.ErrNotExist, http.StatusNotFound, execd.CodeFileNotFound},
	{fs.ErrExist, http.StatusConflict, execd.CodeConflict},
	{fs.ErrPermission, http.StatusForbidden, execd.CodeDenied},
	{syscall.ENOSPC, http.StatusInsufficientStorage, execd.CodeNoSpace},
	{syscall.EDQUOT, http.StatusInsufficientStorage, execd.CodeNoSpace},
	{syscall.EROFS, http.StatusForbidden, execd.CodeDenied},
	{syscall.ENOTDIR, http.StatusConflict, execd.CodeConflict},
	{syscall.EISDIR, http.StatusConflict, execd.CodeConflict},
	{syscall.ENOTEMPTY, http.StatusConflict, execd.CodeConflict},
	{syscall.EXDEV, http.StatusConflict, execd.CodeConflict},
	{syscall.ELOOP, http.StatusBadRequest, execd.CodeInvalidQuery},
	{syscall.ENAMETOOLONG, http.StatusBadRequest, execd.CodeInvalidQuery},
	{syscall.EINVAL, http.StatusBadRequest, execd.CodeInvalidQuery},
	{errClosed, http.StatusServiceUnavailable, execd.CodeUnavailable},
}

// reply writes v as JSON.
func reply(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n'))
}

// done answers success without a body.
func done(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

// maxJSONBody bounds the JSON bodies of requests.
const maxJSONBody = 32 << 20

// decode reads the one JSON value of a request's body. Unknown members are
// ignored, as clients are newer and older than we are.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJSONBody))
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return nil
		} else if err == nil {
			err = errors.New("more than one JSON value")
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	if err == io.EOF {
		err = errors.New("it is empty")
	}
	return refuse(http.StatusBadRequest, execd.CodeInvalidBody, "the body is not the JSON it should be: %s", err)
}

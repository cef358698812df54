package execd

import (
	"errors"
	"fmt"
)

// Codes of errors. Those of OpenSandbox's execd are used where they fit; the
// HTTP status says what kind of failure it is.
const (
	CodeInvalidBody     = "INVALID_REQUEST_BODY"  // 400
	CodeMissingQuery    = "MISSING_QUERY"         // 400
	CodeInvalidQuery    = "INVALID_QUERY"         // 400
	CodeInvalidFile     = "INVALID_FILE"          // 400: not a regular file, or a bad upload
	CodeInvalidMetadata = "INVALID_FILE_METADATA" // 400
	CodeInvalidContent  = "INVALID_FILE_CONTENT"  // 400
	CodeUnauthorized    = "UNAUTHORIZED"          // 401
	CodeDenied          = "PERMISSION_DENIED"     // 403: also a path that leads outside its root
	CodeFileNotFound    = "FILE_NOT_FOUND"        // 404
	CodeCommandNotFound = "COMMAND_NOT_FOUND"     // 404
	CodeSessionNotFound = "CONTEXT_NOT_FOUND"     // 404: no such session or terminal, or it has ended
	CodeNotFound        = "NOT_FOUND"             // 404: no such route
	CodeNotAllowed      = "METHOD_NOT_ALLOWED"    // 405
	CodeConflict        = "CONFLICT"              // 409: exists, finished, not empty
	CodeHashMismatch    = "HASH_MISMATCH"         // 412: the file or the upload is not what was expected
	CodeTooLarge        = "TOO_LARGE"             // 413
	CodeRange           = "INVALID_RANGE"         // 416
	CodeTooMany         = "TOO_MANY"              // 429: close one first
	CodeRuntime         = "RUNTIME_ERROR"         // 500
	CodeNoSpace         = "NO_SPACE"              // 507
	CodeUnavailable     = "UNAVAILABLE"           // 503: shutting down
)

// Error is an answer of execd that is not a success.
type Error struct {
	Status  int    `json:"-"` // HTTP status; 0 for an error inside a stream
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return "execd: " + e.Message
	case e.Code != "":
		return "execd: " + e.Code
	}
	return fmt.Sprintf("execd: HTTP status %d", e.Status)
}

// ErrCut is a command stream that ended without its terminal event: what
// became of the command is not known. Ask with Status.
var ErrCut = errors.New("execd: the stream ended before the command did")

package sandbox

import (
	"context"
	"io"
	"io/fs"

	"github.com/rein-sh/rein/execd"
)

// Access says who asks for a file operation, for the record, and where it must
// stay. Paths are absolute, or relative to the sandbox's working directory.
// File contents are exact and never masked: who shows them masks them.
type Access struct {
	// CallID and Tool are recorded; an empty Tool is recorded as "host".
	CallID, Tool string
	// Root, when set, is an absolute directory inside the sandbox that the
	// operation cannot leave, by "..", by symbolic links, or by links swapped
	// while it runs; leaving it is KindDenied. execd enforces it.
	Root string
}

// MaxRead is the default bound of ReadFile.
const MaxRead = 1 << 20

// ReadOptions select a part of a file: by lines, or by bytes, not both.
type ReadOptions struct {
	Access
	// Line is the first line, from 1; Lines how many, 0 for all that follow.
	// Both zero reads by bytes.
	Line, Lines int64
	// Offset is the first byte, from 0.
	Offset int64
	// Max bounds the bytes returned; 0 is MaxRead.
	Max int64
}

// Content is what ReadFile returns.
type Content struct {
	Data []byte
	// Size is the size of the whole file in bytes.
	Size int64
	// Truncated is true when Max ended Data before the part asked for did.
	Truncated bool
}

// ReadFile returns a regular file, or the part of it that o selects. FIFOs,
// devices, sockets and directories are KindInvalid.
func (s *Sandbox) ReadFile(ctx context.Context, path string, o ReadOptions) (Content, error) {
	panic("sandbox: not written")
}

// WriteOptions say how a file is written.
type WriteOptions struct {
	Access
	// Mode is the file's permissions; 0 keeps those of the file that is
	// replaced, or 0644 for a new one.
	Mode fs.FileMode
	// ExpectedHash, when set, is the hex SHA-256 the file must have now, or
	// ExpectAbsent; otherwise the write is KindConflict and changes nothing.
	ExpectedHash string
}

// ExpectAbsent as ExpectedHash says that there must be no file yet.
const ExpectAbsent = "absent"

// Transfer describes the file that was moved.
type Transfer struct {
	Bytes  int64
	SHA256 string // hex, of the bytes moved
}

// WriteFile replaces a file, or makes it and its directories: afterwards there
// is all of the old or all of the new content, never a part.
func (s *Sandbox) WriteFile(ctx context.Context, path string, data []byte, o WriteOptions) (Transfer, error) {
	panic("sandbox: not written")
}

// Upload is WriteFile from a reader of any length. Size is checked against what
// arrived.
func (s *Sandbox) Upload(ctx context.Context, path string, r io.Reader, o WriteOptions) (Transfer, error) {
	panic("sandbox: not written")
}

// Download copies a regular file to w. An error may come after part of it was
// written; a file that changes its length meanwhile is KindConflict.
func (s *Sandbox) Download(ctx context.Context, path string, w io.Writer, a Access) (Transfer, error) {
	panic("sandbox: not written")
}

// Stat describes a file without following a symbolic link at its end.
func (s *Sandbox) Stat(ctx context.Context, path string, a Access) (execd.FileInfo, error) {
	panic("sandbox: not written")
}

// List describes what is beneath a directory, sorted by path, down to depth
// levels (1: its entries only). Symbolic links are listed, never followed.
func (s *Sandbox) List(ctx context.Context, path string, depth int, a Access) ([]execd.FileInfo, error) {
	panic("sandbox: not written")
}

// Search lists the files beneath path whose name matches a glob pattern.
func (s *Sandbox) Search(ctx context.Context, path, pattern string, a Access) ([]execd.FileInfo, error) {
	panic("sandbox: not written")
}

// Mkdir makes a directory and its parents; one that exists is success.
func (s *Sandbox) Mkdir(ctx context.Context, path string, mode fs.FileMode, a Access) error {
	panic("sandbox: not written")
}

// Remove deletes a file, or a directory and what is in it. What is not there
// is success.
func (s *Sandbox) Remove(ctx context.Context, path string, a Access) error {
	panic("sandbox: not written")
}

// Move renames a file or directory; KindConflict when to exists.
func (s *Sandbox) Move(ctx context.Context, from, to string, a Access) error {
	panic("sandbox: not written")
}

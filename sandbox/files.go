package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/rein-sh/rein/audit"
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

func (a Access) tool() string { return cmp.Or(a.Tool, "host") }

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
	var c Content
	if o.Max == 0 {
		o.Max = MaxRead
	}
	byLines := o.Line != 0 || o.Lines != 0
	if o.Line < 0 || o.Lines < 0 || o.Offset < 0 || o.Max < 0 || byLines && o.Offset != 0 {
		return c, &Error{Kind: KindInvalid, Op: "read", Subject: path,
			Err: errors.New("a part is lines or bytes, from a number that is not negative")}
	}
	part := fmt.Sprintf("bytes %d+%d", o.Offset, o.Max)
	if byLines {
		part = fmt.Sprintf("lines %d+%d", max(o.Line, 1), o.Lines)
	}
	err := s.file(ctx, o.Access, FileIntent{Op: "read", Path: path, Range: part}, func(ctx context.Context, out *FileOutcome) (err error) {
		p := s.abs(path)
		if byLines {
			c, err = s.readLines(ctx, p, o)
		} else {
			c, err = s.readBytes(ctx, p, o)
		}
		out.Bytes, out.Truncated = int64(len(c.Data)), c.Truncated
		return err
	})
	return c, err
}

// maxUnread is how much is read of lines that nobody wants any more, from
// OpenSandbox's execd: it passes on every signal that it gets to every command
// it runs (Notify in components/execd/pkg/runtime/command.go), and the one of a
// connection that was closed while it wrote ends them.
const maxUnread = 64 << 20

func (s *Sandbox) readLines(ctx context.Context, p string, o ReadOptions) (Content, error) {
	info, err := s.stat(ctx, o.Access, p) // lines are sent without a length
	if err != nil {
		return Content{}, err
	}
	d, err := s.client.Download(ctx, execd.DownloadRequest{Path: p, Root: s.root(o.Access),
		FirstLine: int(max(o.Line, 1)), Lines: int(o.Lines)})
	if err != nil {
		return Content{}, err
	}
	defer d.Close()
	data, err := io.ReadAll(io.LimitReader(d, o.Max+1))
	if err == nil && !s.ours() {
		_, err = io.CopyN(io.Discard, d, maxUnread)
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	c := Content{Data: data, Size: max(info.Size, int64(len(data)))}
	if int64(len(data)) > o.Max {
		c.Data, c.Truncated = data[:o.Max], true
	}
	return c, err
}

func (s *Sandbox) readBytes(ctx context.Context, p string, o ReadOptions) (Content, error) {
	d, err := s.client.Download(ctx, execd.DownloadRequest{Path: p, Root: s.root(o.Access), Offset: o.Offset, Length: o.Max})
	if e, ok := errors.AsType[*execd.Error](err); ok && e.Status == http.StatusRequestedRangeNotSatisfiable { // nothing there
		info, err := s.stat(ctx, o.Access, p)
		return Content{Size: info.Size}, err
	}
	if err != nil {
		return Content{}, err
	}
	defer d.Close()
	data, err := io.ReadAll(io.LimitReader(d, o.Max))
	return Content{Data: data, Size: d.Total, Truncated: o.Offset+int64(len(data)) < d.Total}, err
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
const ExpectAbsent = execd.HashAbsent

// Transfer describes the file that was moved.
type Transfer struct {
	Bytes  int64
	SHA256 string // hex, of the bytes moved
}

// WriteFile replaces a file, or makes it and its directories: afterwards there
// is all of the old or all of the new content, never a part. KindTooLarge when
// the sandbox's disk is full.
func (s *Sandbox) WriteFile(ctx context.Context, path string, data []byte, o WriteOptions) (Transfer, error) {
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	return s.upload(ctx, "write", path, bytes.NewReader(data), int64(len(data)), o)
}

// Upload is WriteFile from a reader of any length. An error of r is in the
// chain of the error. It returns only when no Read of r is under way.
func (s *Sandbox) Upload(ctx context.Context, path string, r io.Reader, o WriteOptions) (Transfer, error) {
	return s.upload(ctx, "upload", path, r, -1, o)
}

func (s *Sandbox) upload(ctx context.Context, op, path string, r io.Reader, size int64, o WriteOptions) (Transfer, error) {
	var t Transfer
	in := FileIntent{Op: op, Path: path}
	if o.Mode != 0 {
		in.Mode = fmt.Sprintf("%04o", o.Mode.Perm())
	}
	err := s.file(ctx, o.Access, in, func(ctx context.Context, out *FileOutcome) error {
		if o.ExpectedHash != "" && !s.ours() {
			return unsupported(op, path, "compares no hashes")
		}
		mode, err := s.uploadMode(ctx, o, path)
		if err != nil {
			return err
		}
		src := &source{}
		src.start(r, nil)
		up, err := s.client.Upload(ctx, execd.UploadMetadata{Path: s.abs(path), Mode: &mode,
			Rein: &execd.UploadOptions{Root: s.root(o.Access), ExpectedHash: o.ExpectedHash}}, src, size)
		var readErr error
		t, readErr = src.finish()
		out.Bytes, out.SHA256 = t.Bytes, t.SHA256
		switch {
		case readErr != nil:
			return &Error{Kind: KindHost, Op: op, Subject: path, Err: readErr}
		case err == nil && up.SHA256 != "" && up.SHA256 != t.SHA256:
			return &Error{Kind: KindInternal, Op: op, Subject: path, Err: fmt.Errorf("the file was written with the hash %s, not %s", up.SHA256, t.SHA256)}
		}
		return err
	})
	return t, err
}

// Download copies a regular file to w. An error may come after part of it was
// written.
func (s *Sandbox) Download(ctx context.Context, path string, w io.Writer, a Access) (Transfer, error) {
	var t Transfer
	err := s.file(ctx, a, FileIntent{Op: "download", Path: path}, func(ctx context.Context, out *FileOutcome) error {
		d, err := s.client.Download(ctx, execd.DownloadRequest{Path: s.abs(path), Root: s.root(a)})
		if err != nil {
			return err
		}
		defer d.Close()
		sum := sha256.New()
		dst := &sink{Writer: w}
		t.Bytes, err = io.Copy(io.MultiWriter(dst, sum), d)
		t.SHA256 = hex.EncodeToString(sum.Sum(nil))
		out.Bytes, out.SHA256 = t.Bytes, t.SHA256
		if dst.err != nil {
			return &Error{Kind: KindHost, Op: "download", Subject: path, Err: dst.err}
		}
		return err
	})
	return t, err
}

// sink keeps its writer's error.
type sink struct {
	io.Writer
	err error
}

func (w *sink) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

// Stat describes a file without following a symbolic link at its end.
func (s *Sandbox) Stat(ctx context.Context, path string, a Access) (execd.FileInfo, error) {
	var info execd.FileInfo
	err := s.file(ctx, a, FileIntent{Op: "stat", Path: path}, func(ctx context.Context, _ *FileOutcome) (err error) {
		info, err = s.stat(ctx, a, s.abs(path))
		return err
	})
	return info, err
}

// stat describes the file at an absolute path. Its answer is JSON: a name that
// is not UTF-8 is in it with U+FFFD for each byte that is not, and is put right.
func (s *Sandbox) stat(ctx context.Context, a Access, p string) (execd.FileInfo, error) {
	infos, err := s.client.Stat(ctx, s.root(a), p)
	if err != nil {
		return execd.FileInfo{}, err
	}
	info := infos[string([]rune(p))]
	if !utf8.ValidString(p) {
		info.Path = path.Clean(p)
	}
	return info, nil
}

// List describes what is beneath a directory, sorted by path, down to depth
// levels (1: its entries only). Symbolic links are listed, never followed.
func (s *Sandbox) List(ctx context.Context, path string, depth int, a Access) ([]execd.FileInfo, error) {
	var infos []execd.FileInfo
	err := s.file(ctx, a, FileIntent{Op: "list", Path: path, Range: fmt.Sprintf("depth %d", depth)}, func(ctx context.Context, out *FileOutcome) (err error) {
		infos, err = s.client.List(ctx, s.root(a), s.abs(path), depth)
		out.Entries = len(infos)
		return err
	})
	return infos, err
}

// Search lists the files beneath path whose name matches a glob pattern.
func (s *Sandbox) Search(ctx context.Context, path, pattern string, a Access) ([]execd.FileInfo, error) {
	var infos []execd.FileInfo
	err := s.file(ctx, a, FileIntent{Op: "search", Path: path, Range: pattern}, func(ctx context.Context, out *FileOutcome) (err error) {
		infos, err = s.client.Search(ctx, s.root(a), s.abs(path), pattern)
		out.Entries = len(infos)
		return err
	})
	return infos, err
}

// Mkdir makes a directory and its parents; one that exists is success. Mode 0
// is 0755, and applies to what is made.
func (s *Sandbox) Mkdir(ctx context.Context, path string, mode fs.FileMode, a Access) error {
	return s.file(ctx, a, FileIntent{Op: "mkdir", Path: path, Mode: fmt.Sprintf("%04o", mode.Perm())}, func(ctx context.Context, _ *FileOutcome) error {
		return s.client.Mkdir(ctx, s.root(a), map[string]execd.Permission{s.abs(path): {Mode: octal(mode)}})
	})
}

// Remove deletes a file, or a directory and what is in it. What is not there
// is success. Symbolic links are deleted, never followed.
func (s *Sandbox) Remove(ctx context.Context, path string, a Access) error {
	return s.file(ctx, a, FileIntent{Op: "remove", Path: path}, func(ctx context.Context, _ *FileOutcome) error {
		p := s.abs(path)
		info, err := s.stat(ctx, a, p)
		switch {
		case isAbsent(err):
			return nil
		case err != nil:
			return err
		case info.Type == "directory":
			return s.client.RemoveAll(ctx, s.root(a), p)
		}
		return s.client.Remove(ctx, s.root(a), p)
	})
}

// Move renames a file or directory; KindConflict when to exists.
func (s *Sandbox) Move(ctx context.Context, from, to string, a Access) error {
	return s.file(ctx, a, FileIntent{Op: "move", Path: from, To: to}, func(ctx context.Context, _ *FileOutcome) error {
		return s.client.Move(ctx, s.root(a), execd.Move{Src: s.abs(from), Dest: s.abs(to)})
	})
}

// file does one recorded file operation.
func (s *Sandbox) file(ctx context.Context, a Access, in FileIntent, act func(context.Context, *FileOutcome) error) error {
	if err := s.reachable(ctx, in.Op); err != nil {
		return err
	}
	in.Tool, in.Root = a.tool(), a.Root
	if err := s.checkPaths(in); err != nil {
		return err
	}
	if in.Op != "upload" && in.Op != "download" {
		var cancel context.CancelFunc
		ctx, cancel = bounded(ctx, DefaultOpTimeout)
		defer cancel()
	}
	if err := s.append(audit.KindFileIntent, a.CallID, in); err != nil {
		return err
	}
	start := s.opt.Now()
	out := FileOutcome{Tool: in.Tool, Op: in.Op, Path: in.Path}
	err := s.fault(ctx, in.Op, in.Path, act(ctx, &out))
	out.OK, out.DurationMS, out.Failure = err == nil, s.since(start), failure(err)
	if err != nil {
		out.Why = string(KindOf(err)) + ": " + err.Error()
	}
	return also(err, s.append(audit.KindFileOutcome, a.CallID, out))
}

// checkPaths refuses paths that would not arrive as they are, and what a daemon
// that is not ours would not honour.
func (s *Sandbox) checkPaths(in FileIntent) error {
	switch in.Op {
	case "write", "upload", "mkdir", "move": // the others send paths in a query
		for _, p := range []string{in.Path, in.To} {
			if err := checkName(in.Op, p); err != nil {
				return err
			}
		}
	}
	if in.Root != "" && (!path.IsAbs(in.Root) || path.Clean(in.Root) != in.Root) {
		return &Error{Kind: KindInvalid, Op: in.Op, Subject: in.Root, Err: errors.New("a root is a clean absolute path")}
	}
	if s.ours() {
		return nil
	}
	if in.Root != "" {
		return unsupported(in.Op, in.Path, "confines no file operation")
	}
	for _, p := range []string{in.Path, in.To} {
		if strings.ContainsAny(p, "$~") {
			return unsupported(in.Op, p, "expands ~ and $ in paths")
		}
	}
	return nil
}

// checkName refuses a path that JSON would change into another.
func checkName(op, p string) error {
	if utf8.ValidString(p) {
		return nil
	}
	return &Error{Kind: KindInvalid, Op: op, Subject: p, Err: errors.New("its name is not UTF-8, and would be another in the sandbox")}
}

func unsupported(op, subject, why string) error {
	return &Error{Kind: KindUnsupported, Op: op, Subject: subject, Err: errors.New("this sandbox's execd " + why),
		Hint: "rein's own execd can; see rein probe for why it is not in the sandbox"}
}

// ours reports whether execd honours rein's additions to file operations.
func (s *Sandbox) ours() bool { return s.features.CallIDs }

// root is what execd is given: any root makes it take paths as they are.
func (s *Sandbox) root(a Access) string {
	if a.Root == "" && s.ours() {
		return "/"
	}
	return a.Root
}

func (s *Sandbox) abs(p string) string {
	if !path.IsAbs(p) {
		return path.Join(s.Info().Cwd, p)
	}
	return p
}

// octal is a mode in execd's notation: octal digits read as decimal.
func octal(m fs.FileMode) int {
	n := 0
	for shift, unit := 0, 1; shift < 9; shift, unit = shift+3, unit*10 {
		n += int(m.Perm()>>shift&7) * unit
	}
	return n
}

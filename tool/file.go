package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

func (b *builtin) readTool() Tool {
	return Tool{Definition: Definition{
		Name: ReadFile,
		Description: fmt.Sprintf("Read a file: its content is in stdout. At most %s and %d lines a call; for files over 1 MB, and for long output that was spilled, read the part you need with offset and limit. "+
			"offset is the first line, from 1, and limit the number of lines; with unit \"bytes\" they are the first byte, from 0, and the number of bytes. "+
			"When there is more, truncated is true and file.next_offset is the offset to read on from. "+
			"Only regular files beneath %s; files where credentials are kept (.env, .ssh, .aws, .netrc, .npmrc and the like) stay closed. "+
			"file.sha256, given when the whole file was read, is what write_file takes as expected_hash.",
			kib(b.began.OutputBytes), b.began.OutputLines, strings.Join(b.roots, ", ")),
		Schema: objectSchema([]string{"path"},
			property{"path", `{"type":"string","minLength":1,"description":"absolute, or relative to the workspace"}`},
			property{"offset", `{"type":"integer","minimum":0,"maximum":9007199254740991,"description":"where to begin"}`},
			property{"limit", `{"type":"integer","minimum":1,"maximum":9007199254740991,"description":"how much to read"}`},
			property{"unit", `{"type":"string","enum":["lines","bytes"],"description":"what offset and limit count; default lines"}`}),
	}, Run: b.read}
}

// maxLinks is how many rounds of symbolic links a path may have.
const maxLinks = 8

// place checks a path of a model, and where it leads over symbolic links: a
// closed file does not open under another name. The path that is then used has
// no links; one that is swapped in meanwhile still cannot leave the root.
func (b *builtin) place(ctx context.Context, c Call, name string, roots []string) (place, *Error) {
	at, fault := locate(name, roots)
	for range maxLinks {
		if fault != nil {
			return at, fault
		}
		links, err := b.Sandbox.Links(ctx, at.path, sandbox.Access{CallID: c.ID, Tool: c.Name, Root: at.root})
		if err != nil {
			return at, Explain(OpRead, b.Sandbox.ID(), err)
		}
		if len(links) == 0 {
			return at, nil
		}
		// The outermost first: what is beneath it changes with it.
		to := links[0].Target
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(links[0].Path), to)
		}
		at, fault = locate(path.Join(to, strings.TrimPrefix(at.path, links[0].Path)), roots)
	}
	return at, &Error{Class: Classify(OpRead, CodePathDenied), Code: CodePathDenied, Message: "too many symbolic links", Hint: "use the path of the file itself"}
}

type readArgs struct {
	Path   string  `json:"path"`
	Offset float64 `json:"offset"`
	Limit  float64 `json:"limit"`
	Unit   string  `json:"unit"`
}

func (b *builtin) read(ctx context.Context, c Call) Result {
	args, err := decode[readArgs](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	at, fault := b.place(ctx, c, args.Path, b.roots)
	if fault != nil {
		return Result{Err: fault}
	}
	o := sandbox.ReadOptions{Access: sandbox.Access{CallID: c.ID, Tool: ReadFile, Root: at.root}, Max: int64(c.limits.OutputBytes)}
	limit := int64(args.Limit)
	if args.Unit == "bytes" {
		o.Offset = int64(args.Offset)
		if limit > 0 {
			o.Max = min(o.Max, limit)
		}
	} else {
		o.Line = max(1, int64(args.Offset))
		o.Lines = int64(c.limits.OutputLines)
		if limit > 0 {
			o.Lines = min(o.Lines, limit)
		}
	}
	content, err := b.Sandbox.ReadFile(ctx, at.path, o)
	if unsettled(err) && ctx.Err() == nil {
		content, err = b.Sandbox.ReadFile(ctx, at.path, o) // it changes nothing
	}
	if err != nil {
		r := b.explain(OpRead, err)
		if r.Err.Code == CodeFileNotFound {
			r.Err.Hint = missingFile(ctx, &doctor{b: b, cwd: b.cwd}, args.Path)
		}
		return r
	}
	return b.show(at.path, args, o, content)
}

// show turns what was read into a result and says where to read on.
func (b *builtin) show(name string, args readArgs, o sandbox.ReadOptions, content sandbox.Content) Result {
	data := content.Data
	if bytes.IndexByte(data, 0) >= 0 {
		return Fail(OpRead, CodeBinaryFile, fmt.Sprintf("%s is binary, %d bytes", name, content.Size),
			"inspect it with run_command, for example with file, od or strings")
	}
	file := &File{Path: name, Bytes: content.Size}
	res := Result{OK: true, File: file, OutputBytes: int64(len(data))}
	whole := int64(len(data)) == content.Size
	if args.Unit == "bytes" {
		if end := o.Offset + int64(len(data)); end < content.Size && len(data) > 0 {
			file.NextOffset = end
		}
	} else {
		if content.Truncated { // end with a whole line, unless there is none
			if i := bytes.LastIndexByte(data, '\n'); i >= 0 {
				data = data[:i+1]
			} else {
				return Fail(OpRead, CodeTooLarge, fmt.Sprintf("line %d of %s is longer than %s", o.Line, name, kib(int(o.Max))),
					`read it with unit "bytes"`)
			}
		}
		lines := int64(bytes.Count(data, []byte("\n")))
		// Whether lines follow is known only from what came: all that was asked
		// for and not all of the file.
		if content.Truncated || lines == o.Lines && !whole {
			file.NextOffset = o.Line + lines
		}
	}
	if whole {
		sum := sha256.Sum256(content.Data)
		file.SHA256 = hex.EncodeToString(sum[:])
	}
	res.Truncated = file.NextOffset != 0
	if !whole { // a piece of a value at an edge is not shown
		masked := b.Masker.Bytes(data)
		start, end := b.Masker.Partial(masked)
		data = masked[start:max(start, len(masked)-end)] // one piece may be both
	}
	res.Stdout = evidence.Show(evidence.Text(data), evidence.Stream{},
		evidence.Options{Bytes: 1 << 20, Lines: 1 << 20, Masker: b.Masker, AsIs: true}).Stdout.Text
	// Not where masking has changed which line is which.
	if args.Unit != "bytes" && strings.Count(res.Stdout, "\n") == bytes.Count(data, []byte("\n")) {
		res.shorten = shortenContent(o.Line)
	}
	return res
}

func (b *builtin) writeTool() Tool {
	return Tool{Definition: Definition{
		Name: WriteFile,
		Description: fmt.Sprintf("Replace a file, or make it and its directories. Afterwards there is all of the new content or all of the old, never a part. At most %s; only beneath %s. "+
			"expected_hash, the SHA-256 of the content you expect to replace (file.sha256 of read_file), or \"absent\", guards against overwriting what you have not read. "+
			"mode is octal, such as \"755\"; without it the permissions stay.", kib(b.MaxWrite), b.cwd),
		Schema: objectSchema([]string{"path", "content"},
			property{"path", `{"type":"string","minLength":1,"description":"absolute, or relative to the workspace"}`},
			property{"content", `{"type":"string","description":"the whole new content"}`},
			property{"mode", `{"type":"string","pattern":"^0?[0-7]{3}$","description":"permissions, octal"}`},
			property{"expected_hash", `{"type":"string","pattern":"^([0-9a-fA-F]{64}|absent)$","description":"SHA-256 of the content to be replaced, or absent"}`}),
	}, Run: b.write}
}

func (b *builtin) write(ctx context.Context, c Call) Result {
	args, err := decode[struct {
		Path    string `json:"path"`
		Content string `json:"content"`
		Mode    string `json:"mode"`
		Hash    string `json:"expected_hash"`
	}](c)
	if err != nil {
		return Fail(OpArguments, CodeInvalidArguments, err.Error(), "")
	}
	if len(args.Content) > b.MaxWrite {
		return Fail(OpWrite, CodeTooLarge, fmt.Sprintf("the content has %d bytes, more than %d", len(args.Content), b.MaxWrite),
			"write it in parts with run_command, or generate it in the sandbox")
	}
	at, fault := b.place(ctx, c, args.Path, b.roots[:1])
	if fault != nil {
		return Result{Err: fault}
	}
	o := sandbox.WriteOptions{Access: sandbox.Access{CallID: c.ID, Tool: WriteFile, Root: at.root}, ExpectedHash: strings.ToLower(args.Hash)}
	if args.Mode != "" {
		mode, err := strconv.ParseUint(args.Mode, 8, 12)
		if err != nil {
			return Fail(OpArguments, CodeInvalidArguments, "arguments/mode: "+err.Error(), "give three octal digits")
		}
		o.Mode = fs.FileMode(mode)
	}
	if c.Begun {
		return b.written(ctx, at, o.Access, []byte(args.Content), "rein was ended")
	}
	if fault := b.overMark(ctx, at, o.Access, args.Content); fault != nil {
		return Result{Err: fault}
	}
	moved, err := b.Sandbox.WriteFile(ctx, at.path, []byte(args.Content), o)
	if unsettled(err) && ctx.Err() == nil {
		return b.written(ctx, at, o.Access, []byte(args.Content), "the connection was lost")
	}
	if err != nil {
		return b.explain(OpWrite, err)
	}
	return wrote(File{Path: at.path, Bytes: moved.Bytes, SHA256: moved.SHA256})
}

func wrote(f File) Result {
	return Result{OK: true, Stdout: fmt.Sprintf("wrote %d bytes to %s\n", f.Bytes, f.Path), File: &f}
}

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/run/workspace"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/tool"
)

// transfers is how many requests are made at a time: enough to hide the latency
// of one behind the others.
const transfers = 8

// scan looks at the workspace, before anything is created.
func (r *runner) scan(ctx context.Context) error {
	if r.o.Workspace.Dir == "" {
		return nil
	}
	tree, err := workspace.Scan(ctx, r.o.Workspace.Dir, workspace.Options{
		NoIgnore: r.o.Workspace.NoIgnore, Secret: tool.Secret, MaxBytes: r.o.Workspace.MaxBytes,
	})
	if err != nil {
		return forbidden(err)
	}
	r.hasInputs(tree)
	return nil
}

// forbidden says what to do about a file of the workspace that may not be read.
func forbidden(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return &sandbox.Error{Kind: sandbox.KindInvalid, Op: "read the workspace", Err: err,
		Hint: "make it readable for the user that runs rein, or name it in .reinignore"}
}

// hasInputs takes a workspace as that of the run.
func (r *runner) hasInputs(tree *workspace.Tree) {
	r.inputs = tree
	r.stand()
	in := &r.report.Inputs
	in.Dir, in.Files, in.Bytes = tree.Dir, tree.Files, tree.Bytes
	in.Ignored, in.Secrets = len(tree.Ignored), tree.Secrets
	for _, s := range tree.Skipped {
		in.Skipped = append(in.Skipped, Skipped(s))
	}
}

func (r *runner) closeInputs() {
	if r.inputs == nil {
		return
	}
	if err := errors.Join(r.inputs.Close(), os.RemoveAll(filepath.Join(r.dir, copiesDir))); err != nil {
		r.warn("the workspace could not be closed: %v", err)
	}
}

// copyIn puts the workspace into the sandbox: directories, files with their
// modes, and links, in this order.
func (r *runner) copyIn(ctx context.Context) error {
	if err := r.filesNeeded(); err != nil {
		return err
	}
	if r.hasFiles() {
		if err := r.lookAround(ctx); err != nil {
			return err
		}
	}
	if r.inputs == nil {
		return nil
	}
	r.emit(Event{Kind: EventInputs, Text: fmt.Sprintf("copying in %d files, %d bytes", r.inputs.Files, r.inputs.Bytes)})
	if n := len(r.inputs.Secrets); n > 0 {
		r.warn("%d files that may hold credentials are left out: %s", n, list(r.inputs.Secrets))
	}
	for _, s := range r.inputs.Skipped {
		r.warn("%s is left out: %s", s.Path, s.Reason)
	}
	r.checkProtected()
	if err := r.keepCopies(); err != nil {
		return err
	}
	if err := r.place(ctx, r.box, r.inputs.Entries); err != nil {
		return err
	}
	r.report.Provenance.InputTree = r.inputs.Hash()
	return nil
}

// place puts entries of the inputs into a sandbox.
func (r *runner) place(ctx context.Context, box *sandbox.Sandbox, entries []*workspace.Entry) error {
	cwd := box.Info().Cwd
	var batches [][]*workspace.Entry
	var links []string
	room := int64(0)
	for _, e := range entries {
		switch e.Type {
		case workspace.Dir:
			// The owner must be able to fill it.
			if err := box.Mkdir(ctx, path.Join(cwd, e.Path), e.Perm|0o700, access(cwd)); err != nil {
				return err
			}
		case workspace.File:
			n := len(batches)
			if n == 0 || room < e.Size || len(batches[n-1]) >= batchFiles {
				batches, room = append(batches, nil), batchBytes
				n++
			}
			batches[n-1] = append(batches[n-1], e)
			room -= e.Size
		case workspace.Link:
			links = append(links, fmt.Sprintf("ln -s -- %s %s", quote(e.Target), quote(e.Path)))
		}
	}
	if err := each(ctx, batches, func(ctx context.Context, b []*workspace.Entry) error { return r.upload(ctx, box, cwd, b) }); err != nil {
		return err
	}
	return link(ctx, box, links)
}

// A batch is the files of one request.
const (
	batchFiles = 250
	batchBytes = 16 << 20
)

func access(root string) sandbox.Access { return sandbox.Access{Tool: "rein", Root: root} }

func (r *runner) upload(ctx context.Context, box *sandbox.Sandbox, cwd string, batch []*workspace.Entry) error {
	files := make([]sandbox.Source, len(batch))
	for i, e := range batch {
		files[i] = sandbox.Source{Path: path.Join(cwd, e.Path), Mode: e.Perm,
			Open: func() (io.ReadCloser, error) {
				f, err := r.inputs.Read(e)
				return f, forbidden(err)
			},
			SHA256: func() string { return e.SHA256 }} // Read has computed it
	}
	return box.UploadAll(ctx, cwd, files, access(cwd))
}

// link makes the symbolic links with a command: the protocol has no request
// for it. They lead nowhere outside the workspace.
func link(ctx context.Context, box *sandbox.Sandbox, commands []string) error {
	for len(commands) > 0 {
		n := min(len(commands), 200)
		res, err := box.Run(ctx, sandbox.Command{Tool: "rein", Shell: strings.Join(commands[:n], " &&\n"), Timeout: time.Minute})
		if err != nil {
			return err
		}
		if !res.OK() {
			return fmt.Errorf("the workspace's symbolic links could not be made: %s", strings.TrimSpace(string(res.Stderr.Head)+string(res.Stderr.Tail)))
		}
		commands = commands[n:]
	}
	return nil
}

// quote makes one word of a shell command.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// each does f for all items, some at a time, and stops at the first error.
func each[T any](ctx context.Context, items []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan T)
	var wg sync.WaitGroup
	for range min(transfers, len(items)) {
		wg.Go(func() {
			for item := range next {
				if ctx.Err() != nil {
					continue // drain
				}
				if err := f(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// list names a few of many.
func list(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + fmt.Sprintf(" and %d more", len(names)-5)
	}
	return strings.Join(names, ", ")
}

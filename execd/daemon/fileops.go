package daemon

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/rein-sh/rein/execd"
)

// removeFiles answers DELETE /files. A file that is missing is success.
func (s *Server) removeFiles(w http.ResponseWriter, r *http.Request) {
	s.removePaths(w, r, func(sc scope, name string, info fs.FileInfo) error {
		if info.IsDir() {
			return refuse(http.StatusConflict, execd.CodeConflict, "it is a directory: DELETE /directories removes it")
		}
		return sc.remove(name)
	})
}

// removeDirectories answers DELETE /directories, with all that is in them.
func (s *Server) removeDirectories(w http.ResponseWriter, r *http.Request) {
	s.removePaths(w, r, func(sc scope, name string, info fs.FileInfo) error {
		if !info.IsDir() {
			return refuse(http.StatusConflict, execd.CodeConflict, "it is not a directory: DELETE /files removes it")
		}
		if name == "/" {
			return refuse(http.StatusForbidden, execd.CodeDenied, "a root cannot be removed")
		}
		return sc.removeAll(name)
	})
}

func (s *Server) removePaths(w http.ResponseWriter, r *http.Request, remove func(sc scope, name string, info fs.FileInfo) error) {
	q := r.URL.Query()
	if !q.Has("path") {
		fail(w, refuse(http.StatusBadRequest, execd.CodeMissingQuery, "path is missing"))
		return
	}
	if s.each(w, q, func(sc scope, _, name string) error {
		info, err := sc.lstat(name)
		if err == nil {
			err = remove(sc, name, info)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}) {
		done(w)
	}
}

// moveFiles answers POST /files/mv.
func (s *Server) moveFiles(w http.ResponseWriter, r *http.Request) {
	var moves []execd.Move
	s.body(w, r, &moves, func(sc scope) error {
		for _, m := range moves {
			if err := sc.move(m); err != nil {
				return err
			}
		}
		return nil
	})
}

func (sc scope) move(m execd.Move) error {
	from, err := sc.name(m.Src)
	if err != nil {
		return err
	}
	to, err := sc.name(m.Dest)
	if err != nil {
		return err
	}
	if _, err := sc.lstat(from); err != nil {
		return at(m.Src, err)
	}
	if err := sc.parents(path.Dir(to)); err != nil {
		return at(m.Dest, err)
	}
	if err := sc.renameNew(from, to); err != nil {
		return at(m.Dest, err)
	}
	return nil
}

// setPermissions answers POST /files/permissions.
func (s *Server) setPermissions(w http.ResponseWriter, r *http.Request) {
	var files map[string]execd.Permission
	s.body(w, r, &files, func(sc scope) error {
		for _, p := range slices.Sorted(maps.Keys(files)) {
			name, err := sc.name(p)
			if err != nil {
				return err
			}
			if err := sc.permit(name, files[p]); err != nil {
				return at(p, err)
			}
		}
		return nil
	})
}

// permit changes the owner and then the mode, since a change of owner takes
// special bits away. Only files and directories have them changed.
func (sc scope) permit(name string, p execd.Permission) error {
	mode, err := parseMode(p.Mode)
	if err != nil {
		return err
	}
	owner := &ids{-1, -1}
	if p.Owner != "" || p.Group != "" {
		if owner, err = sc.srv.owner(p.Owner, p.Group); err != nil {
			return err
		}
		if p.Owner == "" {
			owner.uid = -1
		}
		if p.Group == "" {
			owner.gid = -1
		}
	}
	info, err := sc.stat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		if err := regular(info); err != nil {
			return err
		}
	}
	if sc.root == nil {
		if err := os.Chown(name, owner.uid, owner.gid); err != nil || p.Mode == 0 {
			return err
		}
		return os.Chmod(name, mode)
	}
	if err := sc.root.Chown(local(name), owner.uid, owner.gid); err != nil || p.Mode == 0 {
		return err
	}
	return sc.root.Chmod(local(name), mode)
}

// makeDirectories answers POST /directories. Mode and owner apply to a
// directory that is made, not to one that is there.
func (s *Server) makeDirectories(w http.ResponseWriter, r *http.Request) {
	var dirs map[string]execd.Permission
	s.body(w, r, &dirs, func(sc scope) error {
		for _, p := range slices.Sorted(maps.Keys(dirs)) {
			name, err := sc.name(p)
			if err != nil {
				return err
			}
			if err := sc.makeDirectory(name, dirs[p]); err != nil {
				return at(p, err)
			}
		}
		return nil
	})
}

func (sc scope) makeDirectory(name string, p execd.Permission) error {
	if _, err := parseMode(p.Mode); err != nil {
		return err
	}
	if _, err := sc.srv.owner(p.Owner, p.Group); err != nil {
		return err
	}
	if info, err := sc.stat(name); err == nil {
		if !info.IsDir() {
			return &os.PathError{Op: "mkdir", Path: name, Err: syscall.EEXIST}
		}
		return nil
	}
	if err := sc.parents(name); err != nil {
		return err
	}
	return sc.permit(name, p)
}

// maxReplace bounds a file whose text is replaced.
const maxReplace = 64 << 20

// replaceContents answers POST /files/replace. Every file is checked before
// the first is changed; each is then replaced atomically.
func (s *Server) replaceContents(w http.ResponseWriter, r *http.Request) {
	var files map[string]execd.Replace
	counts := make(map[string]execd.Replaced)
	verbose := r.URL.Query().Get("verbose") == "true"
	s.bodyThen(w, r, &files, func(sc scope) error {
		for _, dry := range []bool{true, false} {
			for _, p := range slices.Sorted(maps.Keys(files)) {
				n, err := sc.replace(p, files[p], dry)
				if err != nil {
					return at(p, err)
				}
				counts[p] = execd.Replaced{Count: n}
			}
		}
		return nil
	}, func() {
		if verbose {
			reply(w, counts)
			return
		}
		done(w)
	})
}

func (sc scope) replace(p string, change execd.Replace, dry bool) (int, error) {
	if change.Old == "" {
		return 0, refuse(http.StatusBadRequest, execd.CodeInvalidBody, "old is empty")
	}
	name, err := sc.name(p)
	if err != nil {
		return 0, err
	}
	f, info, err := sc.openRegular(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info.Size() > maxReplace {
		return 0, refuse(http.StatusRequestEntityTooLarge, execd.CodeTooLarge, "it is larger than %d bytes", maxReplace)
	}
	if dry {
		return 0, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxReplace))
	if err != nil {
		return 0, err
	}
	n := bytes.Count(b, []byte(change.Old))
	if n == 0 {
		return 0, nil
	}
	wr, err := sc.create(name)
	if err != nil {
		return 0, err
	}
	defer wr.abandon()
	if err := wr.fill(bytes.NewReader(bytes.ReplaceAll(b, []byte(change.Old), []byte(change.New)))); err != nil {
		return 0, err
	}
	return n, wr.commit(nil, nil, "")
}

// body decodes a JSON body, runs f in the scope of the request and answers
// without a body.
func (s *Server) body(w http.ResponseWriter, r *http.Request, v any, f func(sc scope) error) {
	s.bodyThen(w, r, v, f, func() { done(w) })
}

func (s *Server) bodyThen(w http.ResponseWriter, r *http.Request, v any, f func(sc scope) error, answer func()) {
	if err := decode(w, r, v); err != nil {
		fail(w, err)
		return
	}
	sc, err := s.scope(r.URL.Query().Get(execd.RootQuery))
	if err != nil {
		fail(w, err)
		return
	}
	defer sc.done()
	if err := f(sc); err != nil {
		fail(w, err)
		return
	}
	answer()
}

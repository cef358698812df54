package daemon

import (
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/execd"
)

// expand makes a path of a request absolute and clean: "~", $VAR and ${VAR}
// are replaced as OpenSandbox does, and a relative path starts at base. A
// variable that is not set is an error.
func (s *Server) expand(p, base string) (string, error) {
	if p == "~" || strings.HasPrefix(p, "~/") {
		p = s.cfg.Home + p[1:]
	}
	var missing string
	if strings.Contains(p, "$") {
		p = os.Expand(p, func(name string) string {
			v, ok := s.env[name]
			if !ok && missing == "" {
				missing = name
			}
			return v
		})
	}
	if missing != "" {
		return "", refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "the variable %s in the path is not set", missing)
	}
	return literal(p, base)
}

// literal makes a path of a request of rein's absolute and clean, and changes
// nothing else: a name may hold any character.
func literal(p, base string) (string, error) {
	if p == "" {
		return "", refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "path is empty")
	}
	if strings.IndexByte(p, 0) >= 0 {
		return "", refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "path has a NUL byte")
	}
	if !path.IsAbs(p) {
		p = path.Join(base, p)
	}
	return path.Clean(p), nil
}

// workingDirectory checks the cwd of a command; exact takes it as it is.
func (s *Server) workingDirectory(cwd string, exact bool) (string, error) {
	return s.directoryFrom(s.cfg.Cwd, cwd, exact)
}

// directoryFrom is workingDirectory from another directory than the daemon's.
func (s *Server) directoryFrom(base, cwd string, exact bool) (string, error) {
	if cwd == "" {
		cwd, exact = base, true
	}
	read := s.expand
	if exact {
		read = literal
	}
	dir, err := read(cwd, base)
	if err != nil {
		return "", err
	}
	info, err := s.files.stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return "", at(dir, err)
	}
	return dir, nil
}

// scope is where the paths of one request lead: a place and the directory of
// the sandbox that it shows.
type scope struct {
	place
	srv   *Server
	base  string // "" for the whole sandbox
	exact bool   // the request has a root: its paths are taken as they are
	owned bool   // close the place afterwards
}

// scope opens the place of a request with the given root ("": everything).
func (s *Server) scope(root string) (scope, error) {
	if root == "" {
		return scope{place: s.files, srv: s}, nil
	}
	base, err := literal(root, s.cfg.Cwd)
	if err != nil {
		return scope{}, err
	}
	if base == "/" && s.files.root == nil {
		return scope{place: s.files, srv: s, exact: true}, nil
	}
	p, err := s.files.beneath(base)
	if err != nil {
		return scope{}, at(base, err)
	}
	return scope{place: p, srv: s, base: base, exact: true, owned: true}, nil
}

func (sc scope) done() {
	if sc.owned {
		sc.place.close()
	}
}

// name turns a path of a request into a name of the place.
func (sc scope) name(p string) (string, error) {
	if !sc.exact {
		return sc.srv.expand(p, sc.srv.cfg.Cwd)
	}
	if sc.base == "" {
		return literal(p, "/")
	}
	full, err := literal(p, sc.base)
	if err != nil {
		return "", err
	}
	if full == sc.base || sc.base == "/" {
		return "/" + strings.TrimPrefix(strings.TrimPrefix(full, sc.base), "/"), nil
	}
	rest, ok := strings.CutPrefix(full, sc.base+"/")
	if !ok {
		return "", at(p, errOutside)
	}
	return "/" + rest, nil
}

// shown is the sandbox's path of a name.
func (sc scope) shown(name string) string { return path.Join("/", sc.base, name) }

// at names the path of the request in an error of the system.
func at(p string, err error) error {
	e := asError(err)
	if escapes(err) {
		return refuse(http.StatusForbidden, execd.CodeDenied, "%s: %s", p, errOutside)
	}
	cause := err
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		cause = pe.Err
	} else if le, ok := errors.AsType[*os.LinkError](err); ok {
		cause = le.Err
	} else if e == err {
		return refuse(e.Status, e.Code, "%s: %s", p, e.Message)
	}
	return refuse(e.Status, e.Code, "%s: %s", p, cause)
}

// each runs f for every path of the query within one scope.
func (s *Server) each(w http.ResponseWriter, q url.Values, f func(sc scope, p, name string) error) bool {
	sc, err := s.scope(q.Get(execd.RootQuery))
	if err != nil {
		fail(w, err)
		return false
	}
	defer sc.done()
	for _, p := range q["path"] {
		name, err := sc.name(p)
		if err == nil {
			if err = f(sc, p, name); err != nil {
				err = at(p, err)
			}
		}
		if err != nil {
			fail(w, err)
			return false
		}
	}
	return true
}

// onePath is the path of a request that takes exactly one.
func onePath(q url.Values) (string, error) {
	if q.Get("path") == "" {
		return "", refuse(http.StatusBadRequest, execd.CodeMissingQuery, "path is missing")
	}
	return q.Get("path"), nil
}

package daemon

import (
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/rein-sh/rein/execd"
)

// expand makes a path of a request absolute and clean: "~", $VAR and ${VAR}
// are replaced as OpenSandbox does, and a relative path starts at Cwd. A
// variable that is not set is an error.
func (s *Server) expand(p string) (string, error) {
	if p == "" {
		return "", refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "path is empty")
	}
	if strings.IndexByte(p, 0) >= 0 {
		return "", refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "path has a NUL byte")
	}
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
	if !path.IsAbs(p) {
		p = path.Join(s.cfg.Cwd, p)
	}
	return path.Clean(p), nil
}

// workingDirectory checks the cwd of a command.
func (s *Server) workingDirectory(cwd string) (string, error) {
	if cwd == "" {
		cwd = s.cfg.Cwd
	}
	dir, err := s.expand(cwd)
	if err != nil {
		return "", err
	}
	info, err := s.files.stat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", &os.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR}
	}
	return dir, nil
}

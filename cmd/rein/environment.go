package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"
)

// environment is the process's environment, as far as rein asks for it: the
// XDG directories, HOME, NO_COLOR, TERM, and the variables a
// configuration names for keys.
type environment map[string]string

func newEnvironment(environ []string) environment {
	e := environment{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			e[k] = v
		}
	}
	return e
}

func (e environment) get(name string) string { return e[name] }

// configHome is where the user's configuration is; "" when nothing says so.
func (e environment) configHome() string {
	if d := e["XDG_CONFIG_HOME"]; d != "" {
		return d
	}
	if h := e["HOME"]; filepath.IsAbs(h) {
		return filepath.Join(h, ".config")
	}
	return ""
}

// stateDir is where runs and sandboxes are kept.
func (e environment) stateDir() (string, error) {
	d := e["XDG_STATE_HOME"]
	if d != "" && !filepath.IsAbs(d) {
		return "", usage("set XDG_STATE_HOME to an absolute path, or unset it", "XDG_STATE_HOME=%s is not an absolute path", d)
	}
	if d == "" {
		h := e["HOME"]
		if !filepath.IsAbs(h) {
			return "", usage("set HOME, or XDG_STATE_HOME", "there is no place for rein's state: neither XDG_STATE_HOME nor HOME is set")
		}
		d = filepath.Join(h, ".local", "state")
	}
	return filepath.Join(d, "rein"), nil
}

// cacheDir is where what can be fetched again is kept.
func (e environment) cacheDir() (string, error) {
	d := e["XDG_CACHE_HOME"]
	if d != "" && !filepath.IsAbs(d) {
		return "", usage("set XDG_CACHE_HOME to an absolute path, or unset it", "XDG_CACHE_HOME=%s is not an absolute path", d)
	}
	if d == "" {
		h := e["HOME"]
		if !filepath.IsAbs(h) {
			return "", usage("set HOME, or XDG_CACHE_HOME", "there is no place for images: neither XDG_CACHE_HOME nor HOME is set")
		}
		d = filepath.Join(h, ".cache")
	}
	return filepath.Join(d, "rein"), nil
}

// recipeDirs are where recipes of agents are, besides the built-in ones.
func (e environment) recipeDirs() []string {
	dirs := []string{"/etc/rein/agents"}
	if home := e.configHome(); filepath.IsAbs(home) {
		dirs = append(dirs, filepath.Join(home, "rein", "agents"))
	}
	return dirs
}

// output is one of the process's streams, and whether a person looks at it.
type output struct {
	io.Writer
	terminal bool
	width    int // columns of the terminal; 0 when it is none
}

func newOutput(w io.Writer) *output {
	o := &output{Writer: w}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		o.terminal = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			o.width = width
		}
	}
	return o
}

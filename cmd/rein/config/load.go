package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// SystemPath is the configuration of the whole machine.
const SystemPath = "/etc/rein/config.yaml"

// Places says where a configuration may come from. There is no other place: a
// file in a workspace or above it is never looked for, and never read.
type Places struct {
	// Explicit is the file of --config; it replaces both others.
	Explicit string
	// ConfigHome is $XDG_CONFIG_HOME, or $HOME/.config; empty when neither is set.
	ConfigHome string
	// System is SystemPath but in tests; empty reads none.
	System string
	// Workspaces are directories whose content is not trusted. A configuration
	// file in one of them is refused, and so is one directly in a directory
	// above one, unless it is the explicit one.
	Workspaces []string
}

// UserPath is the user's configuration file, "" when there is no place for one.
func (p Places) UserPath() string {
	if p.ConfigHome == "" {
		return ""
	}
	return filepath.Join(p.ConfigHome, "rein", "config.yaml")
}

// Load reads the configuration: the machine's file, the user's over it, or
// only the explicit one. A missing file is no configuration, unless it was
// named. Errors are *Error for faults in a file, beside what could be read, as
// with Decode, and *PlaceError for a file that must not be trusted.
func Load(p Places) (*File, error) {
	if p.Explicit != "" {
		f, err := p.read(p.Explicit)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &PlaceError{Path: p.Explicit, Reason: "no such file", Hint: "rein config init --config " + p.Explicit + " writes one"}
		}
		return f, err
	}
	out := &File{Set: map[string]Position{}}
	for _, path := range []string{p.System, p.UserPath()} {
		if path == "" {
			continue
		}
		f, err := p.read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if f == nil {
			return nil, err
		}
		out = merge(out, f)
	}
	return out, asError(out.faults)
}

// PlaceError is a configuration file that was not read because of where it
// lies, who owns it or what it is.
type PlaceError struct{ Path, Reason, Hint string }

// TooWide is the hint about a workspace that has the place of the configuration in it.
const TooWide = "--workspace DIR names a directory without it"

func (e *PlaceError) Error() string {
	return fmt.Sprintf("configuration %s: %s", e.Path, e.Reason)
}

// read opens path once and checks what was opened, so that no check is about
// another file than the one that is read.
func (p Places) read(path string) (*File, error) {
	if !filepath.IsAbs(path) && path != p.Explicit {
		return nil, &PlaceError{path, "the configuration directory is not an absolute path, so it would depend on where rein is started",
			"set XDG_CONFIG_HOME to an absolute path, or unset it"}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		return nil, &PlaceError{path, reason(err), "make it readable, or name another with --config"}
	}
	defer f.Close()
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, &PlaceError{path, "its real place cannot be told: " + err.Error(), "rein needs /proc mounted"}
	}
	if err := p.trusted(path, real); err != nil {
		return nil, err
	}
	if err := ownedByUs(path, f); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, &PlaceError{path, reason(err), ""}
	}
	return Decode(path, data)
}

func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// trusted refuses a file that lies in a workspace, by its name or really, or
// directly in a directory above one. Only a person's own hand, in --config, can
// name one above: nothing in a workspace says where to look.
func (p Places) trusted(path, real string) error {
	named, err := filepath.Abs(path)
	if err != nil {
		return &PlaceError{path, err.Error(), ""}
	}
	for _, w := range p.Workspaces {
		for _, file := range []string{named, real} {
			for _, dir := range spellings(w) {
				if within(dir, file) {
					hint := "keep the configuration outside, such as in ~/.config/rein/config.yaml"
					if path != p.Explicit { // it is where it belongs
						hint = TooWide
					}
					return &PlaceError{path, "it lies in the workspace " + w + ", and nothing there is trusted", hint}
				}
				if path != p.Explicit && within(filepath.Dir(file), dir) {
					return &PlaceError{path, "it lies above the workspace " + w + ", where rein reads no configuration",
						"keep the configuration elsewhere, such as in ~/.config/rein/config.yaml"}
				}
			}
		}
	}
	return nil
}

// spellings is a directory as it was named and as it really is.
func spellings(dir string) []string {
	var out []string
	if abs, err := filepath.Abs(dir); err == nil {
		out = append(out, abs)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		if real, err = filepath.Abs(real); err == nil && !slices.Contains(out, real) {
			out = append(out, real)
		}
	}
	return out
}

// within reports whether path is dir or lies beneath it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// ownedByUs refuses a file that another user could have written: it can name
// programs that rein runs.
func ownedByUs(path string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return &PlaceError{path, reason(err), ""}
	}
	if !info.Mode().IsRegular() {
		return &PlaceError{path, "not a regular file", "name a file with --config"}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &PlaceError{path, "its owner cannot be told", ""}
	}
	if uid := uint32(os.Geteuid()); st.Uid != uid && st.Uid != 0 {
		return &PlaceError{path, fmt.Sprintf("it belongs to uid %d, neither you (uid %d) nor root", st.Uid, uid), "copy it, so that it is yours"}
	}
	if info.Mode().Perm()&0o002 != 0 {
		return &PlaceError{path, "anyone may write to it", "chmod o-w " + path}
	}
	return nil
}

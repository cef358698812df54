package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rein-sh/rein/execd"
)

// maxEntries bounds what one listing or search returns.
const maxEntries = 100_000

// describer makes FileInfo values; it reads the names of users once.
type describer struct {
	srv           *Server
	hash          bool // also of the content of regular files
	users, groups map[uint32]string
}

func (s *Server) describer(q url.Values) *describer {
	return &describer{srv: s, hash: q.Get("hash") == "1", users: map[uint32]string{}, groups: map[uint32]string{}}
}

// describe makes the wire form of a file of sc, by its name there.
func (d *describer) describe(sc scope, name string, info fs.FileInfo) (execd.FileInfo, error) {
	f := d.fromStat(sc.shown(name), info)
	var err error
	switch {
	case f.Type == "symlink":
		f.Target, err = sc.readlink(name)
	case f.Type == "file" && d.hash:
		f.SHA256, err = sc.hash(name)
	}
	return f, err
}

// hash is the SHA-256 of a regular file, in hexadecimal; empty when it is longer
// than execd.MaxHashed.
func (sc scope) hash(name string) (string, error) {
	f, _, err := sc.openRegular(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	switch info, err := f.Stat(); {
	case err != nil:
		return "", err
	case info.Size() > execd.MaxHashed:
		return "", nil
	}
	if n, err := io.Copy(sum, io.LimitReader(f, execd.MaxHashed+1)); err != nil || n > execd.MaxHashed {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// fromStat makes what stat tells. Linux's has no time of birth; CreatedAt is
// the time of the last change of the inode.
func (d *describer) fromStat(shown string, info fs.FileInfo) execd.FileInfo {
	f := execd.FileInfo{Path: shown, Size: info.Size(), ModifiedAt: info.ModTime(), CreatedAt: info.ModTime(), Mode: octal(info.Mode())}
	switch m := info.Mode(); {
	case m.IsRegular():
		f.Type = "file"
	case m.IsDir():
		f.Type = "directory"
	case m&fs.ModeSymlink != 0:
		f.Type = "symlink"
	default:
		f.Type = "other"
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.CreatedAt = time.Unix(st.Ctim.Unix())
		f.Owner = d.name(d.users, "/etc/passwd", st.Uid)
		f.Group = d.name(d.groups, "/etc/group", st.Gid)
	}
	return f
}

func (d *describer) name(known map[uint32]string, file string, id uint32) string {
	n, ok := known[id]
	if !ok {
		n = nameIn(d.srv.osPath(file), int(id), strconv.FormatUint(uint64(id), 10))
		known[id] = n
	}
	return n
}

// octal gives a mode as the API does: octal digits read as decimal.
func octal(m fs.FileMode) int {
	bits := uint64(m.Perm())
	for _, b := range specialBits {
		if m&b.mode != 0 {
			bits |= b.bit
		}
	}
	n, err := strconv.Atoi(strconv.FormatUint(bits, 8))
	if err != nil {
		panic(err) // four octal digits
	}
	return n
}

// parseMode reads such a mode.
func parseMode(digits int) (fs.FileMode, error) {
	bits, err := strconv.ParseUint(strconv.Itoa(digits), 8, 12)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, execd.CodeInvalidMetadata, "mode %d is not up to four octal digits, such as 644", digits)
	}
	m := fs.FileMode(bits & 0o777)
	for _, b := range specialBits {
		if bits&b.bit != 0 {
			m |= b.mode
		}
	}
	return m, nil
}

var specialBits = [...]struct {
	bit  uint64
	mode fs.FileMode
}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}}

// fileInfo answers GET /files/info.
func (s *Server) fileInfo(w http.ResponseWriter, r *http.Request) {
	found := map[string]execd.FileInfo{}
	q := r.URL.Query()
	d := s.describer(q)
	if s.each(w, q, func(sc scope, p, name string) error {
		info, err := sc.lstat(name)
		if err == nil {
			found[p], err = d.describe(sc, name, info)
		}
		return err
	}) {
		reply(w, found)
	}
}

// listDirectory answers GET /directories/list.
func (s *Server) listDirectory(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	depth := 1
	if v := q.Get("depth"); v != "" {
		var err error
		if depth, err = strconv.Atoi(v); err != nil || depth < 0 {
			fail(w, refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "depth must be a number from 0"))
			return
		}
	}
	list, err := s.walk(q, func(level int, _ fs.FileInfo) (bool, bool) { return level <= depth, level < depth })
	s.replyList(w, list, err)
}

// searchFiles answers GET /files/search: files, not directories, whose base
// name matches.
func (s *Server) searchFiles(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	pattern := q.Get("pattern")
	if pattern == "" {
		pattern = "**"
	}
	match, err := compilePattern(pattern)
	if err != nil {
		fail(w, err)
		return
	}
	list, err := s.walk(q, func(_ int, info fs.FileInfo) (bool, bool) {
		return !info.IsDir() && match(info.Name()), true
	})
	s.replyList(w, list, err)
}

func (s *Server) replyList(w http.ResponseWriter, list []execd.FileInfo, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	slices.SortFunc(list, func(a, b execd.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	reply(w, list)
}

// walk visits everything beneath the directory of a query; wanted says whether
// to describe what it was given, and whether to go into it. Links are not
// followed, what vanishes meanwhile is left out.
func (s *Server) walk(q url.Values, wanted func(level int, info fs.FileInfo) (describe, into bool)) ([]execd.FileInfo, error) {
	dir, err := onePath(q)
	if err != nil {
		return nil, err
	}
	sc, err := s.scope(q.Get(execd.RootQuery))
	if err != nil {
		return nil, err
	}
	defer sc.done()
	name, err := sc.name(dir)
	if err != nil {
		return nil, err
	}
	info, err := sc.lstat(name)
	if err != nil {
		return nil, at(dir, err)
	}
	if !info.IsDir() {
		return nil, refuse(http.StatusBadRequest, execd.CodeInvalidFile, "%s: it is %s, not a directory", dir, kindOf(info.Mode()))
	}
	wk := walker{scope: sc, describer: s.describer(q), wanted: wanted, found: []execd.FileInfo{}}
	if err := wk.dir(name, 1); err != nil {
		return nil, at(dir, err)
	}
	return wk.found, nil
}

type walker struct {
	scope
	describer *describer
	wanted    func(level int, info fs.FileInfo) (describe, into bool)
	found     []execd.FileInfo
	seen      int
}

func (wk *walker) dir(name string, level int) error {
	f, err := wk.open(name, syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	if err != nil {
		return err
	}
	for _, n := range names {
		err := wk.visit(path.Join(name, n), level)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (wk *walker) visit(name string, level int) error {
	info, err := wk.lstat(name)
	if err != nil {
		return err
	}
	if wk.seen++; wk.seen > maxEntries {
		return refuse(http.StatusRequestEntityTooLarge, execd.CodeTooLarge, "more than %d files: ask for a part", maxEntries)
	}
	describe, into := wk.wanted(level, info)
	if describe {
		f, err := wk.describer.describe(wk.scope, name, info)
		if err != nil {
			return err
		}
		wk.found = append(wk.found, f)
	}
	if into && info.IsDir() {
		return wk.dir(name, level+1)
	}
	return nil
}

// maxAlternatives bounds what braces in a pattern may multiply to.
const maxAlternatives = 256

// compilePattern turns a search pattern into a match of base names, as
// OpenSandbox has it: *, ?, [a-z], {a,b}; "**/" in front means what is meant
// anyway, and a pattern with another slash matches nothing.
func compilePattern(pattern string) (func(string) bool, error) {
	alternatives, err := expandBraces(pattern)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "pattern %q: %s", pattern, err)
	}
	var list []string
	for _, a := range alternatives {
		for strings.HasPrefix(a, "**/") {
			a = a[3:]
		}
		a = strings.ReplaceAll(a, "**", "*")
		if _, err := path.Match(a, ""); err != nil {
			return nil, refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "pattern %q: %s", pattern, err)
		}
		list = append(list, a)
	}
	return func(name string) bool {
		return slices.ContainsFunc(list, func(a string) bool {
			ok, err := path.Match(a, name)
			return ok && err == nil
		})
	}, nil
}

// expandBraces expands {a,b} groups, nested ones too.
func expandBraces(p string) ([]string, error) {
	open := strings.IndexByte(p, '{')
	if open < 0 {
		return []string{p}, nil
	}
	depth, from := 0, open+1
	var parts []string
	for i := open; i < len(p); i++ {
		switch c := p[i]; {
		case c == '{':
			depth++
		case c == ',' && depth == 1:
			parts = append(parts, p[from:i])
			from = i + 1
		case c == '}':
			if depth--; depth > 0 {
				continue
			}
			parts = append(parts, p[from:i])
			var all []string
			for _, part := range parts {
				rest, err := expandBraces(p[:open] + part + p[i+1:])
				if err != nil {
					return nil, err
				}
				if all = append(all, rest...); len(all) > maxAlternatives {
					return nil, fmt.Errorf("more than %d alternatives", maxAlternatives)
				}
			}
			return all, nil
		}
	}
	return nil, errors.New("a brace is not closed")
}

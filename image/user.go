package image

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// User is who an image's programs run as.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary, without GID, sorted
	Name     string   // "" when the image does not name the uid
	Home     string   // absolute; "/" when the image names none
	Shell    string   // of its entry; may be empty
}

// The bounds of reading user databases that others wrote.
const (
	maxDatabase = 1 << 20 // bytes
	maxGroups   = 1024    // supplementary groups
)

// noSuchUser is the hint for an image whose own files do not know its user.
const noSuchUser = "the image cannot run as it says: choose another, or have whoever makes it name a user by number"

// ResolveUser finds out who User is: a name or a uid, with ":" and a group or a
// gid, as /etc/passwd and /etc/group beneath root say. Without a group it is that
// of the user's entry, with the supplementary groups of /etc/group; with one there
// are no supplementary groups. Empty is root. A name that is not there is an
// error, a number need not be. Numbers are 0 to 65535.
func (c Config) ResolveUser(root string) (User, error) {
	u, err := resolveUser(c.User, root)
	if err != nil {
		return User{}, failed("user", fmt.Sprintf("%.100q", c.User), KindInvalid, err)
	}
	return u, nil
}

func resolveUser(spec, root string) (User, error) {
	who, group, withGroup := strings.Cut(spec, ":")
	if who == "" && withGroup || withGroup && group == "" {
		return User{}, bad("USER, USER:GROUP, with names or numbers", "it names no user and group")
	}
	t, err := openTree(root, Limits{}.withDefaults())
	if err != nil {
		return User{}, err
	}
	defer t.close()
	u, err := findUser(t, who)
	if err != nil {
		return User{}, err
	}
	groups, err := readDatabase(t, "etc/group", 4)
	if err != nil {
		return User{}, err
	}
	if withGroup {
		u.GID, err = findGroup(groups, group)
		return u, err
	}
	for _, g := range groups {
		gid, err := number(g[2])
		if err != nil || u.Name == "" || gid == u.GID || !slices.Contains(strings.Split(g[3], ","), u.Name) {
			continue
		}
		u.Groups = append(u.Groups, gid)
	}
	slices.Sort(u.Groups)
	u.Groups = slices.Compact(u.Groups)
	if len(u.Groups) > maxGroups {
		return User{}, tooLarge("a user of %d groups, more than %d", len(u.Groups), maxGroups)
	}
	return u, nil
}

func findUser(t *tree, who string) (User, error) {
	if who == "" {
		who = "0"
	}
	u := User{Home: "/"}
	uid, numeric := number(who)
	if numeric != nil && isNumber(who) {
		return u, numeric
	}
	entries, err := readDatabase(t, "etc/passwd", 7)
	if err != nil {
		return u, err
	}
	for _, e := range entries {
		id, idErr := number(e[2])
		if numeric == nil && (idErr != nil || id != uid) || numeric != nil && e[0] != who {
			continue
		}
		gid, gidErr := number(e[3])
		if err := errors.Join(idErr, gidErr); err != nil {
			return u, fmt.Errorf("its entry in /etc/passwd: %w", err)
		}
		u = User{UID: id, GID: gid, Name: e[0], Home: path.Clean("/" + e[5]), Shell: e[6]}
		return u, nil
	}
	if numeric != nil {
		return u, &fault{kind: KindNotFound, hint: noSuchUser, err: errors.New("there is no such user in the image's /etc/passwd")}
	}
	u.UID = uid
	return u, nil
}

func findGroup(groups [][]string, group string) (uint32, error) {
	gid, err := number(group)
	if err == nil || isNumber(group) {
		return gid, err
	}
	for _, g := range groups {
		if g[0] == group {
			return number(g[2])
		}
	}
	return 0, &fault{kind: KindNotFound, hint: noSuchUser, err: fmt.Errorf("there is no group %.100q in the image's /etc/group", group)}
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n > maxID {
		return 0, fmt.Errorf("%.40q is no number from 0 to %d", s, maxID)
	}
	return uint32(n), nil
}

// readDatabase reads a file of lines with fields between colons. Lines with
// other than that many fields are left out, as libc does. A missing file is
// empty.
func readDatabase(t *tree, name string, fields int) ([][]string, error) {
	f, err := openInside(t, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoParent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	bytes := &io.LimitedReader{R: f, N: maxDatabase + 1}
	lines := bufio.NewScanner(bytes)
	lines.Buffer(nil, maxDatabase+1)
	var out [][]string
	for lines.Scan() {
		e := strings.Split(lines.Text(), ":")
		if len(e) == fields && e[0] != "" && !strings.HasPrefix(e[0], "#") {
			out = append(out, e)
		}
	}
	err = lines.Err()
	if err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, err
	}
	if err != nil || bytes.N == 0 {
		return nil, tooLarge("/%s is larger than %d bytes", name, maxDatabase)
	}
	return out, nil
}

// openInside opens a regular file as a program would whose root directory t is.
func openInside(t *tree, name string) (*os.File, error) {
	for range maxLinks {
		dir, base := path.Split(name)
		if base == "" || base == "." || base == ".." {
			return nil, refused("/%.300s is a directory", name)
		}
		if err := t.open(dir, false); err != nil {
			return nil, err
		}
		fd, err := unix.Openat(t.dirfd(), base, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			return regular(os.NewFile(uintptr(fd), name))
		}
		if err != unix.ELOOP {
			return nil, &fs.PathError{Op: "open", Path: "/" + name, Err: err}
		}
		target, err := readlink(t.dirfd(), base)
		if err != nil {
			return nil, err
		}
		if name = target; !strings.HasPrefix(target, "/") {
			name = t.resolved() + target
		}
	}
	return nil, refused("/%.300s: more than %d links lead to it", name, maxLinks)
}

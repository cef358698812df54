package daemon

import (
	"strconv"
	"strings"
)

// UserName gives the name of a uid in /etc/passwd, or otherwise. The file is
// the sandbox's: the name is for people, nothing is decided by it.
func UserName(uid int, otherwise string) string {
	return nameIn("/etc/passwd", uid, otherwise)
}

// nameIn finds the name of id in a file of colon-separated lines whose third
// field is the number.
func nameIn(file string, id int, otherwise string) string {
	for f := range passwdFields(file) {
		if n, err := strconv.Atoi(f[2]); err == nil && n == id {
			return f[0]
		}
	}
	return otherwise
}

// idIn finds the number of name, which may be a number itself.
func idIn(file, name string) (int, bool) {
	for f := range passwdFields(file) {
		if f[0] == name {
			n, err := strconv.Atoi(f[2])
			return n, err == nil
		}
	}
	n, err := strconv.ParseUint(name, 10, 32)
	return int(n), err == nil
}

func passwdFields(file string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		b, err := readPlain(file)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[0] != "" && !yield(f) {
				return
			}
		}
	}
}

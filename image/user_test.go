package image_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/image"
)

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\n# app:x:1:1::/:\napp:x:1000:1000:App,,,:/home/app:/bin/bash\nhalf:x:1001\n" +
		"bad:x:99999999999:1::/:\nbig:x:70000:1::/:\n1234:x:1500:1500::/home/digits:\nrel:x:1002:1002::var/../rel:/bin/sh\n"
	group = "root:x:0:\nstaff:x:50:app,other\nadm:x:4:app\nadm2:x:4:app\napp:x:1000:app\nnobody:x:65534:\nbad:x:x:app\n"
)

// tree is a directory with some files.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestResolveUser(t *testing.T) {
	root := tree(t, map[string]string{"etc/passwd": passwd, "etc/group": group})
	app := image.User{UID: 1000, GID: 1000, Groups: []uint32{4, 50}, Name: "app", Home: "/home/app", Shell: "/bin/bash"}
	alone := app
	alone.Groups, alone.GID = nil, 50
	number := alone
	number.GID = 7
	for spec, want := range map[string]image.User{
		"":           {Name: "root", Home: "/root", Shell: "/bin/sh"},
		"0":          {Name: "root", Home: "/root", Shell: "/bin/sh"},
		"app":        app,
		"1000":       app,
		"app:staff":  alone,
		"1000:50":    alone,
		"app:50":     alone,
		"1000:staff": alone,
		"app:7":      number,
		"4711":       {UID: 4711, Home: "/"},
		"4711:4712":  {UID: 4711, GID: 4712, Home: "/"},
		"65535":      {UID: 65535, Home: "/"},
		"1234":       {UID: 1234, Home: "/"},
		"rel":        {UID: 1002, GID: 1002, Name: "rel", Home: "/rel", Shell: "/bin/sh"},
	} {
		got, err := image.Config{User: spec}.ResolveUser(root)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", spec, err, diff)
		}
	}
	for spec, says := range map[string]string{
		"nobody": "no such user", "half": "no such user", "# app": "no such user", "app:none": "no group", "bad": "no number", "big": "no number",
		"65536": "no number", "app:65536": "no number", "99999999999999999999": "no number", ":": "names no user", ":staff": "names no user", "app:": "names no user",
		"app:staff:x": "no group", "-1": "no such user",
	} {
		if got, err := (image.Config{User: spec}).ResolveUser(root); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is %+v (%v), want an error with %q", spec, got, err, says)
		}
	}
}

// The databases are the tree's, whatever links are in it.
func TestResolveUserLinks(t *testing.T) {
	inside := "me:x:7:7::/me:/bin/sh\n"
	for name, c := range map[string]struct {
		files map[string]string
		says  string // "" finds me
	}{
		"none":            {map[string]string{"x": ""}, "no such user"},
		"absolute":        {map[string]string{"etc/passwd": "-> /usr/share/passwd", "usr/share/passwd": inside}, ""},
		"directory":       {map[string]string{"etc": "-> /usr/etc", "usr/etc/passwd": inside}, ""},
		"upwards":         {map[string]string{"etc/passwd": "-> ../../../../usr/passwd", "usr/passwd": inside}, ""},
		"through a link":  {map[string]string{"etc/passwd": "-> l/../p", "etc/l": "-> /usr/share", "usr/p": inside, "etc/p": "", "usr/share/x": ""}, ""},
		"of this host":    {map[string]string{"etc/passwd": "-> /proc/self/root/etc/passwd"}, "no such user"},
		"loop":            {map[string]string{"etc/passwd": "-> passwd2", "etc/passwd2": "-> passwd"}, "more than 40 links"},
		"a directory":     {map[string]string{"etc/passwd/x": inside}, "no regular file"},
		"to a directory":  {map[string]string{"etc/passwd": "-> /"}, "is a directory"},
		"etc is a file":   {map[string]string{"etc": inside}, "no directory"},
		"too large":       {map[string]string{"etc/passwd": strings.Repeat("a:b\n", 300_000)}, "larger than"},
		"one long line":   {map[string]string{"etc/passwd": strings.Repeat("a", 1<<20+1)}, "larger than"},
		"no line's end":   {map[string]string{"etc/passwd": strings.TrimSpace(inside)}, ""},
		"not this fields": {map[string]string{"etc/passwd": "me:x:7:7::/me:/bin/sh:more\n"}, "no such user"},
	} {
		got, err := image.Config{User: "me"}.ResolveUser(tree(t, c.files))
		if c.says == "" {
			if err != nil || got.UID != 7 {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v, want an error with %q", name, got, err, c.says)
		}
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "etc/passwd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (image.Config{User: "me"}).ResolveUser(root); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
}

package daemon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rein-sh/rein/execd"
)

func put(t *testing.T, r *rig, meta execd.UploadMetadata, content string) error {
	t.Helper()
	_, err := r.Upload(t.Context(), meta, strings.NewReader(content), int64(len(content)))
	return err
}

func get(t *testing.T, r *rig, d execd.DownloadRequest) (string, error) {
	t.Helper()
	f, err := r.Download(t.Context(), d)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

func hasCode(err error, code string) bool {
	e, ok := errors.AsType[*execd.Error](err)
	return ok && e.Code == code
}

func TestUploadAndDownload(t *testing.T) {
	r := serve(t, bestUser())
	name := "deep/ü nicode \"quoted\"/file\n1"
	mode := 640
	u, err := r.Upload(t.Context(), execd.UploadMetadata{Path: name, Mode: &mode}, strings.NewReader("héllo\r\n"), -1)
	if err != nil {
		t.Fatal(err)
	}
	if u.SHA256 != sum([]byte("héllo\r\n")) || u.Size != 8 || u.Mode != 640 || u.Path != filepath.Join(r.work, name) {
		t.Errorf("uploaded %+v", u)
	}
	info, err := os.Stat(filepath.Join(r.work, name))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
	if os.Geteuid() == 0 {
		for _, p := range []string{name, filepath.Dir(name)} {
			st, err := os.Stat(filepath.Join(r.work, p))
			if err != nil {
				t.Fatal(err)
			}
			if uid := st.Sys().(*syscall.Stat_t).Uid; uid != 61234 {
				t.Errorf("%s belongs to %d, not to the commands' user", p, uid)
			}
		}
	}
	if got, err := get(t, r, execd.DownloadRequest{Path: name}); err != nil || got != "héllo\r\n" {
		t.Errorf("downloaded %q, %v", got, err)
	}
	f, err := r.Download(t.Context(), execd.DownloadRequest{Path: name, Hash: true})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f.SHA256 != u.SHA256 || f.Size != 8 || f.Total != 8 {
		t.Errorf("download %+v", f)
	}
	// A second write keeps the mode unless another is asked for, and leaves
	// nothing beside the file.
	if err := put(t, r, execd.UploadMetadata{Path: name}, ""); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(r.work, name)); err != nil || info.Mode().Perm() != 0o640 || info.Size() != 0 {
		t.Errorf("after the second write: %v %v", info, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(filepath.Join(r.work, name))); err != nil || len(entries) != 1 {
		t.Errorf("left beside the file: %v %v", entries, err)
	}
}

// zeros and the like: content of any size without holding it.
type pattern struct {
	r    *rand.Rand
	left int64
}

func (p *pattern) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), p.left))
	for i := 0; i < n; i += 8 {
		v := p.r.Uint64()
		for j := i; j < min(i+8, n); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
	p.left -= int64(n)
	return n, nil
}

func TestLargeFiles(t *testing.T) {
	const size = 64 << 20 // the providers' suite has 256 MiB
	r := serve(t, bestUser())
	u, err := r.Upload(t.Context(), execd.UploadMetadata{Path: "big"}, &pattern{rand.New(rand.NewPCG(1, 2)), size}, size)
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.Download(t.Context(), execd.DownloadRequest{Path: "big", Hash: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := &pattern{rand.New(rand.NewPCG(1, 2)), size}
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	var n int64
	for {
		k, err := io.ReadFull(f, a)
		if k > 0 {
			io.ReadFull(want, b[:k])
			if !bytes.Equal(a[:k], b[:k]) {
				t.Fatalf("the content differs near byte %d", n)
			}
			n += int64(k)
		}
		if err != nil {
			break
		}
	}
	if n != size || u.Size != size || f.SHA256 != u.SHA256 {
		t.Errorf("%d of %d bytes, %+v, %s", n, size, u, f.SHA256)
	}
}

func TestRangesAndLines(t *testing.T) {
	r := serve(t, bestUser())
	const text = "one\r\ntwo\n\nfour"
	if err := put(t, r, execd.UploadMetadata{Path: "f"}, text); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		d    execd.DownloadRequest
		want string
	}{
		{execd.DownloadRequest{Offset: 2, Length: 3}, text[2:5]},
		{execd.DownloadRequest{Offset: 5}, text[5:]},
		{execd.DownloadRequest{Offset: 5, Length: 1000}, text[5:]},
		{execd.DownloadRequest{FirstLine: 1}, "one\ntwo\n\nfour"},
		{execd.DownloadRequest{FirstLine: 2, Lines: 2}, "two\n"},
		{execd.DownloadRequest{FirstLine: 4, Lines: 9}, "four"},
		{execd.DownloadRequest{Lines: 1}, "one"},
		{execd.DownloadRequest{FirstLine: 9}, ""},
	} {
		c.d.Path = "f"
		if got, err := get(t, r, c.d); err != nil || got != c.want {
			t.Errorf("%+v: %q %v, want %q", c.d, got, err, c.want)
		}
	}
	for _, c := range []struct {
		header, query string
		status        int
	}{
		{"bytes=-4", "", 206}, {"bytes=99-", "", 416}, {"bytes=5-2", "", 400}, {"lines=1-2", "", 400}, {"bytes=", "", 400},
		{"bytes=0-1", "&offset=1", 400}, {"", "&offset=0", 400}, {"", "&limit=x", 400}, {"bytes=-0", "", 416},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set("Range", c.header)
		}
		if resp := request(t, r, "GET", "/files/download?path=f"+c.query, nil, h); resp.StatusCode != c.status {
			t.Errorf("%+v: status %d", c, resp.StatusCode)
		}
	}
}

func TestConditionalWrites(t *testing.T) {
	r := serve(t, bestUser())
	rein := func(o execd.UploadOptions) execd.UploadMetadata {
		return execd.UploadMetadata{Path: "f", Rein: &o}
	}
	if err := put(t, r, rein(execd.UploadOptions{ExpectedHash: sum([]byte("x"))}), "1"); !hasCode(err, execd.CodeHashMismatch) {
		t.Errorf("expected content of a missing file: %v", err)
	}
	if err := put(t, r, rein(execd.UploadOptions{ExpectedHash: execd.HashAbsent}), "1"); err != nil {
		t.Error(err)
	}
	if err := put(t, r, rein(execd.UploadOptions{ExpectedHash: execd.HashAbsent}), "2"); !hasCode(err, execd.CodeHashMismatch) {
		t.Errorf("a file that must not exist: %v", err)
	}
	if err := put(t, r, rein(execd.UploadOptions{ExpectedHash: sum([]byte("0"))}), "2"); !hasCode(err, execd.CodeHashMismatch) {
		t.Errorf("a file that changed: %v", err)
	}
	if err := put(t, r, rein(execd.UploadOptions{SHA256: sum([]byte("0"))}), "2"); !hasCode(err, execd.CodeHashMismatch) {
		t.Errorf("an upload that was damaged: %v", err)
	}
	if got, err := get(t, r, execd.DownloadRequest{Path: "f"}); err != nil || got != "1" {
		t.Errorf("refused writes left %q %v", got, err)
	}
	if err := put(t, r, rein(execd.UploadOptions{ExpectedHash: sum([]byte("1")), SHA256: sum([]byte("2"))}), "2"); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(r.work); err != nil || len(entries) != 1 {
		t.Errorf("left beside the file: %v %v", entries, err)
	}
}

// What is no regular file is refused at once, by reads and writes.
// No path and no link leads a confined operation out of its root.
// The same while a directory keeps turning into a link to the outside.
func TestInfoListSearch(t *testing.T) {
	r := serve(t, bestUser())
	for _, p := range []string{"a.txt", "b.py", "sub/c.py", "sub/deep/d.txt"} {
		if err := put(t, r, execd.UploadMetadata{Path: p}, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub", filepath.Join(r.work, "link")); err != nil {
		t.Fatal(err)
	}
	paths := func(l []execd.FileInfo, err error) string {
		if err != nil {
			t.Error(err)
		}
		var s []string
		for _, f := range l {
			rel, err := filepath.Rel(r.work, f.Path)
			if err != nil {
				t.Error(err)
			}
			s = append(s, rel+":"+f.Type)
		}
		return strings.Join(s, " ")
	}
	for _, root := range []string{"", r.work} {
		for _, c := range []struct {
			got, want string
		}{
			{paths(r.List(t.Context(), root, r.work, 0)), ""},
			{paths(r.List(t.Context(), root, r.work, 1)), "a.txt:file b.py:file link:symlink sub:directory"},
			{paths(r.List(t.Context(), root, "sub", 2)), "sub/c.py:file sub/deep:directory sub/deep/d.txt:file"},
			{paths(r.Search(t.Context(), root, r.work, "")), "a.txt:file b.py:file link:symlink sub/c.py:file sub/deep/d.txt:file"},
			{paths(r.Search(t.Context(), root, r.work, "**/*.py")), "b.py:file sub/c.py:file"},
			{paths(r.Search(t.Context(), root, r.work, "[ab].{txt,py}")), "a.txt:file b.py:file"},
			{paths(r.Search(t.Context(), root, r.work, "sub/*.py")), ""},
		} {
			if c.got != c.want {
				t.Errorf("root %q: got %q, want %q", root, c.got, c.want)
			}
		}
		for _, bad := range []error{
			second(r.List(t.Context(), root, "link", 1)), second(r.List(t.Context(), root, "a.txt", 1)), second(r.Search(t.Context(), root, r.work, "[")),
			second(r.Search(t.Context(), root, r.work, "{a")), second(r.List(t.Context(), root, r.work, -1)),
		} {
			if !hasStatus(bad, 400) {
				t.Errorf("root %q: %v, want status 400", root, bad)
			}
		}
		if err := second(r.List(t.Context(), root, "none", 1)); !hasStatus(err, 404) {
			t.Error(err)
		}
	}
	m, err := r.Stat(t.Context(), "", "a.txt", filepath.Join(r.work, "link"))
	if err != nil {
		t.Fatal(err)
	}
	f := m["a.txt"]
	if f.Path != filepath.Join(r.work, "a.txt") || f.Mode != 755 || f.Size != 1 || f.ModifiedAt.IsZero() || f.CreatedAt.IsZero() || f.Owner == "" || f.Group == "" {
		t.Errorf("info %+v", f)
	}
	if l := m[filepath.Join(r.work, "link")]; l.Type != "symlink" || l.Target != "sub" {
		t.Errorf("link %+v", l)
	}
	if _, err := r.Stat(t.Context(), "", "a.txt", "none"); !hasCode(err, execd.CodeFileNotFound) {
		t.Errorf("%v", err)
	}
	resp := request(t, r, "GET", "/files/info?hash=1&path=a.txt", nil, nil)
	var hashed map[string]execd.FileInfo
	if err := json.NewDecoder(resp.Body).Decode(&hashed); err != nil || hashed["a.txt"].SHA256 != sum([]byte("x")) {
		t.Errorf("%+v %v", hashed, err)
	}
	// A file with holes may be longer than anything that could be read.
	hole := filepath.Join(r.work, "hole")
	if err := errors.Join(os.WriteFile(hole, nil, 0o644), os.Truncate(hole, 1<<40)); err != nil {
		t.Fatal(err)
	}
	list, err := r.ListHashed(t.Context(), "", r.work, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if (f.SHA256 == "") != (f.Path == hole || f.Type != "file") || f.Path == hole && f.Size != 1<<40 {
			t.Errorf("%+v", f)
		}
	}
	if err := put(t, r, execd.UploadMetadata{Path: hole, Rein: &execd.UploadOptions{ExpectedHash: sum(nil)}}, "x"); !hasStatus(err, 412) {
		t.Errorf("it is replaced: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestMoveRemovePermissionsReplace(t *testing.T) {
	r := serve(t, bestUser())
	ctx := t.Context()
	for _, p := range []string{"a", "b", "d/x"} {
		if err := put(t, r, execd.UploadMetadata{Path: p}, "foo bar foo"); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, err error, status int) {
		t.Helper()
		if status == 0 && err != nil || status != 0 && !hasStatus(err, status) {
			t.Errorf("%s: %v, want status %d", what, err, status)
		}
	}
	for _, root := range []string{"", r.work} {
		check("move to new parents", r.Move(ctx, root, execd.Move{Src: "a", Dest: "new/parents/a"}), 0)
		check("move of nothing", r.Move(ctx, root, execd.Move{Src: "a", Dest: "z"}), 404)
		check("move onto a file", r.Move(ctx, root, execd.Move{Src: "b", Dest: "new/parents/a"}), 409)
		check("move back", r.Move(ctx, root, execd.Move{Src: "new/parents/a", Dest: "a"}), 0)
		check("chmod", r.Permissions(ctx, root, map[string]execd.Permission{"a": {Mode: 600}}), 0)
		check("chmod of nothing", r.Permissions(ctx, root, map[string]execd.Permission{"z": {Mode: 600}}), 404)
		check("mode 999", r.Permissions(ctx, root, map[string]execd.Permission{"a": {Mode: 999}}), 400)
		check("unknown owner", r.Permissions(ctx, root, map[string]execd.Permission{"a": {Owner: "no-such-user"}}), 400)
		check("remove a directory as a file", r.Remove(ctx, root, "d"), 409)
		check("remove a file as a directory", r.RemoveAll(ctx, root, "a"), 409)
		check("remove nothing", r.Remove(ctx, root, "z"), 0)
		check("remove no directory", r.RemoveAll(ctx, root, "z"), 0)
		check("mkdir", r.Mkdir(ctx, root, map[string]execd.Permission{"m/n": {Mode: 700}}), 0)
		check("mkdir again", r.Mkdir(ctx, root, map[string]execd.Permission{"m/n": {Mode: 755}}), 0)
		check("mkdir over a file", r.Mkdir(ctx, root, map[string]execd.Permission{"a": {}}), 409)
		m, err := r.Stat(ctx, root, "a", "m/n")
		if err != nil || m["a"].Mode != 600 || m["m/n"].Mode != 700 || m["m/n"].Type != "directory" {
			t.Errorf("%+v %v", m, err)
		}
		counts, err := r.Replace(ctx, root, map[string]execd.Replace{"b": {Old: "foo", New: "x"}, "a": {Old: "none", New: ""}})
		if err != nil || counts["b"].Count != 2 || counts["a"].Count != 0 {
			t.Errorf("%+v %v", counts, err)
		}
		check("replace nothing by nothing", second(r.Replace(ctx, root, map[string]execd.Replace{"b": {}})), 400)
		check("replace in nothing", second(r.Replace(ctx, root, map[string]execd.Replace{"a": {Old: "f"}, "z": {Old: "a"}})), 404)
		if got, err := get(t, r, execd.DownloadRequest{Path: "b"}); err != nil || got != "x bar x" {
			t.Errorf("%q %v", got, err)
		}
		if got, err := get(t, r, execd.DownloadRequest{Path: "a"}); err != nil || got != "foo bar foo" {
			t.Errorf("a refused batch changed a file: %q %v", got, err)
		}
		check("put b back", put(t, r, execd.UploadMetadata{Path: "b"}, "foo bar foo"), 0)
		check("remove all", r.RemoveAll(ctx, root, "m", "new"), 0)
	}
	check("remove the root", r.RemoveAll(ctx, r.work, "."), 403)
	check("remove everything", r.RemoveAll(ctx, "", "/"), 403)
}

// An upload as the Python SDK makes it: many pairs in one request; and requests
// that are not what they should be.
func TestUploadForms(t *testing.T) {
	r := serve(t, bestUser())
	type part struct{ field, content string }
	send := func(parts ...part) *http.Response {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for _, p := range parts {
			f, err := w.CreateFormFile(p.field, "name")
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(f, p.content)
		}
		w.Close()
		return request(t, r, "POST", "/files/upload", &b, http.Header{"Content-Type": {w.FormDataContentType()}})
	}
	resp := send(part{"metadata", `{"path":"p1","owner":null,"group":null,"mode":null}`}, part{"file", "1"}, part{"metadata", `{"path":"p2","mode":644}`}, part{"file", "2"})
	if b, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || len(b) != 0 || err != nil {
		t.Errorf("status %d, body %q, %v", resp.StatusCode, b, err)
	}
	if m, err := r.Stat(t.Context(), "", "p1", "p2"); err != nil || m["p1"].Mode != 755 || m["p2"].Mode != 644 {
		t.Errorf("%+v %v", m, err)
	}
	wantError(t, "no file", send(part{"metadata", `{"path":"x"}`}), 400, execd.CodeInvalidContent)
	wantError(t, "no metadata", send(part{"file", "x"}), 400, execd.CodeInvalidMetadata)
	wantError(t, "more metadata", send(part{"metadata", `{"path":"x"}`}, part{"metadata", `{"path":"y"}`}, part{"file", "x"}), 400, execd.CodeInvalidFile)
	wantError(t, "bad metadata", send(part{"metadata", `{"path":`}, part{"file", "x"}), 400, execd.CodeInvalidMetadata)
	wantError(t, "bad mode", send(part{"metadata", `{"path":"x","mode":888}`}, part{"file", "x"}), 400, execd.CodeInvalidMetadata)
	wantError(t, "bad owner", send(part{"metadata", `{"path":"x","owner":"no-such-user"}`}, part{"file", "x"}), 400, execd.CodeInvalidMetadata)
	wantError(t, "nothing", send(), 400, execd.CodeInvalidMetadata)
	wantError(t, "not multipart", request(t, r, "POST", "/files/upload", strings.NewReader("x"), nil), 400, execd.CodeInvalidFile)
	// An upload that is cut off leaves the file as it was.
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	f, _ := w.CreateFormFile("metadata", "m")
	io.WriteString(f, `{"path":"p1"}`)
	f, _ = w.CreateFormFile("file", "f")
	io.WriteString(f, "half of it")
	wantError(t, "cut off", request(t, r, "POST", "/files/upload", &b, http.Header{"Content-Type": {w.FormDataContentType()}}), 400, execd.CodeInvalidContent)
	if got, err := get(t, r, execd.DownloadRequest{Path: "p1"}); err != nil || got != "1" {
		t.Errorf("%q %v", got, err)
	}
	if err := second(r.Stat(t.Context(), "", url.QueryEscape("none"))); !hasStatus(err, 404) {
		t.Error(err)
	}
}

// With a root of its own the whole API stays in it, also for plain clients.

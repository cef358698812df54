package sandboxtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

func fileCases() []Case {
	files, both := caps(sandbox.CapFiles), caps(sandbox.CapFiles, sandbox.CapExec)
	exact := caps(sandbox.CapFiles, sandbox.CapConfine)
	rows := []Case{
		{Name: "files/write, read, replace", Needs: files, run: writeRead},
		{Name: "files/mode", Needs: files, run: fileMode},
		{Name: "files/shared with commands", Needs: both, run: filesAndCommands},
		{Name: "files/parents made", Needs: files, run: parents},
		{Name: "files/relative path", Needs: files, run: relativePath},
		{Name: "files/expected hash", Needs: exact, run: expectedHash},
		{Name: "files/failed upload changes nothing", Needs: files, breaks: true, run: failedUpload},
		{Name: "files/by lines", Needs: exact, run: byLines},
		{Name: "files/by bytes", Needs: files, run: byBytes},
		{Name: "files/bounded read", Needs: files, run: boundedRead},
		{Name: "files/missing", Needs: files, run: missingFile},
		{Name: "files/directory is no file", Needs: exact, run: directoryIsNoFile},
		{Name: "files/FIFO, device, socket refused", Needs: append(caps(sandbox.CapProcesses, sandbox.CapConfine), both...),
			Programs: []string{"mkfifo", "perl"}, run: specialFiles},
		{Name: "files/without a size", Needs: append(caps(sandbox.CapProcesses, sandbox.CapExec), exact...), run: unsizedFile},
		{Name: "files/list", Needs: files, run: list},
		{Name: "files/search", Needs: files, run: search},
		{Name: "files/mkdir", Needs: files, run: makeDirs},
		{Name: "files/remove", Needs: both, run: remove},
		{Name: "files/move", Needs: files, run: move},
		{Name: "files/at once", Needs: exact, run: filesAtOnce},
	}
	for _, size := range []int64{0, 1, 4096, 1<<20 + 1, 32 << 20, 256 << 20} {
		rows = append(rows, Case{Name: fmt.Sprintf("files/%d bytes up and down", size), Needs: files,
			fresh: size > 1<<21, run: func(e *env) { upDown(e, size) }})
	}
	return rows
}

func (e *env) write(name, content string, o sandbox.WriteOptions) error {
	_, err := e.WriteFile(e.Context(), e.dir+"/"+name, []byte(content), o)
	return err
}

func writeRead(e *env) {
	for _, content := range []string{"first", "", "longer than before\r\n\x00\xff", "last"} {
		tr, err := e.WriteFile(e.Context(), e.dir+"/file", []byte(content), sandbox.WriteOptions{})
		e.must(err)
		e.equal("bytes", tr.Bytes, int64(len(content)))
		sum := sha256.Sum256([]byte(content))
		e.equal("hash", tr.SHA256, hex.EncodeToString(sum[:]))
		e.equal("content", e.get(e.dir+"/file"), content)
	}
}

// unsizedFile reads a file that the kernel makes as it is read, whose size is 0.
func unsizedFile(e *env) {
	const name = "/proc/sys/kernel/ostype"
	want := e.sh("cat " + name) // gVisor's has no newline
	e.equal("system", strings.TrimSpace(want), "Linux")
	e.equal("content", e.get(name), want)
	c, err := e.ReadFile(e.Context(), name, sandbox.ReadOptions{Offset: 2, Max: 2})
	e.must(err)
	e.equal("part", string(c.Data), "nu")
	var b bytes.Buffer
	tr, err := e.Download(e.Context(), name, &b, sandbox.Access{})
	e.must(err)
	sum := sha256.Sum256([]byte(want))
	e.equal("downloaded", b.String(), want)
	e.equal("hash", tr.SHA256, hex.EncodeToString(sum[:]))
}

func fileMode(e *env) {
	mode := func() int {
		info, err := e.Stat(e.Context(), e.dir+"/file", sandbox.Access{})
		e.must(err)
		e.equal("type", info.Type, "file")
		return info.Mode
	}
	e.must(e.write("file", "a", sandbox.WriteOptions{}))
	e.equal("default mode", mode(), 644)
	e.must(e.write("file", "b", sandbox.WriteOptions{Mode: 0o750}))
	e.equal("mode given", mode(), 750)
	e.must(e.write("file", "c", sandbox.WriteOptions{}))
	e.equal("mode kept", mode(), 750)
}

func filesAndCommands(e *env) {
	e.put("file", "from the host\n")
	e.sh("echo from a command >> file; mkdir made; echo x > made/inner; chmod 600 made/inner")
	e.equal("content", e.get(e.dir+"/file"), "from the host\nfrom a command\n")
	e.equal("content", e.get(e.dir+"/made/inner"), "x\n")
	e.must(e.write("made/inner", "y\n", sandbox.WriteOptions{}))
	e.equal("content", e.sh("cat made/inner; rm -r made file; ls"), "y\n")
}

func parents(e *env) {
	e.must(e.write("a/b/c/file", "deep", sandbox.WriteOptions{}))
	e.equal("content", e.get(e.dir+"/a/b/c/file"), "deep")
	info, err := e.Stat(e.Context(), e.dir+"/a/b", sandbox.Access{})
	e.must(err)
	e.equal("type", info.Type, "directory")
}

func relativePath(e *env) {
	name := "relative" + e.dir[5:]
	_, err := e.WriteFile(e.Context(), name, []byte("x"), sandbox.WriteOptions{})
	e.must(err)
	e.equal("content", e.get(e.Info().Cwd+"/"+name), "x")
	e.must(e.Remove(e.Context(), name, sandbox.Access{}))
}

func expectedHash(e *env) {
	of := func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }
	e.wantKind(e.write("file", "x", sandbox.WriteOptions{ExpectedHash: of("old")}), sandbox.KindConflict, sandbox.KindNotFound)
	e.must(e.write("file", "old", sandbox.WriteOptions{ExpectedHash: sandbox.ExpectAbsent}))
	e.wantKind(e.write("file", "new", sandbox.WriteOptions{ExpectedHash: sandbox.ExpectAbsent}), sandbox.KindConflict)
	e.wantKind(e.write("file", "new", sandbox.WriteOptions{ExpectedHash: of("other")}), sandbox.KindConflict)
	e.equal("content", e.get(e.dir+"/file"), "old")
	e.must(e.write("file", "new", sandbox.WriteOptions{ExpectedHash: of("old")}))
	e.equal("content", e.get(e.dir+"/file"), "new")
	e.wantKind(e.write("file", "x", sandbox.WriteOptions{ExpectedHash: "no hash"}), sandbox.KindInvalid)
}

var errReader = errors.New("the reader failed")

func failedUpload(e *env) {
	e.put("file", "old")
	broken := io.MultiReader(bytes.NewReader(noise(1, 1<<20)), &failing{})
	if _, err := e.Upload(e.Context(), e.dir+"/file", broken, sandbox.WriteOptions{}); !errors.Is(err, errReader) {
		e.Errorf("error %v, want the reader's", err)
	}
	e.equal("content", e.get(e.dir+"/file"), "old")
	e.eventually(5*time.Second, "nothing of the upload is left", func() bool {
		infos, err := e.List(e.Context(), e.dir, 1, sandbox.Access{})
		e.must(err)
		return len(infos) == 1
	})
}

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, errReader }

func byLines(e *env) {
	p := e.put("file", "one\r\ntwo\nthree\n\nfive")
	for _, c := range []struct {
		line, lines int64
		want        string
	}{
		{1, 0, "one\r\ntwo\nthree\n\nfive"}, {1, 1, "one\r\n"}, {2, 2, "two\nthree\n"}, {4, 1, "\n"}, {5, 9, "five"}, {6, 1, ""}, {0, 2, "one\r\ntwo\n"},
	} {
		got, err := e.ReadFile(e.Context(), p, sandbox.ReadOptions{Line: c.line, Lines: c.lines})
		e.must(err)
		e.equal(fmt.Sprintf("%d lines from %d", c.lines, c.line), string(got.Data), c.want)
	}
	_, err := e.ReadFile(e.Context(), p, sandbox.ReadOptions{Line: 1, Offset: 1})
	e.wantKind(err, sandbox.KindInvalid)
	_, err = e.ReadFile(e.Context(), p, sandbox.ReadOptions{Line: -1})
	e.wantKind(err, sandbox.KindInvalid)
}

func byBytes(e *env) {
	p := e.put("file", "0123456789")
	for _, c := range []struct {
		offset, max int64
		want        string
		truncated   bool
	}{
		{0, 0, "0123456789", false}, {3, 0, "3456789", false}, {3, 4, "3456", true}, {9, 1, "9", false}, {10, 5, "", false}, {99, 5, "", false},
	} {
		got, err := e.ReadFile(e.Context(), p, sandbox.ReadOptions{Offset: c.offset, Max: c.max})
		e.must(err)
		e.equal(fmt.Sprintf("from %d at most %d", c.offset, c.max), string(got.Data), c.want)
		e.equal("truncated", got.Truncated, c.truncated)
		e.equal("size", got.Size, int64(10))
	}
}

func boundedRead(e *env) {
	p := e.put("file", strings.Repeat("x", 3<<20))
	got, err := e.ReadFile(e.Context(), p, sandbox.ReadOptions{})
	e.must(err)
	e.equal("bytes", len(got.Data), sandbox.MaxRead)
	e.equal("truncated", got.Truncated, true)
	e.equal("size", got.Size, int64(3<<20))
	got, err = e.ReadFile(e.Context(), p, sandbox.ReadOptions{Line: 1, Lines: 1, Max: 100})
	e.must(err)
	e.equal("bytes of a long line", len(got.Data), 100)
	e.equal("truncated", got.Truncated, true)
}

func missingFile(e *env) {
	p, none := e.dir+"/missing", sandbox.Access{}
	_, err := e.ReadFile(e.Context(), p, sandbox.ReadOptions{})
	e.wantKind(err, sandbox.KindNotFound)
	_, err = e.Stat(e.Context(), p, none)
	e.wantKind(err, sandbox.KindNotFound)
	_, err = e.List(e.Context(), p, 1, none)
	e.wantKind(err, sandbox.KindNotFound)
	_, err = e.Download(e.Context(), p, io.Discard, none)
	e.wantKind(err, sandbox.KindNotFound)
	e.wantKind(e.Move(e.Context(), p, e.dir+"/x", none), sandbox.KindNotFound)
	e.must(e.Remove(e.Context(), p, none))
}

func directoryIsNoFile(e *env) {
	_, err := e.ReadFile(e.Context(), e.dir, sandbox.ReadOptions{})
	e.wantKind(err, sandbox.KindInvalid)
	_, err = e.Download(e.Context(), e.dir, io.Discard, sandbox.Access{})
	e.wantKind(err, sandbox.KindInvalid)
	e.must(e.write("dir/file", "x", sandbox.WriteOptions{}))
	if err := e.write("dir", "x", sandbox.WriteOptions{}); err == nil {
		e.Error("a directory was written as a file")
	}
	e.equal("content", e.get(e.dir+"/dir/file"), "x")
	file := e.put("plain", "")
	_, err = e.List(e.Context(), file, 1, sandbox.Access{})
	e.wantKind(err, sandbox.KindInvalid)
}

func specialFiles(e *env) {
	e.sh(`mkfifo fifo; ln -s fifo link; perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un("sock")) or die'`)
	for _, p := range []string{e.dir + "/fifo", e.dir + "/link", e.dir + "/sock", "/dev/zero", "/dev/null"} {
		e.within(2*time.Second, func() {
			_, err := e.ReadFile(e.Context(), p, sandbox.ReadOptions{Max: 10})
			e.wantKind(err, sandbox.KindInvalid, sandbox.KindDenied)
			_, err = e.Download(e.Context(), p, io.Discard, sandbox.Access{})
			e.wantKind(err, sandbox.KindInvalid, sandbox.KindDenied)
		})
	}
	info, err := e.Stat(e.Context(), e.dir+"/fifo", sandbox.Access{})
	e.must(err)
	e.equal("type", info.Type, "other")
	e.within(2*time.Second, func() { // replaced or refused, but never opened
		_ = e.write("fifo", "x", sandbox.WriteOptions{})
	})
	e.equal("the sandbox answers", e.sh("echo yes"), "yes\n")
}

func list(e *env) {
	for _, name := range []string{"b", "a/2", "a/1", "a/deep/x"} {
		e.must(e.write(name, name, sandbox.WriteOptions{}))
	}
	for depth, want := range map[int]string{
		1: "a directory,b file", 2: "a directory,a/1 file,a/2 file,a/deep directory,b file",
		9: "a directory,a/1 file,a/2 file,a/deep directory,a/deep/x file,b file",
	} {
		infos, err := e.List(e.Context(), e.dir, depth, sandbox.Access{})
		e.must(err)
		var got []string
		for _, i := range infos {
			got = append(got, strings.TrimPrefix(i.Path, e.dir+"/")+" "+i.Type)
		}
		e.equal(fmt.Sprint("listing of depth ", depth), strings.Join(got, ","), want)
	}
	info, err := e.Stat(e.Context(), e.dir+"/a/deep/x", sandbox.Access{})
	e.must(err)
	e.equal("size", info.Size, int64(8))
	if age := time.Since(info.ModifiedAt); age < -time.Minute || age > time.Minute {
		e.Errorf("modified at %v", info.ModifiedAt)
	}
}

func search(e *env) {
	for _, name := range []string{"x.txt", "y.go", "deep/z.txt"} {
		e.must(e.write(name, "", sandbox.WriteOptions{}))
	}
	infos, err := e.Search(e.Context(), e.dir, "*.txt", sandbox.Access{})
	e.must(err)
	e.equal("found", len(infos), 2)
	_, err = e.Search(e.Context(), e.dir, "[", sandbox.Access{})
	e.wantKind(err, sandbox.KindInvalid)
}

func makeDirs(e *env) {
	p, none := e.dir+"/a/b", sandbox.Access{}
	for range 2 {
		e.must(e.Mkdir(e.Context(), p, 0o750, none))
	}
	info, err := e.Stat(e.Context(), p, none)
	e.must(err)
	e.equal("mode", info.Mode, 750)
	file := e.put("file", "kept")
	e.wantKind(e.Mkdir(e.Context(), file, 0o755, none), sandbox.KindConflict, sandbox.KindInvalid)
	e.equal("content", e.get(file), "kept")
}

func remove(e *env) {
	e.must(e.write("dir/deep/file", "x", sandbox.WriteOptions{}))
	e.must(e.write("kept/file", "x", sandbox.WriteOptions{}))
	e.sh("ln -s ../kept dir/link; ln -s kept/file filelink")
	for _, name := range []string{"filelink", "dir"} {
		e.must(e.Remove(e.Context(), e.dir+"/"+name, sandbox.Access{}))
	}
	e.equal("content", e.get(e.dir+"/kept/file"), "x")
	infos, err := e.List(e.Context(), e.dir, 1, sandbox.Access{})
	e.must(err)
	e.equal("left", len(infos), 1)
}

func move(e *env) {
	from, to, none := e.put("from", "x"), e.dir+"/sub/to", sandbox.Access{}
	e.must(e.Move(e.Context(), from, to, none))
	e.equal("content", e.get(to), "x")
	_, err := e.Stat(e.Context(), from, none)
	e.wantKind(err, sandbox.KindNotFound)
	other := e.put("other", "y")
	e.wantKind(e.Move(e.Context(), other, to, none), sandbox.KindConflict)
	e.equal("content", e.get(to)+e.get(other), "xy")
}

func filesAtOnce(e *env) {
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			content := noise(uint64(i), 1<<16)
			p := fmt.Sprintf("%s/%d", e.dir, i%4) // four writers a file
			if _, err := e.WriteFile(e.Context(), p, content, sandbox.WriteOptions{}); err != nil {
				e.Error(err)
			}
			if c, err := e.ReadFile(e.Context(), p, sandbox.ReadOptions{}); err != nil || len(c.Data) != 1<<16 {
				e.Errorf("a read beside writes: %d bytes, %v", len(c.Data), err)
			}
		})
	}
	wg.Wait()
	for i := range 4 {
		got, whole := e.get(fmt.Sprintf("%s/%d", e.dir, i)), false
		for j := i; j < 16; j += 4 {
			whole = whole || got == string(noise(uint64(j), 1<<16))
		}
		e.equal("file of one writer", whole, true)
	}
}

func upDown(e *env, size int64) {
	sum := sha256.New()
	src := io.TeeReader(io.LimitReader(stream(size), size), sum)
	tr, err := e.Upload(e.Context(), e.dir+"/big", src, sandbox.WriteOptions{})
	e.must(err)
	want := hex.EncodeToString(sum.Sum(nil))
	e.equal("bytes up", tr.Bytes, size)
	e.equal("hash up", tr.SHA256, want)
	back := sha256.New()
	tr, err = e.Download(e.Context(), e.dir+"/big", back, sandbox.Access{})
	e.must(err)
	e.equal("bytes down", tr.Bytes, size)
	e.equal("hash of what arrived", hex.EncodeToString(back.Sum(nil)), want)
	e.equal("hash down", tr.SHA256, want)
	if e.suite.report.Has(sandbox.CapExec) {
		e.equal("hash inside", strings.Fields(e.sh("sha256sum big; rm big"))[0], want)
	}
}

// stream is endless noise that depends on seed alone.
func stream(seed int64) io.Reader {
	return rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
}

package sandboxtest

import (
	"bytes"
	"strings"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// confineCases show that nothing leads a file operation out of its root.
func confineCases() []Case {
	both := caps(sandbox.CapFiles, sandbox.CapExec, sandbox.CapConfine)
	return []Case{
		{Name: "confine/inside works", Needs: both, run: confinedWorks},
		{Name: "confine/dot dot", Needs: both, run: dotDot},
		{Name: "confine/symbolic links", Needs: both, run: linksOut},
		{Name: "confine/links swapped while reading", Needs: both, run: func(e *env) { swapped(e, swapRead) }},
		{Name: "confine/links swapped while writing", Needs: both, run: func(e *env) { swapped(e, swapWrite) }},
		{Name: "confine/links swapped while removing", Needs: both, run: func(e *env) { swapped(e, swapRemove) }},
		{Name: "confine/root that is a link", Needs: both, run: rootIsLink},
	}
}

// inside makes root with a file and outside with another, and returns the
// access to root.
func (e *env) inside() sandbox.Access {
	e.Helper()
	e.sh("mkdir -p root/sub outside/dir; echo in > root/file; echo out > outside/file; echo out > outside/dir/file")
	return sandbox.Access{Root: e.dir + "/root"}
}

// untouched fails when anything outside the root was changed.
func (e *env) untouched() {
	e.Helper()
	e.equal("content outside", e.sh("cat outside/file outside/dir/file"), "out\nout\n")
	e.equal("names outside", strings.Join(strings.Fields(e.sh("ls outside; ls outside/dir")), " "), "dir file file")
}

func confinedWorks(e *env) {
	a := e.inside()
	root := a.Root
	e.sh("ln -s file root/link; ln -s sub root/dirlink; ln -s ../file root/sub/up")
	for _, name := range []string{"/file", "/link", "/sub/../file", "/dirlink/up"} {
		c, err := e.ReadFile(e.Context(), root+name, sandbox.ReadOptions{Access: a})
		if err != nil || string(c.Data) != "in\n" {
			e.Errorf("read %s: %q, %v", name, c.Data, err)
		}
	}
	_, err := e.WriteFile(e.Context(), root+"/new/file", []byte("x"), sandbox.WriteOptions{Access: a})
	e.must(err)
	infos, err := e.List(e.Context(), root, 1, a)
	e.must(err)
	e.equal("entries", len(infos), 5)
	e.must(e.Mkdir(e.Context(), root+"/made", 0o755, a))
	e.must(e.Move(e.Context(), root+"/made", root+"/moved", a))
	e.must(e.Remove(e.Context(), root+"/moved", a))
}

// everyWay tries every operation on a path that lies outside.
func (e *env) everyWay(p string, a sandbox.Access) {
	e.Helper()
	ctx := e.Context()
	var out bytes.Buffer
	_, read := e.ReadFile(ctx, p, sandbox.ReadOptions{Access: a})
	_, down := e.Download(ctx, p, &out, a)
	_, write := e.WriteFile(ctx, p, []byte("evil"), sandbox.WriteOptions{Access: a})
	_, up := e.Upload(ctx, p, strings.NewReader("evil"), sandbox.WriteOptions{Access: a})
	for op, err := range map[string]error{
		"read": read, "download": down, "write": write, "upload": up,
		"mkdir": e.Mkdir(ctx, p+"/made", 0o755, a), "move out": e.Move(ctx, a.Root+"/file", p+"-moved", a),
		"move in": e.Move(ctx, p, a.Root+"/stolen", a),
	} {
		if err == nil {
			e.Errorf("%s of %s went outside", op, p)
			continue
		}
		switch kind := sandbox.KindOf(err); kind {
		case sandbox.KindDenied, sandbox.KindInvalid, sandbox.KindNotFound, sandbox.KindConflict:
		default:
			e.Errorf("%s of %s: error %v of kind %q", op, p, err, kind)
		}
	}
	if out.Len() > 0 {
		e.Errorf("a download of %s gave %q", p, out.String())
	}
}

func dotDot(e *env) {
	a := e.inside()
	for _, p := range []string{
		"/../outside/file", "/sub/../../outside/file", "/./../outside/file", "/sub/../..//outside/file",
	} {
		e.everyWay(a.Root+p, a)
	}
	for _, p := range []string{e.dir + "/outside/file", "/etc/passwd", "../../../../etc/passwd", e.dir + "/root-other"} {
		_, err := e.ReadFile(e.Context(), p, sandbox.ReadOptions{Access: a})
		e.wantKind(err, sandbox.KindDenied)
	}
	_ = e.Remove(e.Context(), a.Root+"/../outside/file", a)
	e.untouched()
	e.equal("inside", e.sh("cat root/file"), "in\n")
}

func linksOut(e *env) {
	a := e.inside()
	e.sh(`ln -s ../outside/file root/f; ln -s ../outside root/d; ln -s "$PWD/outside/file" root/af
		ln -s "$PWD/outside" root/ad; ln -s d/dir root/chain; ln -s ../.. root/sub/up`)
	for _, p := range []string{"/d/file", "/ad/file", "/d/dir/file", "/chain/file", "/sub/up/outside/file"} {
		e.everyWay(a.Root+p, a)
	}
	for _, p := range []string{"/f", "/af", "/chain", "/d", "/ad"} {
		_, err := e.ReadFile(e.Context(), a.Root+p, sandbox.ReadOptions{Access: a})
		e.wantKind(err, sandbox.KindDenied)
		// Writing replaces the link or is refused; it never follows it.
		_, _ = e.WriteFile(e.Context(), a.Root+p, []byte("evil"), sandbox.WriteOptions{Access: a})
		e.untouched()
	}
	e.sh(`rm -f root/d; ln -s ../outside root/d`)
	for _, p := range []string{"/d/file", "/d/dir", "/sub/up/outside/dir"} {
		_ = e.Remove(e.Context(), a.Root+p, a)
	}
	if _, err := e.List(e.Context(), a.Root+"/d", 1, a); err == nil {
		e.Error("a link to a directory outside was listed")
	}
	infos, err := e.List(e.Context(), a.Root, 9, a)
	e.must(err)
	for _, i := range infos {
		if strings.Contains(strings.TrimPrefix(i.Path, a.Root+"/"), "/dir") {
			e.Errorf("listing followed a link to %s", i.Path)
		}
	}
	e.must(e.Remove(e.Context(), a.Root, sandbox.Access{})) // a tree full of links out
	e.untouched()
}

// swapped runs an operation again and again while a command swaps a directory
// of the path for a link that leads outside.
func swapped(e *env, op func(*env, sandbox.Access)) {
	a := e.inside()
	e.sh("mkdir -p root/real; echo in > root/real/file")
	id := e.id("swap")
	done := make(chan error, 1)
	go func() {
		_, err := e.Sandbox.Run(e.Context(), sandbox.Command{CallID: id, Cwd: e.dir + "/root", Timeout: e.scale(5 * time.Second),
			Shell: "touch ../started; while :; do ln -sfn real link; ln -sfn ../outside link; done"})
		done <- err
	}()
	if !e.appears("started") {
		e.FailNow()
	}
	for deadline := time.Now().Add(1500 * time.Millisecond); time.Now().Before(deadline) && !e.Failed(); {
		op(e, a)
	}
	e.must(e.Interrupt(e.Context(), id))
	e.must(<-done)
	e.untouched()
}

func swapRead(e *env, a sandbox.Access) {
	c, err := e.ReadFile(e.Context(), a.Root+"/link/file", sandbox.ReadOptions{Access: a})
	if err == nil && string(c.Data) != "in\n" {
		e.Errorf("read %q", c.Data)
	}
}

func swapWrite(e *env, a sandbox.Access) {
	_, _ = e.WriteFile(e.Context(), a.Root+"/link/file", []byte("in\n"), sandbox.WriteOptions{Access: a})
	_ = e.Mkdir(e.Context(), a.Root+"/link/made", 0o755, a)
}

func swapRemove(e *env, a sandbox.Access) {
	_ = e.Remove(e.Context(), a.Root+"/link/file", a)
	_ = e.Remove(e.Context(), a.Root+"/link/dir", a)
	_ = e.Move(e.Context(), a.Root+"/link/file", a.Root+"/sub/stolen", a)
	if c, err := e.ReadFile(e.Context(), a.Root+"/sub/stolen", sandbox.ReadOptions{Access: a}); err == nil && string(c.Data) == "out\n" {
		e.Error("a file from outside was moved in")
	}
}

// rootIsLink: a root is what host configuration names, so it may be a link
// itself; what is beneath it may not lead out of the directory it names.
func rootIsLink(e *env) {
	a := e.inside()
	e.sh("ln -s root alias")
	a.Root = e.dir + "/alias"
	c, err := e.ReadFile(e.Context(), a.Root+"/file", sandbox.ReadOptions{Access: a})
	if err == nil {
		e.equal("content", string(c.Data), "in\n")
	} else {
		e.wantKind(err, sandbox.KindDenied) // refusing such a root is fine too
	}
	_, err = e.ReadFile(e.Context(), a.Root+"/../outside/file", sandbox.ReadOptions{Access: a})
	e.wantKind(err, sandbox.KindDenied)
	e.untouched()
}

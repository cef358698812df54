package sandbox_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/sandbox"
)

// A file whose name is not UTF-8 can be described, read and removed, and none
// is made under another name than the one given.
func TestNamesOfBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	ctx, none := t.Context(), sandbox.Access{}
	r, err := f.Run(ctx, sandbox.Command{Shell: `mkdir d; echo raw > $'d/b\xffd'; echo else > $'d/b\ufffdd'`})
	if err != nil || !r.OK() {
		t.Fatalf("result %+v, error %v", r, err)
	}
	const name = "d/b\xffd"
	if info, err := f.Stat(ctx, name, none); err != nil || info.Type != "file" || !strings.HasSuffix(info.Path, "/"+name) || info.Size != 4 {
		t.Errorf("described as %+v, %v", info, err)
	}
	for part, o := range map[string]sandbox.ReadOptions{"raw\n": {}, "": {Offset: 100}, "raw": {Max: 3}, "raw\n ": {Line: 1}} {
		if c, err := f.ReadFile(ctx, name, o); err != nil || string(c.Data) != strings.TrimSuffix(part, " ") || c.Size != 4 {
			t.Errorf("read as %q of %d bytes, %v", c.Data, c.Size, err)
		}
	}
	for op, err := range map[string]error{
		"write": second(f.WriteFile(ctx, name, nil, sandbox.WriteOptions{})),
		"mkdir": f.Mkdir(ctx, name, 0, none),
		"move":  f.Move(ctx, "d", name, none),
		"links": second(f.Links(ctx, name, sandbox.Access{Root: f.Info().Cwd})),
		"batch": f.UploadAll(ctx, "d", []sandbox.Source{{Path: name, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("")), nil
		}}}, none),
	} {
		if sandbox.KindOf(err) != sandbox.KindInvalid {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := f.Remove(ctx, name, none); err != nil {
		t.Error(err)
	}
	if list, err := f.List(ctx, "d", 1, none); err != nil || len(list) != 1 || list[0].Size != 5 {
		t.Errorf("left are %+v, %v", list, err)
	}
}

func second[T any](_ T, err error) error { return err }

// Every source is hashed by UploadAll or by its reader, and what arrived is
// compared with that.
func TestUploadAllHashes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	const text = "content"
	sum := sha256.Sum256([]byte(text))
	asked := 0
	source := func(name, hash string) sandbox.Source {
		s := sandbox.Source{Path: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
		if hash != "" {
			s.SHA256 = func() string { asked++; return hash }
		}
		return s
	}
	right, wrong := hex.EncodeToString(sum[:]), strings.Repeat("0", 64)
	if err := f.UploadAll(t.Context(), ".", []sandbox.Source{source("a", ""), source("b", right)}, sandbox.Access{}); err != nil || asked != 1 {
		t.Errorf("error %v; the hash was asked for %d times", err, asked)
	}
	if _, o := last[sandbox.FileOutcome](t, f, audit.KindFileOutcome); o.Bytes != int64(2*len(text)) || o.Entries != 2 {
		t.Errorf("outcome %+v", o)
	}
	if err := f.UploadAll(t.Context(), ".", []sandbox.Source{source("c", wrong)}, sandbox.Access{}); sandbox.KindOf(err) != sandbox.KindInternal {
		t.Errorf("another hash than the content's: %v", err)
	}
	broken := errors.New("the disk is broken")
	for name, open := range map[string]func() (io.ReadCloser, error){
		"open": func() (io.ReadCloser, error) { return nil, broken },
		"read": func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(make([]byte, 100)), failing{broken})), nil
		},
	} {
		err := f.UploadAll(t.Context(), ".", []sandbox.Source{source("d", ""), {Path: "e", Open: open}}, sandbox.Access{})
		if e, ok := errors.AsType[*sandbox.Error](err); !ok || !errors.Is(err, broken) || e.Kind != sandbox.KindHost || e.Subject != "e" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

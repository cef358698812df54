package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/rein-sh/rein/evidence"
	"github.com/rein-sh/rein/sandbox"
)

// file says in a sentence what a file is not, and nothing when it is all that is
// asked for. The file is read over the sandbox's link, confined to the
// directory it is in: no link leads out of that.
func (c *court) file(ctx context.Context, f *FileCheck) (string, error) {
	full, root := path.Clean(f.Path), "/"
	if !path.IsAbs(f.Path) {
		root = c.box.Info().Cwd
		full = path.Join(root, f.Path)
	}
	info, err := c.box.Stat(ctx, full, access(root))
	switch {
	case sandbox.KindOf(err) == sandbox.KindNotFound:
		if f.Absent {
			return "", nil
		}
		return f.Path + " is not there", nil
	case sandbox.KindOf(err) == sandbox.KindDenied || sandbox.KindOf(err) == sandbox.KindConflict:
		return f.Path + " cannot be looked at: " + err.Error(), nil // what the worker made of it
	case err != nil:
		return "", err
	case f.Absent:
		return f.Path + " is there", nil
	case info.Type != "file":
		return f.Path + " is no regular file", nil
	case info.Size < f.MinBytes:
		return fmt.Sprintf("%s has %d bytes, fewer than %d", f.Path, info.Size, f.MinBytes), nil
	case f.MaxBytes > 0 && info.Size > f.MaxBytes:
		return fmt.Sprintf("%s has %d bytes, more than %d", f.Path, info.Size, f.MaxBytes), nil
	case !f.reads():
		return "", nil
	}
	return c.content(ctx, f, full, root)
}

// content judges what is in the file.
func (c *court) content(ctx context.Context, f *FileCheck, full, root string) (string, error) {
	limit, sum := int64(0), sha256.New()
	if len(f.Contains)+len(f.Matches) > 0 {
		limit = MaxCheckedFile
	}
	if len(f.Schema) > 0 {
		limit = MaxCheckedJSON
	}
	var text bytes.Buffer
	w := &bounded{w: io.Discard, left: MaxOutputBytes}
	if limit > 0 {
		w = &bounded{w: &text, left: limit}
	}
	_, err := c.box.Download(ctx, full, io.MultiWriter(w, sum), access(root))
	switch {
	case w.left < 0:
		return f.Path + " is too large to be judged", nil
	case sandbox.KindOf(err) == sandbox.KindDenied || sandbox.KindOf(err) == sandbox.KindConflict:
		return f.Path + " cannot be read: " + err.Error(), nil
	case err != nil:
		return "", err
	}
	return f.judge(text.Bytes(), hex.EncodeToString(sum.Sum(nil))), nil
}

// judge says in a sentence what the content lacks.
func (f *FileCheck) judge(text []byte, sum string) string {
	if f.SHA256 != "" && !strings.EqualFold(f.SHA256, sum) {
		return fmt.Sprintf("%s has the SHA-256 %s, not %s", f.Path, sum, strings.ToLower(f.SHA256))
	}
	for _, want := range f.Contains {
		if !bytes.Contains(text, []byte(want)) {
			return fmt.Sprintf("%s does not contain %q", f.Path, evidence.Cut(want, 200))
		}
	}
	for _, m := range f.Matches {
		if re, err := regexp.Compile(m); err != nil || !re.Match(text) {
			return fmt.Sprintf("nothing in %s matches %q", f.Path, evidence.Cut(m, 200))
		}
	}
	if len(f.Schema) > 0 {
		if why := f.valid(text); why != nil {
			return fmt.Sprintf("%s is not what its schema asks for: %s", f.Path, evidence.Cut(why.Error(), checkOutput))
		}
	}
	return ""
}

// valid judges JSON by the schema.
func (f *FileCheck) valid(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("it is no UTF-8")
	}
	if err := shallow(text); err != nil {
		return fmt.Errorf("it is no JSON that can be judged: %w", err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("it is no JSON: %w", err)
	}
	s, err := f.schema()
	if err != nil {
		return err
	}
	return s.Validate(v)
}

package patch

import (
	"bytes"
	"errors"
	"fmt"
)

// ErrMismatch is wrapped when a file is not what the patch was made from.
var ErrMismatch = errors.New("the file is not what the patch was made from")

// Result is what the file becomes. A file that is exactly the one the patch was
// made from becomes exactly what it became there. Another one is changed when
// every hunk still fits, at its place or moved, without tolerance.
func (d *Diff) Result(old Side) (Side, error) {
	if d.Created != (old.Mode == Absent) {
		if d.Created {
			return Side{}, fmt.Errorf("%w: it exists already", ErrMismatch)
		}
		return Side{}, fmt.Errorf("%w: it does not exist", ErrMismatch)
	}
	if !d.Created && (old.Mode == Link) != (d.OldMode == Link) {
		return Side{}, fmt.Errorf("%w: one is a link", ErrMismatch)
	}
	exact := d.OldBlob == "" || d.OldBlob == old.blob()
	if d.Removed {
		if !exact {
			return Side{}, ErrMismatch
		}
		return Side{}, nil
	}
	res := Side{Mode: d.NewMode, Data: old.Data}
	if d.NewBlob == "" {
		return res, nil // only the mode changes
	}
	switch {
	case d.Binary && !exact:
		return Side{}, ErrMismatch
	case d.Binary:
		res.Data = d.Literal
	default:
		var err error
		if res.Data, err = apply(old.Data, d.Hunks); err != nil {
			return Side{}, err
		}
	}
	if exact && res.blob() != d.NewBlob {
		return Side{}, errors.New("the patch contradicts itself: its content has another hash than it says")
	}
	return res, nil
}

// made reports whether a file is what Result makes of the one that the patch was
// made from.
func (d *Diff) made(s Side) bool {
	if d.Removed || s.Mode == Absent {
		return d.Removed && s.Mode == Absent
	}
	return (d.NewMode == Absent || d.NewMode == s.Mode) && (d.NewBlob == "" || d.NewBlob == s.blob())
}

func apply(data []byte, hunks []Hunk) ([]byte, error) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if n := len(lines); len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	var out bytes.Buffer
	next, shift := 0, 0
	for i, h := range hunks {
		var want [][]byte
		for _, l := range h.Lines {
			if l.Op != '+' {
				want = append(want, l.Text)
			}
		}
		at := h.OldStart - 1
		if h.OldLines == 0 {
			at = h.OldStart
		}
		at, ok := locate(lines, want, next, at+shift)
		if !ok {
			return nil, fmt.Errorf("%w: hunk %d does not fit", ErrMismatch, i+1)
		}
		shift = at - h.OldStart + 1
		if h.OldLines == 0 {
			shift = at - h.OldStart
		}
		for _, l := range lines[next:at] {
			out.Write(l)
		}
		for _, l := range h.Lines {
			if l.Op != '-' {
				out.Write(l.Text)
			}
		}
		next = at + len(want)
	}
	for _, l := range lines[next:] {
		out.Write(l)
	}
	return out.Bytes(), nil
}

// locate finds want in lines[from:], the place nearest to at.
func locate(lines, want [][]byte, from, at int) (int, bool) {
	last := len(lines) - len(want)
	if len(want) == 0 { // an insertion has nothing to be found again by
		return at, at >= from && at <= last
	}
	at = max(from, min(at, last))
	for d := 0; at-d >= from || at+d <= last; d++ {
		for _, p := range [2]int{at + d, at - d} {
			if p >= from && p <= last && equal(lines[p:], want) {
				return p, true
			}
		}
	}
	return 0, false
}

func equal(lines, want [][]byte) bool {
	for i, w := range want {
		if !bytes.Equal(lines[i], w) {
			return false
		}
	}
	return true
}

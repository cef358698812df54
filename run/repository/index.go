package repository

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Entry is a file as git's index has it.
type Entry struct {
	Path    string
	Mode    uint32 // git's: 0100644, 0100755, 0120000 a link, 0160000 a submodule
	Size    uint32 // of the file, modulo 2^32; 0 also where git does not trust it
	Sec     uint32 // of the modification time
	Nsec    uint32
	ID      []byte // of its blob
	Staged  int    // 0, or the side of a conflict
	Assumed bool   // unchanged, or not in the working directory, by the user's word
}

// Bounds of an index: files, and bytes of their names together, which version 4
// writes as what is new in each.
const (
	MaxEntries = 200_000
	maxNames   = 64 << 20
)

var errIndex = errors.New("this is no index of git that can be read")

// ParseIndex reads an index of version 2 to 4 (gitformat-index(5)), with ids of
// size bytes. Its extensions are not read.
func ParseIndex(data []byte, size int) ([]Entry, error) {
	if len(data) < 12+size || !bytes.HasPrefix(data, []byte("DIRC")) {
		return nil, errIndex
	}
	version, n := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 || n > MaxEntries {
		return nil, fmt.Errorf("%w: version %d with %d files", errIndex, version, n)
	}
	rest, before := data[12:len(data)-size], ""
	var out []Entry
	names := 0
	for range n {
		e, used, err := parseEntry(rest, before, version, size)
		if err != nil {
			return nil, err
		}
		if names += len(e.Path); names > maxNames {
			return nil, fmt.Errorf("%w: its names are longer than %d MiB", errIndex, maxNames>>20)
		}
		before, rest = e.Path, rest[used:]
		out = append(out, e)
	}
	return out, nil
}

// parseEntry reads one entry, and says how long it is.
func parseEntry(data []byte, before string, version uint32, size int) (e Entry, used int, err error) {
	head := 40 + size + 2
	if len(data) < head {
		return e, 0, errIndex
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(data[at:]) }
	flags := binary.BigEndian.Uint16(data[40+size:])
	e = Entry{Sec: word(8), Nsec: word(12), Mode: word(24), Size: word(36), ID: data[40 : 40+size], Staged: int(flags >> 12 & 3), Assumed: flags&0x8000 != 0}
	if flags&0x4000 != 0 {
		if version < 3 || len(data) < head+2 {
			return e, 0, errIndex
		}
		e.Assumed = e.Assumed || binary.BigEndian.Uint16(data[head:])&0x4000 != 0 // skip-worktree
		head += 2
	}
	name := data[head:]
	if version == 4 {
		strip, n := offset(name)
		if n == 0 || strip > uint64(len(before)) {
			return e, 0, errIndex
		}
		head += n
		name, e.Path = name[n:], before[:len(before)-int(strip)]
	}
	end := bytes.IndexByte(name, 0)
	if end < 0 || end > maxHead {
		return e, 0, errIndex
	}
	if e.Path += string(name[:end]); e.Path == "" || len(e.Path) > maxHead {
		return e, 0, errIndex
	}
	used = head + end + 1
	if version < 4 { // 1 to 8 NULs, to a multiple of 8
		used = (head + end + 8) / 8 * 8
	}
	if used > len(data) {
		return e, 0, errIndex
	}
	return e, used, nil
}

// offset reads a number as git's packs write offsets, and how long it is; 0 when
// it is none.
func offset(b []byte) (v uint64, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		if n > 0 {
			v++
		}
		v, n = v<<7|uint64(c&0x7f), n+1
		if c&0x80 == 0 {
			return v, n
		}
	}
	return 0, 0
}

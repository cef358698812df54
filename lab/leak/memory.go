package leak

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// The bounds of a region of memory, in bytes: of which it is known what of it was
// ever touched, and of which it is not.
const (
	maxRegion  = 1 << 38
	maxUnknown = 1 << 30
)

// numbers are the processes that can be seen.
func numbers() (list []string) {
	entries, _ := os.ReadDir("/proc") // without it nothing is found, and no control
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, "/proc/"+e.Name())
		}
	}
	return list
}

// processes searches environments, arguments, memory and open files. This one's
// memory is left out, which has the honeypot.
func (h *hunt) processes() {
	for _, dir := range numbers() {
		if h.ctx.Err() != nil {
			return
		}
		h.file(inEnviron, dir+"/environ", 0)
		h.file(inEnviron, dir+"/cmdline", 0)
		if dir != h.self {
			h.memory(dir)
		}
		links, _ := os.ReadDir(dir + "/fd") // what is closed is another user's
		for _, l := range links {
			name := dir + "/fd/" + l.Name()
			if target, err := os.Readlink(name); err == nil {
				h.text(inProc, name, target)
			}
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
				h.file(inProc, name, 0)
			}
		}
	}
}

// memory searches a process's memory, region by region.
func (h *hunt) memory(dir string) {
	maps, mem, err := memoryOf(dir)
	if err != nil {
		h.look(inMemory, dir+"/mem", nil, err)
		return
	}
	defer mem.Close()
	pages, err := os.Open(dir + "/pagemap")
	if err != nil {
		pages = nil // gVisor has none
	} else {
		defer pages.Close()
	}
	var parts []io.Reader
	for line := range strings.Lines(string(maps)) {
		start, size, private, ok := regionOf(line)
		if !ok {
			continue
		}
		most := int64(maxUnknown)
		if pages != nil && private {
			most = maxRegion
		}
		if size > most {
			h.mu.Lock()
			h.counts[inMemory].cut++
			h.mu.Unlock()
			size = most
		}
		parts = append(parts, touched(mem, pages, start, size, private)...)
	}
	h.look(inMemory, dir+"/mem", io.MultiReader(parts...), nil)
}

// memoryOf opens the memory of a process, with what is said of its regions.
func memoryOf(dir string) (maps []byte, mem *os.File, err error) {
	if maps, err = os.ReadFile(dir + "/maps"); err != nil {
		return nil, nil, err
	}
	if len(maps) == 0 {
		return nil, nil, fs.ErrPermission // a process of the kernel, or one that is gone
	}
	mem, err = os.Open(dir + "/mem")
	return maps, mem, err
}

// regionOf reads a line of a process's maps. It is not ok when it cannot be read, or
// need not be: the kernel's own, and what is a file's and cannot differ from it.
func regionOf(line string) (start, size int64, private, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 2 || len(fields[1]) < 4 || fields[1][0] != 'r' {
		return 0, 0, false, false
	}
	if len(fields) > 5 && (strings.HasPrefix(fields[5], "[v") || strings.HasPrefix(fields[5], "/") && fields[1][1] != 'w') {
		return 0, 0, false, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	first, err1 := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	if errors.Join(err1, err2) != nil || end <= first || first > 1<<62 {
		return 0, 0, false, false
	}
	return int64(first), int64(end - first), fields[1][3] == 'p', true
}

// touched are the parts of a region that can hold what a file does not: of a private
// one, the pages that were ever touched, where pages tells which those are.
// https://docs.kernel.org/admin-guide/mm/pagemap.html
func touched(mem, pages *os.File, start, size int64, private bool) (parts []io.Reader) {
	all := []io.Reader{&region{io.NewSectionReader(mem, start, size)}}
	if pages == nil || !private {
		return all
	}
	page := int64(os.Getpagesize())
	const entry, there = 8, 1<<63 | 1<<62 // in memory, or swapped out
	buf := make([]byte, min(size/page*entry, 1<<20))
	from := int64(-1) // where the run of pages began that is being looked at
	for at := start; at < start+size; {
		some := buf[:min(int64(len(buf)), (start+size-at)/page*entry)]
		if _, err := pages.ReadAt(some, at/page*entry); err != nil || len(some) == 0 {
			return all
		}
		for i := 0; i < len(some); i, at = i+entry, at+page {
			is := binary.NativeEndian.Uint64(some[i:])&there != 0
			switch {
			case is && from < 0:
				from = at
			case !is && from >= 0:
				parts = append(parts, &region{io.NewSectionReader(mem, from, at-from)})
				from = -1
			}
		}
	}
	if from >= 0 {
		parts = append(parts, &region{io.NewSectionReader(mem, from, start+size-from)})
	}
	return parts
}

// region is a part of a process's memory: where it cannot be read, it ends.
type region struct{ *io.SectionReader }

func (r *region) Read(p []byte) (int, error) {
	n, err := r.SectionReader.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

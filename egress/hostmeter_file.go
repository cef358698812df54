package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The file of a HostMeter: hostCounts with a checksum in the first page, then a
// slot for each process that has connections. Whoever reads or writes holds a
// lock on the first byte; a process that has a slot holds one on that, for as
// long as it lives. The locks are of open file descriptions (F_OFD_SETLK in
// fcntl(2)): the kernel takes them back at the end of a process, however that
// comes. Each write is within one page, so that a process is not killed between
// two halves of it.
const (
	hostMagic = "rein net"
	hostPage  = 4096
	hostSlots = 1024 // processes that may have connections at once
	slotBytes = 8    // connections, and the same inverted
	hostBytes = hostPage + hostSlots*slotBytes

	// hostPatience is how long the lock is tried for. It is held for
	// microseconds, or by a process that was stopped in between.
	hostPatience = 5 * time.Second
)

// day has bytes by hours, the hour that runs first.
type day [25]int64

func used(d *day) (n int64) {
	for _, v := range d {
		n += v
	}
	return n
}

// hostCounts are what all processes share but connections.
type hostCounts struct {
	Magic     [8]byte
	Hour      int64 // of the first of a day, see hourOf
	Next      int64 // in ns of Unix time: when, at one connection after the other, the next would be due
	Both, Out day
}

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// age brings the days to the hour that runs. When the clock was put back, what
// was used counts as of now; but by less than an hour, it is waited for.
func (c *hostCounts) age(now time.Time) {
	hour := hourOf(now)
	for _, d := range []*day{&c.Both, &c.Out} {
		if passed := min(hour-c.Hour, int64(len(d))); passed > 0 {
			copy(d[passed:], d[:int64(len(d))-passed])
			clear(d[:passed])
		}
	}
	if hour != c.Hour-1 {
		c.Hour = hour
	}
}

// allow reports whether one more connection may begin: the generic cell rate
// algorithm, which needs one number for a bucket of burst seconds' worth.
func (c *hostCounts) allow(now time.Time, perSecond int) bool {
	t, every, full := now.UnixNano(), max(1, int64(time.Second)/int64(perSecond)), int64(burst*time.Second)
	next := min(max(c.Next, t), t+full) + every // a clock that was put back finds the bucket empty
	if next > t+full {
		return false
	}
	c.Next = next
	return true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// countsBytes are the counts in the file, little-endian, without their checksum.
const countsBytes = 8 + 8 + 8 + 2*25*8

// encode returns the counts with their checksum. Every connection waits for it:
// it is written without reflection.
func (c *hostCounts) encode() []byte {
	b := append(make([]byte, 0, countsBytes+4), c.Magic[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Hour))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Next))
	for _, d := range []*day{&c.Both, &c.Out} {
		for _, v := range d {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var errDamaged = errors.New("the file is damaged")

func (c *hostCounts) decode(b []byte) error {
	if string(b[:len(hostMagic)]) != hostMagic || crc32.Checksum(b[:countsBytes], castagnoli) != binary.LittleEndian.Uint32(b[countsBytes:]) {
		return errDamaged
	}
	next := func() int64 {
		v := int64(binary.LittleEndian.Uint64(b))
		b = b[8:]
		return v
	}
	copy(c.Magic[:], b)
	b = b[len(c.Magic):]
	c.Hour, c.Next = next(), next()
	for _, d := range []*day{&c.Both, &c.Out} {
		for i := range d {
			d[i] = next()
		}
	}
	return nil
}

// hostFile is one opening of the file. It is not safe for concurrent use.
type hostFile struct {
	f       *os.File
	slot    int    // -1: none yet
	written uint32 // into slot
	stuck   bool   // the lock was waited for in vain
	buf     [hostBytes]byte
}

func openHostFile(path string) (*hostFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeHostFile(path); err == nil || errors.Is(err, fs.ErrExist) {
			f, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		}
	}
	if err != nil {
		return nil, err
	}
	h := &hostFile{f: f, slot: -1}
	if err = h.trusted(); err == nil {
		err = h.change(func(*hostCounts) error { return nil })
	}
	if err == nil {
		return h, nil
	}
	return nil, errors.Join(err, f.Close())
}

// trusted refuses a file that others may have written.
func (h *hostFile) trusted() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(h.f.Fd()), &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is no regular file")
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to uid %d, not to %d", st.Uid, os.Geteuid())
	case st.Mode&0o077 != 0:
		return fmt.Errorf("its mode %04o lets others use it", st.Mode&0o7777)
	}
	return nil
}

// makeHostFile has the file appear complete.
func makeHostFile(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	c := hostCounts{Hour: hourOf(time.Now())}
	copy(c.Magic[:], hostMagic)
	b := c.encode()
	b = append(b, make([]byte, hostPage-len(b))...)
	for range hostSlots {
		b = appendSlot(b, 0)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), path)
}

func appendSlot(b []byte, n uint32) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, n), ^n)
}

func (h *hostFile) close() error { return h.f.Close() }

// change has do read and change what all share, while nobody else does. When it
// fails the counts stay as they are.
func (h *hostFile) change(do func(*hostCounts) error) (err error) {
	if err := h.lock(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.flock(unix.F_UNLCK, 0)) }()
	var c hostCounts
	if err := h.read(&c); err != nil {
		return err
	}
	before := c
	if err := do(&c); err != nil || c == before {
		return err
	}
	_, err = h.f.WriteAt(c.encode(), 0)
	return err
}

// lock waits for the lock on the first byte: not for ever, and after it was in
// vain not at all, until it is free.
func (h *hostFile) lock() error {
	begin := time.Now()
	for pause := 10 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		err := h.flock(unix.F_WRLCK, 0)
		if !isHeld(err) {
			h.stuck = false
			return err
		}
		if h.stuck || time.Since(begin) > hostPatience {
			h.stuck = true
			return fmt.Errorf("another process has kept the file locked: %w", err)
		}
		time.Sleep(pause) // F_OFD_SETLKW would wait for ever
	}
}

func isHeld(err error) bool { return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) }

func (h *hostFile) flock(how int16, at int64) error {
	return unix.FcntlFlock(h.f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: how, Whence: unix.SEEK_SET, Start: at, Len: 1})
}

// read fills buf and judges it.
func (h *hostFile) read(c *hostCounts) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(h.f.Fd()), &st); err != nil {
		return err
	}
	switch {
	case st.Nlink == 0: // sandboxes that are made now count in another
		return errors.New("the file was removed")
	case st.Size != hostBytes:
		return errDamaged
	}
	if _, err := h.f.ReadAt(h.buf[:], 0); err != nil {
		return err
	}
	if err := c.decode(h.buf[:hostPage]); err != nil || h.slot < 0 {
		return err
	}
	if n, err := h.slotOf(h.slot); err != nil || n != h.written {
		return errDamaged
	}
	return nil
}

func slotAt(i int) int64 { return hostPage + int64(i)*slotBytes }

// claim takes a slot for the life of the process, or says that none is free.
func (h *hostFile) claim() (bool, error) {
	for i := 0; h.slot < 0 && i < hostSlots; i++ {
		err := h.flock(unix.F_WRLCK, slotAt(i))
		if isHeld(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if err := h.writeSlot(i, 0); err != nil {
			return false, errors.Join(err, h.flock(unix.F_UNLCK, slotAt(i)))
		}
		h.slot = i
	}
	return h.slot >= 0, nil
}

// count has the slot say how many connections this process has.
func (h *hostFile) count(open uint32) error {
	if open == h.written {
		return nil
	}
	err := h.writeSlot(h.slot, open)
	if err == nil {
		h.written = open
	}
	return err
}

func (h *hostFile) writeSlot(i int, open uint32) error {
	b := appendSlot(nil, open)
	copy(h.buf[slotAt(i):], b)
	_, err := h.f.WriteAt(b, slotAt(i))
	return err
}

// connections returns how many all processes have, this one that many. Those of
// processes that are gone are looked for, and forgotten, when enough is reached.
func (h *hostFile) connections(own uint32, enough int) (int64, error) {
	total := int64(0)
	var others []int
	for i := range hostSlots {
		n, err := h.slotOf(i)
		switch {
		case err != nil:
			return 0, err
		case i == h.slot:
			n = own
		case n > 0:
			others = append(others, i)
		}
		total += int64(n)
	}
	for _, i := range others {
		if total < int64(enough) {
			break
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET, Start: slotAt(i), Len: 1}
		if err := unix.FcntlFlock(h.f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			return 0, err
		}
		if lock.Type != unix.F_UNLCK {
			continue
		}
		n, err := h.slotOf(i)
		if err := errors.Join(err, h.writeSlot(i, 0)); err != nil {
			return 0, err
		}
		total -= int64(n)
	}
	return total, nil
}

func (h *hostFile) slotOf(i int) (uint32, error) {
	b := h.buf[slotAt(i):][:slotBytes]
	n := binary.LittleEndian.Uint32(b)
	if binary.LittleEndian.Uint32(b[4:]) != ^n || n > math.MaxInt32 {
		return 0, errDamaged
	}
	return n, nil
}

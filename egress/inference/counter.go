package inference

import (
	"container/list"
	"slices"
	"sync"
)

// maxMarks is how many beginnings of conversations a Counter remembers.
const maxMarks = 512

// maxBase is the most parts of a base that a mark tells apart. Those of longer
// ones count as new each time.
const maxBase = 1024

// made is how much longer than four times what was counted for a reply one may be,
// in tokens that are likely, that is taken for it: what is put around its text, and
// proofs of thoughts. A longer one was made up by the client.
const made = 4096

// Counter says how many tokens requests can be, and learns from what vendors
// counted: a request that goes on from one that was counted is as much as that one
// and its reply, and one token for each new byte, which is the most that text can
// be for any model that can say every byte. Beginnings are known by their hashes,
// of as many conversations as there are. The zero Counter is ready and knows
// nothing. It is safe for concurrent use, and its memory is bounded.
type Counter struct {
	mu    sync.Mutex
	marks map[uint64]*list.Element // of *mark, by the hash of all its items
	last  list.List                // the one used last is first
}

// mark: so many tokens of input was a request, and so many its reply.
type mark struct {
	chain         uint64
	base          []uint64 // sorted
	input, output int64
}

// Input is the most tokens that a request can be, how many it likely is, and a hash
// of its last turn (Ask.Turn).
func (c *Counter) Input(r *Request) (most, likely int64, turn string) {
	t := &r.talk
	m, known, ok := c.find(t)
	var fresh size
	if !ok {
		fresh.frame = frames
		for _, p := range t.base {
			fresh.add(p.size)
		}
		for _, p := range t.items {
			fresh.add(p.size)
		}
		return fresh.most(), fresh.likely(), t.turn
	}
	fresh = missing(t.base, m.base)
	rest, reply, replied := t.items[known:], size{}, false
	for len(rest) > 0 && rest[0].reply {
		reply.add(rest[0].size)
		rest, replied = rest[1:], true
	}
	for _, p := range rest {
		fresh.add(p.size)
	}
	most, likely = m.input+fresh.most(), m.input+fresh.likely()
	if replied { // the vendor has counted it, if it is that one; what it counted more may be thoughts, which stay with it
		most += max(m.output, reply.most())
		if likely += m.output; reply.likely() > 4*m.output+made {
			likely += reply.likely() - m.output
		}
	}
	return most, likely, t.turn
}

// find is the mark of the most items that a request begins with.
func (c *Counter) find(t *talk) (m mark, items int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, chain := range slices.Backward(t.chain) {
		if e := c.marks[chain]; e != nil {
			c.last.MoveToFront(e)
			return *e.Value.(*mark), i + 1, true
		}
	}
	return mark{}, 0, false
}

// missing is the size of the pieces that are not in a base.
func missing(pieces []piece, base []uint64) (s size) {
	used := make([]bool, len(base))
	for _, p := range pieces {
		at, found := slices.BinarySearch(base, p.hash)
		for found && at < len(base) && base[at] == p.hash && used[at] {
			at++
		}
		if found && at < len(base) && base[at] == p.hash {
			used[at] = true
			continue
		}
		s.add(p.size)
	}
	return s
}

// Answered notes what the vendor counted for a request. What is not known is
// not noted.
func (c *Counter) Answered(r *Request, u Usage) {
	t := &r.talk
	if !u.Known || r.Free || u.Input <= 0 || len(t.chain) == 0 {
		return
	}
	m := &mark{chain: t.chain[len(t.chain)-1], input: u.Input, output: u.Output}
	if len(t.base) <= maxBase {
		for _, p := range t.base {
			m.base = append(m.base, p.hash)
		}
		slices.Sort(m.base)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.marks == nil {
		c.marks = map[uint64]*list.Element{}
	}
	if front := c.last.Front(); front != nil && slices.Equal(front.Value.(*mark).base, m.base) {
		m.base = front.Value.(*mark).base // most are of one conversation
	}
	if e := c.marks[m.chain]; e != nil {
		e.Value = m
		c.last.MoveToFront(e)
		return
	}
	c.marks[m.chain] = c.last.PushFront(m)
	if c.last.Len() > maxMarks {
		oldest := c.last.Back()
		delete(c.marks, c.last.Remove(oldest).(*mark).chain)
	}
}

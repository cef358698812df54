package local

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

// maxOwners bounds who may be attached to one sandbox at once.
const maxOwners = 64

// owners are who is attached to a sandbox, in the order they came. While there
// is none, nothing leaves.
type owners struct {
	open func(bool) // the network
	cut  func()     // what was begun with an owner that has gone

	mu     sync.Mutex
	live   []*owner
	lastID uint64
}

// owner is one connection.
type owner struct {
	conn    net.Conn
	answers bool
	meters  bool
	gone    chan struct{}
	begins  chan struct{} // one for each begin that is not answered

	mu    sync.Mutex
	asked map[uint64]chan policy.Answer // takes one answer
	begun map[uint64]chan attachAnswer  // takes one answer
}

func newOwner(conn net.Conn, answers, meters bool) *owner {
	return &owner{conn: conn, answers: answers, meters: meters, gone: make(chan struct{}), begins: make(chan struct{}, maxBegins),
		asked: map[uint64]chan policy.Answer{}, begun: map[uint64]chan attachAnswer{}}
}

// add takes an owner in, and opens the network with the first.
func (s *owners) add(o *owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.live) == maxOwners {
		return false
	}
	s.live = append(s.live, o)
	if len(s.live) == 1 {
		s.open(true)
	}
	return true
}

// remove closes the network with the last.
func (s *owners) remove(o *owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = slices.DeleteFunc(s.live, func(l *owner) bool { return l == o })
	if len(s.live) == 0 {
		s.open(false)
	}
	if o.meters && s.cut != nil {
		s.cut()
	}
}

// ask asks the first owner that answers questions.
func (s *owners) ask(ctx context.Context, q sandbox.Question) policy.Answer {
	o, id := s.first(func(o *owner) bool { return o.answers })
	if o == nil {
		return policy.Nobody
	}
	said := o.send(attachAsk{ID: id, Question: &q})
	if said == nil {
		return policy.Unanswered
	}
	select {
	case answer := <-said:
		return answer
	case <-o.gone:
	case <-ctx.Done(): // the answer that comes yet is read, and forgotten
	}
	return policy.Unanswered
}

// attachPatience is how long an owner may take no question before it is dropped.
const attachPatience = 5 * time.Second

// send asks, and returns where the answer will come; nil when it cannot be asked.
func (o *owner) send(q attachAsk) <-chan policy.Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.asked) == maxAsked {
		return nil
	}
	said := make(chan policy.Answer, 1)
	o.asked[q.ID] = said
	if !o.write(q) {
		delete(o.asked, q.ID)
		return nil
	}
	return said
}

// write sends a line. The caller holds o.mu.
func (o *owner) write(q attachAsk) bool {
	b, err := json.Marshal(q)
	if err != nil || len(b) >= maxAttachLine {
		return false
	}
	o.conn.SetWriteDeadline(time.Now().Add(attachPatience))
	if _, err := o.conn.Write(append(b, '\n')); err != nil {
		o.conn.Close() // half a line may have gone
		return false
	}
	return true
}

// answered passes an answer on. One to what was not asked is a fault.
func (o *owner) answered(a attachAnswer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	said := o.asked[a.ID]
	if said == nil {
		return o.granted(a)
	}
	if a.Grant != nil || a.Failed {
		return false
	}
	delete(o.asked, a.ID)
	said <- a.Answer
	return true
}

// serve reads answers until the connection ends or says what it must not.
func (o *owner) serve(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAttachLine)
	for lines.Scan() {
		var a attachAnswer
		if decodeLine(lines.Bytes(), &a) != nil || !o.answered(a) {
			return
		}
	}
}

// attach serves GET /attach.
func (s *controlServer) attach(w http.ResponseWriter, r *http.Request) {
	if err := s.keeper.present("attach"); err != nil {
		answer(w, err)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		refuse(w, http.StatusInternalServerError, sandbox.KindInternal, err)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { conn.Close() })()
	s.running.Add(1) // the server does not wait for what was hijacked
	defer s.running.Done()
	conn.SetDeadline(time.Time{})
	can := r.URL.Query()
	o := newOwner(conn, can.Get("answers") == "true", can.Get("meter") == "true")
	defer close(o.gone)
	if s.keeper.owners.welcome(o) {
		o.serve(buf)
		s.keeper.owners.remove(o)
	}
}

// welcome takes an owner in and tells it so: it finds the network open.
func (s *owners) welcome(o *owner) bool {
	o.mu.Lock() // nothing is asked before the answer
	defer o.mu.Unlock()
	if !s.add(o) {
		_, _ = io.WriteString(o.conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n") // to who has too many connections
		return false
	}
	if _, err := io.WriteString(o.conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+attachProtocol+"\r\n\r\n"); err != nil {
		s.remove(o)
		return false
	}
	return true
}

// present refuses an owner of what does not run and will not again.
func (k *keeper) present(op string) error {
	if err := k.require(sandbox.StatePaused, op); err == nil {
		return nil
	}
	return k.require(sandbox.StateRunning, op)
}

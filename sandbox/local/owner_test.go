package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

// network is what the owners have said to the gateway.
type network struct {
	mu   sync.Mutex
	said []bool
}

func (n *network) open(o bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, o)
}

// joined is an owner, by both ends of its connection.
func joined(t *testing.T, s *owners, ask func(context.Context, sandbox.Question) policy.Answer) (*ownership, func()) {
	t.Helper()
	return joinedAs(t, s, sandbox.Owner{Ask: ask})
}

func joinedAs(t *testing.T, s *owners, as sandbox.Owner) (*ownership, func()) {
	t.Helper()
	ours, theirs := net.Pipe()
	o := newOwner(ours, as.Ask != nil, as.Meter != nil)
	end := newOwnership(theirs, as)
	welcomed := make(chan bool, 1)
	go func() { welcomed <- s.welcome(o) }()
	r := bufio.NewReader(theirs)
	for { // the answer's head
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\r\n" {
			break
		}
	}
	if !<-welcomed {
		t.Fatal("not welcome")
	}
	var wg sync.WaitGroup
	wg.Go(func() { o.serve(ours); ours.Close(); s.remove(o); close(o.gone) })
	end.start(r)
	return end, func() { end.Close(); wg.Wait() }
}

func TestOwnersAreAsked(t *testing.T) {
	defer goleak.VerifyNone(t)
	var n network
	s := &owners{open: n.open}
	if a := s.ask(t.Context(), sandbox.Question{}); a != policy.Nobody {
		t.Errorf("nobody said %q", a)
	}
	_, leaveSilent := joined(t, s, nil)
	if a := s.ask(t.Context(), sandbox.Question{}); a != policy.Nobody {
		t.Errorf("one who answers nothing said %q", a)
	}
	started, release := make(chan struct{}), make(chan struct{})
	_, leave := joined(t, s, func(ctx context.Context, q sandbox.Question) policy.Answer {
		if q.Name == "wait.test" {
			close(started)
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		if q.Name == "yes.test" {
			return policy.Granted
		}
		return policy.Denied
	})
	if s.ask(t.Context(), sandbox.Question{Name: "yes.test", Port: 443}) != policy.Granted || s.ask(t.Context(), sandbox.Question{Name: "no.test"}) != policy.Denied {
		t.Error("the answer is not the owner's")
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan policy.Answer)
	go func() { waited <- s.ask(ctx, sandbox.Question{Name: "wait.test"}) }()
	<-started
	cancel()
	if a := <-waited; a != policy.Unanswered {
		t.Errorf("without an answer: %q", a)
	}
	close(release) // the late answer is no fault
	if s.ask(t.Context(), sandbox.Question{Name: "yes.test"}) != policy.Granted {
		t.Error("no answer after a late one")
	}
	leave()
	if a := s.ask(t.Context(), sandbox.Question{Name: "yes.test"}); a != policy.Nobody {
		t.Errorf("one who has gone said %q", a)
	}
	leaveSilent()
	if !slices.Equal(n.said, []bool{true, false}) {
		t.Errorf("the network was opened and closed: %v", n.said)
	}
}

// An owner that says what it must not is none any more.
func TestOwnerSaysNonsense(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, line := range map[string]string{
		"an answer to nothing": `{"id":7,"answer":"granted"}`, "no JSON": `hello`, "a field too many": `{"id":1,"answer":"granted","always":true}`,
		"two values": `{"id":1,"answer":"granted"} {}`, "no answer": `{"id":1,"answer":"perhaps"}`, "endless": strings.Repeat("x", maxAttachLine+1),
	} {
		t.Run(name, func(t *testing.T) {
			var n network
			s := &owners{open: n.open}
			end, leave := joined(t, s, func(context.Context, sandbox.Question) policy.Answer { return policy.Granted })
			_, _ = io.WriteString(end.conn, line+"\n") // cut when the other end has had enough
			<-end.ctx.Done()
			leave()
			if !slices.Equal(n.said, []bool{true, false}) {
				t.Errorf("the network was opened and closed: %v", n.said)
			}
		})
	}
}

// FuzzAttachLine checks that both directions' lines are read strictly.
func FuzzAttachLine(f *testing.F) {
	for _, s := range []string{`{"id":1,"answer":"granted"}`, `{"id":1,"question":{"name":"a.test","port":443,"proto":"tls"}}`, `{}`, `{"id":-1}`, `null`, `{"id":1,"grant":{"output":7}}`, `{"id":1,"failed":true}`,
		`{"id":1,"begin":{"host":"a.test","api":"openai-chat","model":"m","input":1,"likely":1,"turn":"t"}}`, `{"id":1,"end":{"usage":{"known":true},"sent":true,"duration_ms":1}}`, `{"id":1}{"id":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var answer attachAnswer
		if decodeLine(line, &answer) == nil {
			b, err := json.Marshal(answer)
			var again attachAnswer
			if err != nil || decodeLine(b, &again) != nil || !reflect.DeepEqual(again, answer) {
				t.Errorf("%+v becomes %s and %+v", answer, b, again)
			}
		}
		var ask attachAsk
		if decodeLine(line, &ask) == nil && !bytes.Contains(line, []byte("{")) && !bytes.Equal(bytes.TrimSpace(line), []byte("null")) {
			t.Errorf("%q is a question", line)
		}
	})
}

package execd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// PortOwners asks who holds sockets on one connection to a daemon, over which
// POST /rein/ports is answered for as long as it is open: a line with both ends
// of a socket, "LOCAL REMOTE", is answered with a line of PortOwner. A switch
// between goroutines or a header read is time for which a connection of the
// sandbox is held, so that it is one write and one read. It is for one caller at
// a time; what bounds a question is the connection's deadline, and after an error
// nobody knows where it stands.
type PortOwners struct {
	conn    net.Conn
	answers *bufio.Reader
}

// maxPortOwner is more than a line of PortOwner has, in bytes.
const maxPortOwner = 4 << 10

// NewPortOwners begins to ask on conn, which it does not close. Errors are those
// of the connection, or say what the daemon answered.
func NewPortOwners(conn net.Conn, token string) (*PortOwners, error) {
	// Without Expect, who refuses would wait for the questions first.
	if _, err := fmt.Fprintf(conn, "POST /rein/ports HTTP/1.1\r\nHost: execd\r\n%s: %s\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n", TokenHeader, token); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("execd answered %s", resp.Status), resp.Body.Close())
	}
	return &PortOwners{conn, bufio.NewReaderSize(resp.Body, maxPortOwner)}, nil
}

// Ask returns what is known of who holds a socket.
func (p *PortOwners) Ask(s Socket) (owner PortOwner, err error) {
	question := s.Local.String() + " " + s.Remote.String() + "\n"
	if _, err := fmt.Fprintf(p.conn, "%x\r\n%s\r\n", len(question), question); err != nil {
		return owner, err
	}
	line, err := p.answers.ReadSlice('\n')
	if err != nil {
		return owner, err
	}
	return owner, json.Unmarshal(line, &owner)
}

// ReadPortQuestion reads a line of POST /rein/ports, without its end.
func ReadPortQuestion(line string) (Socket, error) {
	local, remote, ok := strings.Cut(line, " ")
	if !ok {
		return Socket{}, errors.New("it is not two ends of a connection")
	}
	return ReadSocket(local, remote)
}

// ReadSocket reads both ends of a connection, ADDRESS:PORT each.
func ReadSocket(local, remote string) (s Socket, err error) {
	if s.Remote, err = netip.ParseAddrPort(remote); err != nil || s.Remote.Port() == 0 {
		return s, errors.New("remote must be an address and a port")
	}
	if s.Local, err = netip.ParseAddrPort(local); err != nil || s.Local.Port() == 0 {
		return s, errors.New("with remote, local must be an address and a port")
	}
	if s.Local.Addr().Unmap().Is4() != s.Remote.Addr().Unmap().Is4() {
		return s, errors.New("local and remote are addresses of two families")
	}
	return s, nil
}

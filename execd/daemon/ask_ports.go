package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/rein-sh/rein/execd"
)

// portOwner answers GET /rein/port with the command that holds the TCP socket,
// an empty id when none does.
func (s *Server) portOwner(w http.ResponseWriter, r *http.Request) {
	about, err := readSocket(r.URL.Query())
	if err != nil {
		fail(w, refuse(http.StatusBadRequest, execd.CodeInvalidQuery, "%v", err))
		return
	}
	m, ok := s.cfg.Machine.(PortOwner)
	if !ok {
		fail(w, cannotTell())
		return
	}
	owner, err := s.ownerOf(r.Context(), m, about)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, owner)
}

func cannotTell() error {
	return refuse(http.StatusNotImplemented, execd.CodeNotFound, "this machine cannot tell")
}

func (s *Server) ownerOf(ctx context.Context, m PortOwner, about execd.Socket) (execd.PortOwner, error) {
	id, err := m.PortOwner(ctx, about)
	if err != nil {
		return execd.PortOwner{}, err
	}
	lasts, ok := s.cfg.Machine.(Rememberer)
	return execd.PortOwner{Port: int(about.Local.Port()), ID: id, Lasting: ok && lasts.RemembersMakers()}, nil
}

// portOwners answers POST /rein/ports: a line for each line, until the client has
// no more, one is not understood, or the server is paused or closed. Unlike that of
// portOwner, its request does not end when the client is gone while it is answered:
// a question is given up after execd.PortOwnerTimeout.
func (s *Server) portOwners(w http.ResponseWriter, r *http.Request) {
	m, ok := s.cfg.Machine.(PortOwner)
	if !ok {
		fail(w, cannotTell())
		return
	}
	if !s.begin() {
		fail(w, errClosed)
		return
	}
	defer s.running.Done()
	c := http.NewResponseController(w)
	if err := c.EnableFullDuplex(); err != nil {
		fail(w, err)
		return
	}
	over := make(chan struct{})
	defer close(over)
	s.running.Go(func() {
		select {
		case <-s.closing:
			_ = c.SetReadDeadline(time.Unix(1, 0)) // fails when it is over anyway
		case <-over:
		}
	})
	w.Header().Set("Content-Type", "application/x-ndjson")
	questions := bufio.NewScanner(r.Body)
	questions.Buffer(make([]byte, 256), 256)
	for c.Flush() == nil && questions.Scan() && !s.paused.Load() {
		about, err := execd.ReadPortQuestion(questions.Text())
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), execd.PortOwnerTimeout)
		owner, err := s.ownerOf(ctx, m, about)
		cancel()
		if err != nil {
			return
		}
		if err := json.NewEncoder(w).Encode(owner); err != nil {
			return
		}
	}
}

// readSocket reads local=N, or local=ADDRESS:N and remote=ADDRESS:N.
func readSocket(q url.Values) (s execd.Socket, err error) {
	local, remote := q.Get("local"), q.Get("remote")
	if remote == "" {
		port, err := strconv.ParseUint(local, 10, 16)
		if err != nil || port == 0 {
			return s, errors.New("local must be a port from 1 to 65535")
		}
		s.Local = netip.AddrPortFrom(netip.Addr{}, uint16(port))
		return s, nil
	}
	return execd.ReadSocket(local, remote)
}

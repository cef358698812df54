package leak

import (
	"io"
	"net"
	"sync"
)

// listeners are what a server of this package hears on, with the connections
// that were made to it and the goroutines that serve them. The zero value has
// none.
type listeners struct {
	all sync.WaitGroup // who serves

	mu      sync.Mutex
	closers []io.Closer
	conns   map[net.Conn]struct{}
	closed  bool
}

// keep has c closed with the rest.
func (l *listeners) keep(c io.Closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closers = append(l.closers, c)
}

// accept serves each connection to a listener, until it is closed.
func (l *listeners) accept(from net.Listener, serve func(net.Conn)) {
	l.all.Go(func() {
		for {
			c, err := from.Accept()
			if err != nil {
				return
			}
			l.all.Go(func() {
				defer c.Close()
				if l.hold(c) {
					defer l.drop(c)
					serve(c)
				}
			})
		}
	})
}

// hold has c closed with the rest while it is served; false when they are
// closed already.
func (l *listeners) hold(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.conns == nil {
		l.conns = map[net.Conn]struct{}{}
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *listeners) drop(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// Close ends every listener and connection, and returns when their goroutines
// have ended.
func (l *listeners) Close() {
	l.mu.Lock()
	l.closed = true
	for c := range l.conns {
		c.Close()
	}
	closers := l.closers
	l.mu.Unlock()
	for _, c := range closers {
		c.Close() // nothing depends on it
	}
	l.all.Wait()
}

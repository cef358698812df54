package sandboxtest

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Greeter is a TCP server on loopback that says hello and repeats what it is
// told, until the test ends.
func Greeter(t testing.TB) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				_, _ = io.WriteString(c, "hello\n") // what the client does not hear, the test notices
				_, _ = io.Copy(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); wg.Wait() })
	return l.Addr().(*net.TCPAddr).Port
}

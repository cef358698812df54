package mcpserver_test

import (
	"io"
	"net"
)

// pipe is a stream, as between two processes.
func pipe() (io.ReadCloser, io.WriteCloser) {
	in, out := net.Pipe()
	return in, out
}

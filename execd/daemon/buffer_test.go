package daemon

import (
	"bytes"
	"testing"
)

// Empty lines, which become sixty times as long, stay within the buffer, too.
func TestStreamBufferIsBounded(t *testing.T) {
	s := newStream(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 8 {
			s.output(0, bytes.Repeat(newline, largeRead))
		}
	}()
	var batch []byte
	for most := 0; ; {
		select {
		case <-s.ready:
			batch, _ = s.take(batch)
			if most = max(most, len(batch)); most > 2*streamBuffer+64*outputPiece {
				t.Errorf("%d bytes waited for the reader", most)
				s.drop()
				<-done
				return
			}
		case <-done:
			return
		}
	}
}

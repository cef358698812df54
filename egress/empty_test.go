package egress_test

import (
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// An answer without a body ends with its head, as the server's does: a client of gRPC
// looks there, and nowhere else, for how a call failed.
func TestEmptyAnswerEndsWithItsHead(t *testing.T) {
	t.Parallel()
	e := endsTo(t, httpsTo("api.example.com"), true, func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("Grpc-Status", "16") })
	h := e.h2(t)
	for range 200 { // it was a race
		id := h.send(t, true, heads()...)
		for answered := false; !answered; {
			f, err := h.framer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				if answered = f.StreamID == id; answered && !f.StreamEnded() {
					t.Fatalf("stream %d goes on after its head", id)
				}
			case *http2.SettingsFrame:
				if !f.IsAck() {
					h.framer.WriteSettingsAck()
				}
			}
		}
	}
}

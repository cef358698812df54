package egress_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A request of HTTP/2 that names one host as its authority and another in a field is
// refused: a server may go by either.
func TestHostBesideAuthority(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	e := endsTo(t, httpsTo("api.example.com"), true, nil)
	e.plainly(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for _, list := range [][]string{{"host", "other.example.com"}, {"host", "api.example.com", "host", "other.example.com"}, {"host", ""}} {
		h := e.h2(t)
		if got := h.status(t, h.send(t, true, heads(list...)...)); !strings.HasPrefix(got, "4") || asked.Load() > 0 {
			t.Errorf("%q: %s, the server was asked %d times", list, got, asked.Load())
		}
	}
	h := e.h2(t)
	if got := h.status(t, h.send(t, true, heads("host", "api.example.com")...)); got != "200" || asked.Load() != 1 {
		t.Errorf("the same twice: %s, the server was asked %d times", got, asked.Load())
	}
}

// So is one that says its length twice, whatever its body does.
func TestLengthTwice(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	e := endsTo(t, httpsTo("api.example.com"), true, nil)
	e.plainly(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for _, end := range []bool{true, false} {
		h := e.h2(t)
		if got := h.status(t, h.send(t, end, heads("content-length", "0", "content-length", "5")...)); !strings.HasPrefix(got, "4") && got != "reset" || asked.Load() > 0 {
			t.Errorf("%s, the server was asked %d times", got, asked.Load())
		}
	}
}

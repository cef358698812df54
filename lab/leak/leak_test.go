package leak_test

import (
	"bytes"
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/lab/leak"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The sink hears what is sent to each of its addresses, and forgets the trial.
func TestSinkHears(t *testing.T) {
	s, err := leak.NewSink("token")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Try(ctx, "token"); err != nil {
		t.Fatal(err)
	}
	if left := s.Arrived(); len(left) > 0 {
		t.Errorf("not forgotten: %v", left)
	}
}

// Where nothing stops them, ways do not pass, and the sink hears them: a probe
// that sees refusals everywhere would show nothing.
func TestOpenHost(t *testing.T) {
	s, err := leak.NewSink("token")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	loopback := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port)
	aim := leak.Aim{Token: "token", Sinks: []netip.AddrPort{loopback}, Loopback: s.Port, Abstract: s.Abstract,
		Gateway: []netip.Addr{loopback.Addr()}, Own: []netip.Addr{loopback.Addr()}, Execd: int(s.Port)}
	var out bytes.Buffer
	open := []string{"tcp to the host's own 127.0.0.1", "udp to the host's own 127.0.0.1", "unix: the sink's abstract socket"}
	if err := leak.Only(t.Context(), aim, open, &out); err != nil {
		t.Fatal(err)
	}
	rows, err := leak.Read(&out)
	if err != nil || len(rows) != len(open) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, r := range rows {
		if r.Pass && !strings.HasPrefix(r.Name, "udp") { // the sink does not answer datagrams
			t.Errorf("%+v", r)
		}
	}
	for _, name := range open {
		if !heard(s, "token "+name) {
			t.Errorf("the sink did not hear %q: %v", name, s.Arrived())
		}
	}
}

func heard(s *leak.Sink, words string) bool {
	for _, a := range s.Arrived() {
		if strings.Contains(a.Data, words) {
			return true
		}
	}
	return false
}

// What comes out of a sandbox is read, whatever it is.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"group":"dns","name":"a","tried":"b","expected":"c","seen":"d","pass":true}` + "\n" + `{"name":"e","not_tried":true}`))
	f.Add([]byte(`{"name":1}`))
	f.Add([]byte(`{"name":"cut`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := leak.Read(bytes.NewReader(data))
		if err == nil && len(rows) > len(data) {
			t.Errorf("%d rows of %d bytes", len(rows), len(data))
		}
	})
}

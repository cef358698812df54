package secret_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rein-sh/rein/secret"
)

const paused = "rein_AbcdAbcdAbcdAbcdAbcdAbcd01234567"

// talk has parts written with a long pause between, and returns what had been read
// of r by each pause, and in the end.
func talk(t *testing.T, reader func(io.Reader) io.Reader, parts ...string) (heard []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		var got bytes.Buffer
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(&got, reader(in))
			in.CloseWithError(io.ErrClosedPipe)
			ended <- err
		}()
		for _, part := range parts {
			if _, err := io.WriteString(out, part); err != nil {
				break
			}
			time.Sleep(time.Second)
			synctest.Wait()
			heard = append(heard, got.String())
		}
		out.Close()
		err = <-ended
		heard = append(heard, got.String())
	})
	return heard, err
}

// Whoever sends a message and waits for the answer is not held up by a value that
// could begin where the message ends.
func TestPause(t *testing.T) {
	m := secret.NewMasker(secret.New("key", paused))
	for c := range 256 {
		for _, end := range []string{"", "\n\n", "\r\n\r\n"} {
			said := "message " + string([]byte{byte(c)}) + end
			for name, reader := range map[string]func(io.Reader) io.Reader{"Reader": m.Reader, "Guard": m.Guard} {
				if heard, err := talk(t, reader, said, "x"); heard[0] != said || heard[len(heard)-1] != said+"x" || err != nil {
					t.Errorf("%s of %q: %q, %v", name, said, heard, err)
				}
			}
		}
	}
}

// A value in which its source pauses is found all the same.
func TestPauseWithin(t *testing.T) {
	m := secret.NewMasker(secret.New("key", paused))
	for _, c := range []struct{ first, rest, want string }{
		{"a r", paused[1:] + " b", "a r[secret:key] b"},
		{"a rei", paused[3:] + " b", "a rei[secret:key] b"},
		{"a rein", paused[4:] + " b", "a [secret:key] b"}, // it was worth waiting
		{"a r", "ead b", "a read b"},
		{"a r", "r" + paused, "a rr[secret:key]"},
		{"a c\n", base64.StdEncoding.EncodeToString([]byte(paused))[1:] + " b", "a c\n[secret:key base64]"},
	} {
		heard, err := talk(t, m.Reader, c.first, c.rest)
		if last := heard[len(heard)-1]; !strings.HasPrefix(last, c.want) || err != nil {
			t.Errorf("%q, %q: %q, %v", c.first, c.rest, heard, err)
		}
		heard, err = talk(t, m.Guard, c.first, c.rest)
		found, ok := errors.AsType[*secret.FoundError](err)
		want := c.first
		if !strings.Contains(c.want, "secret") {
			want += c.rest
		}
		if last := heard[len(heard)-1]; !strings.HasPrefix(last, want) || strings.Contains(last, paused[5:]) || ok != strings.Contains(c.want, "secret") {
			t.Errorf("guard of %q, %q: %q, %v, %v", c.first, c.rest, heard, found, err)
		}
	}
}

// A shorter value that is there completely is not shown because a longer one may
// begin with it.
func TestPauseBetweenValues(t *testing.T) {
	m := secret.NewMasker(secret.New("short", paused), secret.New("long", paused+"-and-more"))
	for _, reader := range []func(io.Reader) io.Reader{m.Reader, m.Guard} {
		heard, _ := talk(t, reader, "a "+paused, "-and")
		for _, h := range heard {
			if strings.Contains(h, paused) {
				t.Errorf("%q", heard)
			}
		}
	}
}

// However a text is cut by pauses, no more of a value is shown than three
// characters, nothing else is lost, and a guard never lets a whole one through.
func TestPausesAnywhere(t *testing.T) {
	m := secret.NewMasker(secret.New("key", paused))
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		text := "begin c7ry " + paused + " middle " + base64.StdEncoding.EncodeToString([]byte("x"+paused)) + " end"
		var parts []string
		for text != "" {
			n := 1 + random.IntN(min(len(text), 20))
			parts, text = append(parts, text[:n]), text[n:]
		}
		heard, err := talk(t, m.Reader, parts...)
		last := heard[len(heard)-1]
		if err != nil || strings.Contains(last, paused[:4]) || strings.Contains(last, paused[4:]) || !strings.HasPrefix(last, "begin c7ry ") || !strings.HasSuffix(last, " end") {
			t.Errorf("%q: %q, %v", parts, last, err)
		}
		heard, err = talk(t, m.Guard, parts...)
		last = heard[len(heard)-1]
		if _, ok := errors.AsType[*secret.FoundError](err); !ok || strings.Contains(last, paused) {
			t.Errorf("%q: %q, %v", parts, last, err)
		}
	}
}

package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/secret"
)

var key = secret.New("webhook", "0123456789abcdef0123456789abcdef")

// hook is a webhook's server: answer writes what it likes, given the question
// and the nonce.
func hook(t *testing.T, answer func(w http.ResponseWriter, q approval.Question, nonce string)) *approval.Webhook {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		nonce, stamp := r.Header.Get(approval.HeaderNonce), r.Header.Get(approval.HeaderTimestamp)
		if err != nil || r.Header.Get(approval.HeaderSignature) != approval.Sign(key, "request", stamp, nonce, body) {
			t.Error("the question is not signed")
		}
		var q struct {
			Type     string
			Question approval.Question
		}
		if err := json.Unmarshal(body, &q); err != nil || q.Type != "approval" {
			t.Errorf("%s: %v", body, err)
		}
		answer(w, q.Question, nonce)
	}))
	t.Cleanup(s.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w, err := approval.NewWebhook(approval.WebhookOptions{URL: s.URL, Key: key, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// sign sends an answer as it should be.
func sign(w http.ResponseWriter, k secret.Value, at time.Time, nonce, body string) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	w.Header().Set(approval.HeaderTimestamp, stamp)
	w.Header().Set(approval.HeaderSignature, approval.Sign(k, "answer", stamp, nonce, []byte(body)))
	io.WriteString(w, body)
}

func reply(id, nonce, rest string) string {
	return fmt.Sprintf(`{"id":%q,"nonce":%q,%s}`, id, nonce, rest)
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	for rest, want := range map[string]approval.Decision{
		`"decision":"approve"`:                                           {Approve: true, By: "webhook"},
		`"decision":"deny","by":"bob","reason":"not today"`:              {By: "webhook bob", Reason: "not today"},
		`"decision":"approve","scope":"run","command":"ls","by":"alice"`: {Approve: true, ForRun: true, Command: "ls", By: "webhook alice"},
	} {
		w := hook(t, func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply(q.ID, nonce, rest))
		})
		d, err := w.Ask(t.Context(), approval.Question{ID: "ask-1", Text: "cp a b"})
		if err != nil || d != want {
			t.Errorf("%s: %+v %v", rest, d, err)
		}
	}
}

// Nothing but the right answer, signed now and for this question, is one.
func TestWebhookHostile(t *testing.T) {
	t.Parallel()
	yes := `"decision":"approve"`
	for name, answer := range map[string]func(w http.ResponseWriter, q approval.Question, nonce string){
		"unsigned": func(w http.ResponseWriter, q approval.Question, nonce string) {
			io.WriteString(w, reply(q.ID, nonce, yes))
		},
		"another key": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, secret.New("other", "another-key-of-32-bytes-or-more!"), time.Now(), nonce, reply(q.ID, nonce, yes))
		},
		"signed as a request": func(w http.ResponseWriter, q approval.Question, nonce string) {
			body, stamp := reply(q.ID, nonce, yes), strconv.FormatInt(time.Now().Unix(), 10)
			w.Header().Set(approval.HeaderTimestamp, stamp)
			w.Header().Set(approval.HeaderSignature, approval.Sign(key, "request", stamp, nonce, []byte(body)))
			io.WriteString(w, body)
		},
		"old": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now().Add(-time.Hour), nonce, reply(q.ID, nonce, yes))
		},
		"of the future": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now().Add(time.Hour), nonce, reply(q.ID, nonce, yes))
		},
		"another nonce signed": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), "00", reply(q.ID, "00", yes))
		},
		"another nonce inside": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply(q.ID, "00", yes))
		},
		"another question": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply("ask-2", nonce, yes))
		},
		"no decision": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply(q.ID, nonce, `"scope":"run"`))
		},
		"a strange scope": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply(q.ID, nonce, yes+`,"scope":"ever"`))
		},
		"an unknown member": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply(q.ID, nonce, yes+`,"always":true`))
		},
		"two answers": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply(q.ID, nonce, yes)+reply(q.ID, nonce, yes))
		},
		"no JSON": func(w http.ResponseWriter, q approval.Question, nonce string) { sign(w, key, time.Now(), nonce, "yes") },
		"no UTF-8": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, "\xff")
		},
		"huge": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply(q.ID, nonce, yes+`,"reason":"`+strings.Repeat("x", 100<<10)+`"`))
		},
		"a redirect": func(w http.ResponseWriter, q approval.Question, nonce string) {
			http.Redirect(w, &http.Request{}, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		},
		"forbidden": func(w http.ResponseWriter, q approval.Question, nonce string) { w.WriteHeader(http.StatusForbidden) },
		"nothing":   func(w http.ResponseWriter, q approval.Question, nonce string) {},
		"a long by": func(w http.ResponseWriter, q approval.Question, nonce string) {
			sign(w, key, time.Now(), nonce, reply(q.ID, nonce, yes+`,"by":"`+strings.Repeat("x", 300)+`"`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := hook(t, answer).Ask(t.Context(), approval.Question{ID: "ask-1"})
			if err == nil || d.Approve {
				t.Errorf("%+v %v", d, err)
			}
		})
	}
}

// While there is no answer it is asked again, each time with another nonce, and
// an answer to an earlier one does not count.
func TestWebhookLater(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	nonces := map[string]bool{}
	w := hook(t, func(w http.ResponseWriter, q approval.Question, nonce string) {
		if nonces[nonce] {
			t.Error("a nonce was used twice")
		}
		nonces[nonce] = true
		switch n.Add(1) {
		case 1, 2:
			w.WriteHeader(http.StatusAccepted)
		default:
			sign(w, key, time.Now(), nonce, reply(q.ID, nonce, `"decision":"approve"`))
		}
	})
	if d, err := w.Ask(t.Context(), approval.Question{ID: "ask-1"}); err != nil || !d.Approve || n.Load() != 3 {
		t.Errorf("%+v %v after %d", d, err, n.Load())
	}
}

// A webhook that cannot be reached, or cannot take the question now, says so,
// and nothing of its address.
func TestWebhookUndelivered(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	dead, err := approval.NewWebhook(approval.WebhookOptions{URL: gone.URL + "/hidden-path", Key: key, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	busy := hook(t, func(w http.ResponseWriter, _ approval.Question, _ string) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for w, want := range map[*approval.Webhook]string{dead: "could not be reached: dial tcp", busy: "503"} {
		_, err := w.Ask(t.Context(), approval.Question{ID: "ask-1"})
		if _, ok := errors.AsType[*approval.UndeliveredError](err); !ok || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden-path") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// One that holds the request while its person thinks has the question.
func TestWebhookHolds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan struct{})
	w := hook(t, func(http.ResponseWriter, approval.Question, string) {
		cancel()
		<-end
	})
	_, err := w.Ask(ctx, approval.Question{ID: "ask-1"})
	close(end)
	if _, ok := errors.AsType[*approval.UndeliveredError](err); err == nil || ok {
		t.Errorf("%v", err)
	}
}

func TestWebhookEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := hook(t, func(w http.ResponseWriter, _ approval.Question, _ string) {
		w.WriteHeader(http.StatusAccepted)
		cancel()
	})
	if d, err := w.Ask(ctx, approval.Question{ID: "ask-1"}); err == nil || d.Approve {
		t.Errorf("%+v %v", d, err)
	}
}

func TestNewWebhook(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://example.com/x":         "",
		"http://localhost:8080/":        "",
		"http://[::1]:8080/":            "",
		"http://example.com/":           "is https",
		"http://169.254.169.254/":       "is https",
		"ftp://example.com/":            "no https",
		"https://a:secret@example.com/": "credentials",
		"ftp://example.com/?t=secret":   "no https",
		"example.com/?t=secret":         "no address",
		"":                              "no address",
		"::":                            "no address",
	} {
		_, err := approval.NewWebhook(approval.WebhookOptions{URL: url, Key: key})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v tells the password", url, err)
		}
	}
	if _, err := approval.NewWebhook(approval.WebhookOptions{URL: "https://example.com", Key: secret.New("k", "short")}); err == nil {
		t.Error("a short key")
	}
}

func FuzzWebhookReply(f *testing.F) {
	f.Add([]byte(`{"id":"ask-1","nonce":"n","decision":"approve"}`))
	f.Add([]byte(`{"id":"ask-1","nonce":"n","decision":"deny","scope":"run","command":"ls"}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := approval.ParseReply(body, "ask-1", "n")
		if err != nil && d != (approval.Decision{}) {
			t.Fatalf("a decision beside an error: %+v", d)
		}
	})
}

package egress_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkModels is a call of a model on a connection that is kept.
func BenchmarkModels(b *testing.B) {
	for name, stream := range map[string]bool{"json": false, "stream": true} {
		b.Run(name, func(b *testing.B) {
			m := meteredTo(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // the client counts
				if !stream {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, ponged)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				for range 20 {
					_, _ = io.WriteString(w, streamed[0])
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = io.WriteString(w, streamed[1])
			}), "", nil)
			sent := strings.Replace(pinged, "p\\u0069ng", strings.Repeat("word ", 10<<10), 1)
			if stream {
				sent = strings.Replace(streamPinged, "p\\u0069ng", strings.Repeat("word ", 10<<10), 1)
			}
			for b.Loop() {
				if res, text := m.post(b, throughDoor+chatPath, sent); res.StatusCode != 200 {
					b.Fatalf("%s: %s", res.Status, text)
				}
			}
		})
	}
}

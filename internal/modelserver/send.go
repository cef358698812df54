package modelserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rein-sh/rein/model/script"
)

// wait lasts d, or until the client is gone when d is 0. It reports whether
// the reply goes on.
func (s *Server) wait(r *http.Request, d time.Duration) bool {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-over:
		return true
	case <-r.Context().Done():
	case <-s.done:
	}
	return false
}

// stream sends server-sent events, spoilt by the fault.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, p protocol, events []event, content int, f *script.Fault) {
	if f != nil && f.AtStart {
		switch f.Kind {
		case script.FaultCut:
			panic(http.ErrAbortHandler)
		case script.FaultStall:
			if !s.wait(r, f.For) {
				panic(http.ErrAbortHandler)
			}
			f = nil
		}
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w).Flush
	at := -1 // where the fault is
	if f != nil {
		at = (content + 1) / 2
		if f.AtStart {
			at = 0
		}
	}
	for i, e := range events {
		if i == at && !s.spoil(w, r, p, f) {
			return
		}
		if err := e.write(w); err != nil || flush() != nil {
			return // the client is gone
		}
	}
}

func (e event) write(w http.ResponseWriter) error {
	data, ok := e.data.(string)
	if !ok {
		text, err := json.Marshal(e.data)
		if err != nil {
			panic(err) // made of strings and numbers
		}
		data = string(text)
	}
	name := ""
	if e.name != "" {
		name = "event: " + e.name + "\n"
	}
	_, err := fmt.Fprintf(w, "%sdata: %s\n\n", name, data)
	return err
}

// spoil does the fault in a stream and reports whether the stream goes on.
func (s *Server) spoil(w http.ResponseWriter, r *http.Request, p protocol, f *script.Fault) bool {
	switch f.Kind {
	case script.FaultStall:
		if !s.wait(r, f.For) {
			panic(http.ErrAbortHandler)
		}
	case script.FaultCut:
		if f.Clean {
			return false
		}
		panic(http.ErrAbortHandler)
	case script.FaultGarbage:
		return p.broken().write(w) == nil
	}
	return true
}

// whole sends a reply in one piece, spoilt by the fault.
func (s *Server) whole(w http.ResponseWriter, r *http.Request, reply any, f *script.Fault) {
	if f == nil {
		writeJSON(w, http.StatusOK, reply)
		return
	}
	switch {
	case f.Kind == script.FaultStall:
		if !s.wait(r, f.For) {
			panic(http.ErrAbortHandler)
		}
		writeJSON(w, http.StatusOK, reply)
	case f.Kind == script.FaultCut && f.AtStart:
		panic(http.ErrAbortHandler)
	default: // half a reply; the connection ends with it unless that is clean
		data, err := json.Marshal(reply)
		if err != nil {
			panic(err) // made of strings and numbers
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data[:len(data)/2])
		if f.Kind == script.FaultCut && !f.Clean {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

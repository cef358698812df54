package clients

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// site greets, over a WebSocket before it repeats what it is told.
func site(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/socket" {
		fmt.Fprintln(w, Greeting)
		return
	}
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has been answered
	}
	defer c.CloseNow()
	c.SetReadLimit(1 << 20)
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	for err = c.Write(ctx, websocket.MessageText, []byte(Greeting)); err == nil; {
		var kind websocket.MessageType
		var said []byte
		if kind, said, err = c.Read(ctx); err == nil {
			err = c.Write(ctx, kind, said)
		}
	}
}

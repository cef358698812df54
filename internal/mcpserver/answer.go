package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rein-sh/rein/tool"
)

// answer is a call's result as a client gets it: for programs, and, the same, as text.
// A program that failed is no error of the tool's; that is what the host has to say.
func answer(r tool.Result) *mcp.CallToolResult {
	data, _ := json.Marshal(r) // a Result always encodes
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(data)}},
		StructuredContent: json.RawMessage(data),
		IsError:           r.Err != nil,
	}
}

// progressEvery is how often a client is told that a call is still under way. It is
// less than what clients wait for.
const progressEvery = 2 * time.Second

// progressOf tells the client that has asked for it how far its call is, until stop is
// called: so many seconds, and so many bytes of output. Printed counts those.
func progressOf(ctx context.Context, req *mcp.CallToolRequest) (printed func(bytes int64), stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func(int64) {}, func() {}
	}
	var bytes atomic.Int64
	begun, done := time.Now(), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			seconds := math.Round(time.Since(begun).Seconds()*1000) / 1000
			// A client that cannot be told is no reason to end its call.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: seconds,
				Message: fmt.Sprintf("%s has run for %.0f s and printed %d bytes", req.Params.Name, seconds, bytes.Load())})
		}
	}()
	return bytes.Store, func() { cancel(); <-done }
}

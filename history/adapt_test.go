package history_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rein-sh/rein/history"
	"github.com/rein-sh/rein/model"
)

// Another vendor's model gets the conversation without what only the first one
// can read, and with ids that it takes; what was handed out before is as it was.
func TestAdapt(t *testing.T) {
	t.Parallel()
	h, err := history.New(history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h.Add(model.Message{Role: model.RoleUser, Text: "task"})
	for range 2 {
		h.Add(model.Message{Role: model.RoleAssistant, Opaque: json.RawMessage(`{"a":1}`), Calls: []model.ToolCall{
			{ID: "functions.run_command:0", Name: "a"}, {ID: "fine", Name: "b"}}})
		h.AddResults([]history.Result{{ToolResult: model.ToolResult{ID: "functions.run_command:0", Content: "A"}}, {ToolResult: model.ToolResult{ID: "fine", Content: "B"}}})
	}
	before, _ := h.Messages(context.Background(), 0)
	h.Adapt(0)
	after, same := h.Messages(context.Background(), 0)
	if same != 0 {
		t.Errorf("%d messages are as they were sent", same)
	}
	if before[1].Calls[0].ID != "functions.run_command:0" || before[1].Opaque == nil || before[2].Results[0].ID != "functions.run_command:0" {
		t.Errorf("what was sent has changed: %+v", before[1])
	}
	var ids [][]string
	for i := 1; i < len(after); i += 2 {
		call, result := after[i], after[i+1]
		if call.Opaque != nil || call.Calls[0].ID != result.Results[0].ID || call.Calls[1].ID != result.Results[1].ID ||
			result.Results[0].Content != "A" || result.Results[1].Content != "B" {
			t.Errorf("%+v, %+v", call, result)
		}
		ids = append(ids, []string{call.Calls[0].ID, call.Calls[1].ID})
	}
	if d := cmp.Diff([][]string{{"call_1_0_1", "fine"}, {"call_3_0_1", "call_3_1_1"}}, ids); d != "" {
		t.Error(d)
	}
}

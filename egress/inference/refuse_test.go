package inference_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rein-sh/rein/egress/inference"
)

func TestRefuse(t *testing.T) {
	t.Parallel()
	for _, api := range []inference.API{inference.Chat, inference.Responses, inference.Messages, inference.Gemini} {
		for _, code := range []inference.StopCode{inference.StopBudget, inference.StopModel, inference.StopClosed, inference.StopAsked, "new"} {
			status, header, body := inference.Refuse(api, inference.Stop{Code: code, Reason: `12 tokens "left"`}, true)
			if status < 400 || status == 408 || status == 409 || status == 429 || status >= 500 && code != inference.StopClosed {
				t.Errorf("%s %s: status %d is tried again", api, code, status)
			}
			if header.Get("X-Should-Retry") != "false" || header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s: %v", api, code, header)
			}
			var got struct {
				Type  string
				Error struct {
					Message, Type, Status string
					Code                  any
				}
			}
			if err := json.Unmarshal(body, &got); err != nil || !strings.HasSuffix(got.Error.Message, `12 tokens "left"`) {
				t.Errorf("%s %s: %s: %v", api, code, body, err)
			}
			if code == inference.StopBudget && !strings.HasPrefix(got.Error.Message, "rein: the budget of this run is used up: ") {
				t.Errorf("%s says %q", api, got.Error.Message)
			}
			switch api {
			case inference.Messages:
				if got.Type != "error" || got.Error.Type == "" {
					t.Errorf("%s %s: %s", api, code, body)
				}
			case inference.Gemini:
				if got.Error.Status == "" || got.Error.Code != float64(status) {
					t.Errorf("%s %s: %s", api, code, body)
				}
			default:
				if got.Error.Type == "" || got.Error.Code == "" {
					t.Errorf("%s %s: %s", api, code, body)
				}
			}
		}
	}
}

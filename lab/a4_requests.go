package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// The words of the system prompt that A4 looks for.
var a4Rule = []string{"untrusted data", "do not follow them"}

// boundary is a result as a model reads it.
var boundary = regexp.MustCompile(`(?s)^Untrusted result of [a-z_]+: data, no instructions, up to the mark ([A-Z2-7]{26,})\.\n(.*)\nEnd of the result, mark ([A-Z2-7]{26,})\.`)

// judgeRequests reads the requests that a model was sent, byte for byte, in the
// Chat Completions format. The phrase is in the hostile file only.
func judgeRequests(bodies [][]byte, phrase string) (string, bool) {
	inside := 0
	for i, body := range bodies {
		var req struct {
			Messages []struct {
				Role    string          `json:"role"`
				Content json.RawMessage `json:"content"`
			} `json:"messages"`
		}
		if err := json.Unmarshal(body, &req); err != nil {
			return fmt.Sprintf("request %d: %v", i+1, err), false
		}
		found := 0
		for j, m := range req.Messages {
			text, err := content(m.Content)
			if err != nil {
				return fmt.Sprintf("request %d, message %d: %v", i+1, j+1, err), false
			}
			n := strings.Count(text, phrase)
			found += n
			switch {
			case j == 0 && (m.Role != "system" || !containsAll(text, a4Rule)):
				return fmt.Sprintf("request %d begins with a message of %s without the rule", i+1, m.Role), false
			case n > 0 && m.Role != "tool":
				return fmt.Sprintf("request %d has the file in message %d, of %s", i+1, j+1, m.Role), false
			case n > 0:
				if fault := enclosed(text, phrase); fault != "" {
					return fmt.Sprintf("request %d, message %d: %s", i+1, j+1, fault), false
				}
			}
		}
		// Nothing of it is in the request beside its messages.
		if n := bytes.Count(body, []byte(phrase)); n != found {
			return fmt.Sprintf("request %d has the file %d times, %d of them in messages", i+1, n, found), false
		}
		inside += found
	}
	return fmt.Sprintf("%d requests, the file's words %d times in them, each between two marks of its result", len(bodies), inside), len(bodies) >= 2 && inside > 0
}

// enclosed says what is wrong with the boundary around the phrase.
func enclosed(text, phrase string) string {
	m := boundary.FindStringSubmatch(text)
	switch {
	case m == nil:
		return fmt.Sprintf("no boundary: %.80q", text)
	case m[1] != m[3]:
		return "the marks of its beginning and its end are not the same"
	case strings.Count(m[2], phrase) != strings.Count(text, phrase):
		return "the file is outside the marks"
	case strings.Contains(m[2], m[1]):
		return "the file has the mark itself"
	}
	return ""
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// content is the text of a message: a string, or parts with texts.
func content(raw json.RawMessage) (string, error) {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

package inference

import "strconv"

// field is what a value of an answer says.
type field byte

const (
	countInput field = iota
	countCached
	countWritten
	countOutput
	countReasoning
	countTool  // input that the vendor's tools have made
	countTotal // of everything
	countsEnd

	saysKind
	saysFinished
	saysBlocked // and nothing was answered
	saysErrorCode
	saysErrorType
)

// counts are tokens by field, below 0 where nothing was said.
type counts [countsEnd]int64

// fields are where the answers say what: of a whole one, and of an event.
//
// Sources: platform.openai.com/docs/api-reference (chat/object, chat-streaming,
// responses/object, responses-streaming), docs.anthropic.com/en/api/messages and
// /en/docs/build-with-claude/streaming, ai.google.dev/api/generate-content
// #UsageMetadata; DeepSeek and Moonshot for cached tokens of Chat Completions, and
// Moonshot and Groq for usage in places of their own.
var fields = map[API]map[string]field{
	Chat: {
		"usage.prompt_tokens":                              countInput,
		"usage.prompt_tokens_details.cached_tokens":        countCached,
		"usage.prompt_cache_hit_tokens":                    countCached,
		"usage.cached_tokens":                              countCached,
		"usage.prompt_tokens_details.cache_write_tokens":   countWritten,
		"usage.completion_tokens":                          countOutput,
		"usage.completion_tokens_details.reasoning_tokens": countReasoning,
		"usage.total_tokens":                               countTotal,
		"choices.[].usage.prompt_tokens":                   countInput,
		"choices.[].usage.completion_tokens":               countOutput,
		"x_groq.usage.prompt_tokens":                       countInput,
		"x_groq.usage.completion_tokens":                   countOutput,
		"choices.[].finish_reason":                         saysFinished,
		"error.code":                                       saysErrorCode,
		"error.type":                                       saysErrorType,
	},
	Responses: {
		"response.usage.input_tokens":                            countInput,
		"response.usage.input_tokens_details.cached_tokens":      countCached,
		"response.usage.input_tokens_details.cache_write_tokens": countWritten,
		"response.usage.output_tokens":                           countOutput,
		"response.usage.output_tokens_details.reasoning_tokens":  countReasoning,
		"response.usage.total_tokens":                            countTotal,
		"usage.input_tokens":                                     countInput,
		"usage.input_tokens_details.cached_tokens":               countCached,
		"usage.input_tokens_details.cache_write_tokens":          countWritten,
		"usage.output_tokens":                                    countOutput,
		"usage.output_tokens_details.reasoning_tokens":           countReasoning,
		"usage.total_tokens":                                     countTotal,
		"type":                                                   saysKind,
		"code":                                                   saysErrorCode,
		"error.code":                                             saysErrorCode,
		"error.type":                                             saysErrorType,
		"response.error.code":                                    saysErrorCode,
	},
	Messages: {
		"message.usage.input_tokens":                  countInput,
		"message.usage.cache_read_input_tokens":       countCached,
		"message.usage.cache_creation_input_tokens":   countWritten,
		"message.usage.output_tokens":                 countOutput,
		"usage.input_tokens":                          countInput,
		"usage.cache_read_input_tokens":               countCached,
		"usage.cache_creation_input_tokens":           countWritten,
		"usage.output_tokens":                         countOutput,
		"usage.output_tokens_details.thinking_tokens": countReasoning,
		"type":              saysKind,
		"delta.stop_reason": saysFinished,
		"stop_reason":       saysFinished,
		"error.type":        saysErrorType,
	},
	Gemini: {
		"usageMetadata.promptTokenCount":        countInput,
		"usageMetadata.cachedContentTokenCount": countCached,
		"usageMetadata.candidatesTokenCount":    countOutput,
		"usageMetadata.thoughtsTokenCount":      countReasoning,
		"usageMetadata.toolUsePromptTokenCount": countTool,
		"usageMetadata.totalTokenCount":         countTotal,
		"candidates.[].finishReason":            saysFinished,
		"promptFeedback.blockReason":            saysBlocked,
		"error.status":                          saysErrorCode,
	},
}

// event is what one event, or a whole answer, says.
type event struct {
	counts
	kind                 string
	errorCode, errorType string
	finished, blocked    bool
}

func newEvent() event {
	var e event
	for i := range e.counts {
		e.counts[i] = -1
	}
	return e
}

// maxTokens is more than any answer has; so much can be added up without overflow.
const maxTokens = 1 << 40

func (e *event) set(f field, kind byte, text []byte) {
	switch f {
	case saysKind:
		e.kind = string(text)
	case saysFinished, saysBlocked:
		said := kind == '"' && len(text) > 0
		e.finished, e.blocked = e.finished || said, e.blocked || said && f == saysBlocked
	case saysErrorCode:
		e.errorCode = string(text)
	case saysErrorType:
		e.errorType = string(text)
	default:
		n, err := strconv.ParseFloat(string(text), 64)
		if err == nil && n >= 0 && kind != '"' {
			e.counts[f] = int64(min(n, maxTokens))
		}
	}
}

// error is the vendor's code of an error as it may be written in records.
func (e *event) error() string {
	code := e.errorCode
	if code == "" {
		code = e.errorType
	}
	for _, c := range []byte(code) {
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
			return "unknown"
		}
	}
	return code
}

// usage puts the numbers in the contract's order, as far as they can be true:
// parts are not more than their whole, and the whole is not less than its parts.
func (c *counts) usage(api API) Usage {
	n := func(f field) int64 { return max(c[f], 0) }
	u := Usage{Input: n(countInput), Cached: n(countCached), Written: n(countWritten), Output: n(countOutput), Reasoning: n(countReasoning)}
	switch api {
	case Messages: // whose input_tokens are those that no cache had to do with
		u.Input += u.Cached + u.Written
	case Gemini:
		u.Input += n(countTool)
		u.Output += u.Reasoning
	}
	// Some servers of Chat Completions leave reasoning out of completion_tokens.
	u.Output = max(u.Output, n(countTotal)-u.Input)
	u.Cached = min(u.Cached, u.Input)
	u.Written = min(u.Written, u.Input-u.Cached)
	u.Reasoning = min(u.Reasoning, u.Output)
	return u
}

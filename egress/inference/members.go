package inference

// rule judges one member of a request. null is the same as no member.
type rule func(*judge, int) error

// members are those of the outermost object that are known; without a rule they
// pass whatever they say. The lists are the vendors' references as their SDKs of
// 2026 have them (openai-go v3.99, anthropic-sdk-go v2.15, genai v1.77), and what
// makers of models that speak Chat Completions have added to it.
var members = map[API]map[string]rule{
	Chat: {
		"model": (*judge).model, "messages": (*judge).conversation, "tools": (*judge).tools,
		"stream": (*judge).stream, "stream_options": (*judge).streamOptions,
		"max_tokens": (*judge).cap, "max_completion_tokens": (*judge).cap,
		"n": (*judge).one, "best_of": (*judge).one,
		"service_tier": (*judge).tier, "modalities": (*judge).textOnly, "audio": dearer,
		"web_search_options": hosted, "prediction": dearer, "models": hosted, "plugins": hosted,
		"enable_search": hosted, "search_parameters": hosted,

		"frequency_penalty": nil, "function_call": nil, "functions": nil, "logit_bias": nil, "logprobs": nil,
		"metadata": nil, "parallel_tool_calls": nil, "presence_penalty": nil, "prompt_cache_key": nil,
		"prompt_cache_options": nil, "prompt_cache_retention": nil, "reasoning_effort": nil, "response_format": nil,
		"safety_identifier": nil, "seed": nil, "stop": nil, "store": nil, "temperature": nil, "tool_choice": nil,
		"top_logprobs": nil, "top_p": nil, "user": nil, "verbosity": nil,

		"chat_template_kwargs": nil, "enable_thinking": nil, "include_reasoning": nil, "min_p": nil,
		"preserve_thinking": nil, "reasoning": nil, "reasoning_split": nil, "repetition_penalty": nil,
		"thinking": nil, "thinking_budget": nil, "tool_stream": nil, "top_k": nil, "usage": nil, "vl_high_resolution_images": nil,
	},
	Responses: {
		"model": (*judge).model, "input": (*judge).conversation, "instructions": (*judge).conversation,
		"tools":  (*judge).tools,
		"stream": (*judge).stream, "max_output_tokens": (*judge).cap,
		"service_tier": (*judge).tier, "background": hosted, "context_management": hosted, "conversation": hosted,
		"previous_response_id": hosted, "prompt": hosted, "moderation": hosted,

		"access_programs": nil, "client_metadata": nil, "image": (*judge).conversation, "include": nil,
		"max_tool_calls": nil, "metadata": nil, "parallel_tool_calls": nil, "prompt_cache_key": nil,
		"prompt_cache_options": nil, "prompt_cache_retention": nil, "reasoning": nil, "safety_identifier": nil,
		"store": nil, "stream_options": nil, "temperature": nil, "text": nil, "tool_choice": nil,
		"top_logprobs": nil, "top_p": nil, "truncation": nil, "user": nil,
	},
	Messages: {
		"model": (*judge).model, "messages": (*judge).conversation, "system": (*judge).conversation,
		"tools": (*judge).tools, "stream": (*judge).stream, "max_tokens": (*judge).cap, "thinking": (*judge).thinking,
		"service_tier": (*judge).tier, "speed": (*judge).tier, "inference_geo": (*judge).tier,
		"cache_control": (*judge).cache, "context_management": (*judge).contextManagement,
		"container": hosted, "mcp_servers": hosted, "fallbacks": hosted, "fallback_credit_token": hosted,
		"thread": hosted, "compaction": hosted, "billing_policy": hosted,

		"diagnostics": nil, "metadata": nil, "output_config": nil, "output_format": nil, "stop_sequences": nil,
		"temperature": nil, "tool_choice": nil, "top_k": nil, "top_p": nil,
	},
	Gemini: {
		"model": (*judge).model, "contents": (*judge).conversation,
		"systemInstruction": (*judge).conversation, "system_instruction": (*judge).conversation,
		"tools": (*judge).tools, "generationConfig": (*judge).generation, "generation_config": (*judge).generation,
		"cachedContent": hosted, "cached_content": hosted, "serviceTier": (*judge).tier, "service_tier": (*judge).tier,
		"generateContentRequest": (*judge).wrapped, "generate_content_request": (*judge).wrapped,

		"labels": nil, "safetySettings": nil, "safety_settings": nil, "store": nil, "toolConfig": nil, "tool_config": nil,
	},
}

// generation are the members of Gemini's generationConfig.
var generation = map[string]rule{
	"maxOutputTokens": (*judge).cap, "candidateCount": (*judge).one, "responseModalities": (*judge).textOnly,
	"speechConfig": dearer, "imageConfig": dearer,

	"enableEnhancedCivicAnswers": nil, "frequencyPenalty": nil, "logprobs": nil, "mediaResolution": nil,
	"presencePenalty": nil, "responseFormat": nil, "responseJsonSchema": nil, "_responseJsonSchema": nil, "responseLogprobs": nil,
	"responseMimeType": nil, "responseSchema": nil, "seed": nil, "stopSequences": nil, "temperature": nil,
	"thinkingConfig": nil, "topK": nil, "topP": nil,
}

// hosted refuses a member that would have the vendor use what is not in the
// request, or ask another model.
func hosted(j *judge, i int) error {
	if j.nothing(i) {
		return nil
	}
	return refuse(RefuseHosted, "the request uses "+quoted(j.name(i))+", for which the vendor uses more than the request")
}

// dearer refuses a member that makes the answer cost more.
func dearer(j *judge, i int) error {
	if j.nothing(i) || j.rules.Dearer {
		return nil
	}
	return refuse(RefusePrice, "the request uses "+quoted(j.name(i))+", which has a price of its own")
}

// nothing reports whether a member says no more than one that is not there.
func (j *judge) nothing(i int) bool {
	return j.kind(i) == 'n' || j.kind(i) == 'f' || j.kind(i) == '[' && int(j.values[i].next) == i+1
}

func (j *judge) model(i int) error {
	name := string(j.str(i))
	if j.named { // Gemini, whose path has it
		if name != "models/"+j.out.Model {
			return refuse(RefuseForm, "the request names a model in its path, and another in its body")
		}
		return nil
	}
	j.out.Model = name
	return j.isModel(name)
}

func (j *judge) stream(i int) error {
	switch j.kind(i) {
	case 't':
		j.out.Stream = true
	case 'f', 'n':
	default:
		return refuse(RefuseForm, `"stream" is neither true nor false`)
	}
	return nil
}

// one refuses several answers to one request, each of which may be as long as the
// cap.
func (j *judge) one(i int) error {
	if n, ok := j.number(i); j.kind(i) == 'n' || ok && n <= 1 {
		return nil
	}
	return refuse(RefuseForm, "the request asks for several answers with "+quoted(j.name(i)))
}

// cap notes a cap. Gemini takes 0 for none.
func (j *judge) cap(i int) error {
	n, ok := j.number(i)
	v := &j.values[i]
	switch {
	case j.kind(i) == 'n' || ok && n == 0 && j.out.API == Gemini:
		n = -1
	case !ok:
		return refuse(RefuseForm, quoted(j.name(i))+" is no whole number")
	}
	j.out.caps = append(j.out.caps, limit{start: v.start, end: v.end, value: n})
	j.out.Output = max(j.out.Output, n)
	return nil
}

// usual are the tiers, speeds and regions whose price is the one in the price list.
// OpenAI's auto is what the project is set to, which is not the client's doing.
var usual = map[string]bool{"": true, "auto": true, "default": true, "standard": true, "standard_only": true, "unspecified": true,
	"global": true, "not_available": true, "SERVICE_TIER_UNSPECIFIED": true, "STANDARD": true}

func (j *judge) tier(i int) error {
	if j.rules.Dearer || j.kind(i) == 'n' || j.kind(i) == '"' && usual[string(j.str(i))] {
		return nil
	}
	return refuse(RefusePrice, "the request asks for another "+quoted(j.name(i))+" than the usual, which has a price of its own")
}

func (j *judge) textOnly(i int) error {
	for e := range j.each(i) {
		if !j.is(e, "text") && !j.is(e, "TEXT") && !j.rules.Dearer {
			return refuse(RefusePrice, "the request asks for an answer that is not text, which has a price of its own")
		}
	}
	if k := j.kind(i); k != '[' && k != 'n' {
		return refuse(RefuseForm, quoted(j.name(i))+" is no list")
	}
	return nil
}

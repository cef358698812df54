// Package inference knows the wire of models' APIs from between a client and a
// vendor: which model a request asks, how much it can come to, what of it the
// vendor would fetch or run by itself, and what an answer says that it has come
// to. It changes two things of a request, the cap of its output and the switch that
// has a stream say its usage, and leaves every other byte as it was.
//
// The package does no input and output, and knows neither connections nor budgets.
package inference

import "context"

// API is a vendor's protocol.
type API string

// The protocols. They are written in records: append only.
const (
	Chat      API = "openai-chat"        // POST …/chat/completions
	Responses API = "openai-responses"   // POST …/responses
	Messages  API = "anthropic-messages" // POST …/messages, …/messages/count_tokens
	Gemini    API = "gemini-generate"    // POST …/models/NAME:generateContent, :streamGenerateContent, :countTokens
)

// Host is a vendor's host as a sandbox may use it: nothing but its Calls passes.
type Host struct {
	// Name is what the sandbox calls it, in canonical form: in a connection of TLS,
	// which ends in the gateway, to port 443, or as the first segment of a path at the
	// gateway's own door (egress.ModelPort), which is plain HTTP.
	Name string `json:"name"`
	// Upstream is where its requests go: an http or https URL, whose path takes the
	// place of Base at the beginning of a request's. Empty is https://Name, port 443,
	// and the paths as they are. It comes from the host's configuration, so that its
	// address may be one that no policy would allow.
	Upstream string `json:"upstream,omitempty"`
	Base     string `json:"base,omitempty"`

	Calls []Call `json:"calls"`
	Rules
}

// Call is a kind of request that may pass.
type Call struct {
	Methods []string `json:"methods"`
	Path    string   `json:"path"` // exact, or ending in *
	// API of requests that a model answers. Empty: none does, the request has no
	// body, and costs nothing.
	API API `json:"api,omitempty"`
	// Free: the request is one of API's, and costs nothing: it counts tokens.
	Free bool `json:"free,omitempty"`
}

// Rules say what a request may ask for.
type Rules struct {
	// Models are names, exact or ending in *. Empty is none.
	Models []string `json:"models,omitempty"`
	// Hosted are the types of tools that the vendor itself runs, such as
	// web_search_20250305, exact or ending in *. Empty is none.
	Hosted []string `json:"hosted,omitempty"`
	// URLs lets the vendor fetch what a request names by an http or https URL.
	URLs bool `json:"urls,omitempty"`
	// Dearer lets a request ask for what costs more than the price list says: tiers
	// of service, fast modes, a region, caches of an hour. Limits of money then do
	// not hold, those of tokens do.
	Dearer bool `json:"dearer,omitempty"`
	// Members are further members of a request's outermost object that may pass,
	// whatever they say: of a client newer than this package, for example.
	Members []string `json:"members,omitempty"`
}

// Ask is what one request may come to, for who keeps the budget.
type Ask struct {
	Host   string `json:"host"`
	API    API    `json:"api"`
	Model  string `json:"model"`
	Stream bool   `json:"stream,omitempty"`
	// Input is the most tokens that the request can be: what was counted for its
	// unchanged beginning, and one for each new byte. Likely counts a new byte for
	// half a token, which text of languages and programs stays below.
	Input  int64 `json:"input"`
	Likely int64 `json:"likely"`
	// Output is the cap that the request has, in tokens; 0 is none.
	Output int64 `json:"output,omitempty"`
	// Least is the smallest cap with which its vendor takes the request: with less it
	// must not go on. 0 is 1.
	Least int64 `json:"least,omitempty"`
	// Turn is a hash of what the request adds to those before: whoever repeats
	// itself repeats it.
	Turn string `json:"turn"`
	// CallID is the command that asks, where that is known.
	CallID string `json:"call_id,omitempty"`
}

// Grant lets a request go on, or says why it must not.
type Grant struct {
	Output int64 `json:"output,omitempty"` // the cap it is sent with, at least 1
	Stop   *Stop `json:"stop,omitempty"`   // instead
}

// Stop is why a request does not go on.
type Stop struct {
	Code   StopCode `json:"code"`
	Reason string   `json:"reason"` // a sentence, which the client is told
}

// StopCode classifies a Stop; append only.
type StopCode string

// The codes.
const (
	StopBudget StopCode = "budget" // a limit of the run is used up
	StopModel  StopCode = "model"  // the model is none that may be asked
	StopClosed StopCode = "closed" // nobody keeps the budget any more
	StopAsked  StopCode = "asked"  // it asks for what it must not have
)

// Usage is what a vendor counted, in tokens. Input includes Cached, which was read
// from the vendor's cache, and Written, which was written to it; Output includes
// Reasoning.
type Usage struct {
	Known     bool  `json:"known"`
	Input     int64 `json:"input,omitempty"`
	Cached    int64 `json:"cached,omitempty"`
	Written   int64 `json:"written,omitempty"`
	Output    int64 `json:"output,omitempty"`
	Reasoning int64 `json:"reasoning,omitempty"`
}

// Ended is what became of a request.
type Ended struct {
	Usage      Usage  `json:"usage"`
	Status     int    `json:"status,omitempty"` // of the answer; 0: there was none
	Sent       bool   `json:"sent"`             // something of it went out
	Cut        bool   `json:"cut,omitempty"`    // the answer has no proper end
	Error      string `json:"error,omitempty"`  // the vendor's code of an error, or why there is no answer
	DurationMS int64  `json:"duration_ms"`
}

// Meter keeps the budget. It is called concurrently.
type Meter interface {
	// Begin sets aside what a request may come to and grants it, or refuses it with
	// Grant.Stop. Where it was granted, end must be called once, whatever becomes of
	// the request. An error says that nobody could be asked: the request must not
	// go on.
	Begin(ctx context.Context, a Ask) (g Grant, end func(Ended), err error)
}

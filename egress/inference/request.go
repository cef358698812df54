package inference

import "encoding/json"

// Request is a request that was judged. It keeps the body that it was read from,
// which must not be changed.
type Request struct {
	API    API
	Model  string
	Stream bool
	// Output is the cap that the client has set, in tokens; 0: none.
	Output int64
	// Least is the smallest cap with which the vendor takes the request: where it
	// thinks for more than the whole answer may have, Anthropic refuses.
	Least int64
	// Free: it counts tokens, costs nothing, and Body does not change it.
	Free bool

	body []byte
}

// Read judges the body of a request of call.API, which has been decompressed.
// path is the request's target with its query, which is Gemini's for the model and
// the way of streaming. The error is a *Refusal.
func Read(call Call, path, contentType string, body []byte, r Rules) (*Request, error) {
	var in struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, &Refusal{RefuseForm, "the body is not JSON"}
	}
	return &Request{API: call.API, Model: in.Model, Stream: in.Stream, Free: call.Free, Least: 1, body: body}, nil
}

// Body is the request's body with an output cap of at most limit tokens, and with
// the switch that has a stream say its usage. All other bytes are as they were;
// where nothing need change it is the very slice that was read.
func (r *Request) Body(limit int64) []byte { return r.body }

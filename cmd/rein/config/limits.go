package config

// Limits are the brakes of a run. A zero takes the preset's number; there is
// no "without limit". The flags of "rein run" have the same names, with dashes.
type Limits struct {
	Preset         string   `json:"preset,omitempty" jsonschema:"the numbers to start from: quick, standard or long"`
	CallTimeout    Duration `json:"call_timeout,omitempty" jsonschema:"how long one command may take when the model asks for nothing"`
	MaxCallTimeout Duration `json:"max_call_timeout,omitempty" jsonschema:"the most a command may ask for"`
	OutputBytes    Size     `json:"output_bytes,omitempty" jsonschema:"bytes of a call's output shown to the model"`
	OutputLines    int      `json:"output_lines,omitempty" jsonschema:"lines of a call's output shown to the model"`
	MaxSteps       int      `json:"max_steps,omitempty" jsonschema:"replies of the model in a round"`
	MaxToolCalls   int      `json:"max_tool_calls,omitempty" jsonschema:"tool calls in a round"`
	MaxWallTime    Duration `json:"max_wall_time,omitempty" jsonschema:"time from the start of a run to its end"`
	MaxTokens      int64    `json:"max_tokens,omitempty" jsonschema:"tokens of a run, input and output"`
	MaxCost        float64  `json:"max_cost,omitempty" jsonschema:"dollars of a run"`
	TTL            Duration `json:"ttl,omitempty" jsonschema:"time to live of the sandbox at birth; derived from max_wall_time when left out"`
}

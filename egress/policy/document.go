package policy

// Document is a policy as it is written. The zero Document denies everything.
type Document struct {
	Default    string   `json:"default,omitempty" jsonschema:"what is done with a target of which no rule speaks: deny or ask; deny unless set"`
	Mode       string   `json:"mode,omitempty" jsonschema:"strictest: of all rules that speak of a target, the strictest counts; ordered: the first; strictest unless set"`
	ReportOnly bool     `json:"report_only,omitempty" jsonschema:"what would be denied passes and is recorded, except addresses that are not public"`
	Bundles    []string `json:"bundles,omitempty" jsonschema:"lists of hosts by name: pypi, npm, debian, go, crates, github-read, github:OWNER/REPO, huggingface"`
	Rules      []Rule   `json:"rules,omitempty" jsonschema:"what may be reached"`
	Limits     Limits   `json:"limits,omitzero" jsonschema:"what one sandbox may take of the network"`

	// Origin is who wrote the document. It is no part of what is written, so
	// that no document can say it of itself: whoever has decoded one from a
	// place that only the host writes sets it.
	Origin Origin `json:"-"`
}

// Origin is who wrote a Document.
type Origin string

// The origins. Any other may not default to allow and not only report.
const (
	OriginHost Origin = "host" // the host's configuration or command line
	OriginAPI  Origin = "api"  // a caller of an API, in code or over the network
)

// Values of Document.Default and Rule.Action.
const (
	ActionDeny  = "deny"
	ActionAsk   = "ask"
	ActionAllow = "allow" // as a default only in ModeOrdered, and only from a known Origin
)

// Values of Document.Mode.
const (
	ModeStrictest = "strictest"
	ModeOrdered   = "ordered"
)

// Rule speaks of a name or of addresses.
type Rule struct {
	Host    string   `json:"host,omitempty" jsonschema:"a name, or *.name for every name beneath it, without the name itself"`
	CIDR    string   `json:"cidr,omitempty" jsonschema:"an address, or a range such as 192.0.2.0/24; instead of host"`
	Ports   []int    `json:"ports,omitempty" jsonschema:"unless set: the port of proto, or 443 and 80; of action deny: every port"`
	Proto   string   `json:"proto,omitempty" jsonschema:"tls, https, http or tcp; unless set: tls on port 443 and http on port 80, and for other ports it must be said; https ends TLS in the gateway, which then sees methods and paths"`
	Action  string   `json:"action,omitempty" jsonschema:"allow, ask or deny; allow unless set"`
	Methods []string `json:"methods,omitempty" jsonschema:"methods of HTTP that are allowed; of proto http and https only"`
	Paths   []string `json:"paths,omitempty" jsonschema:"paths that are allowed, exact or ending in *; of proto http and https only"`
}

// Limits bound what one sandbox takes. Zero is the gateway's own limit.
type Limits struct {
	Connections    int   `json:"connections,omitempty" jsonschema:"connections open at once"`
	PerSecond      int   `json:"per_second,omitempty" jsonschema:"new connections per second"`
	Bytes          int64 `json:"bytes,omitempty" jsonschema:"bytes, both ways, in the sandbox's life"`
	MaxUploadBytes int64 `json:"max_upload_bytes,omitempty" jsonschema:"bytes sent, in the sandbox's life"`
	IdleSeconds    int   `json:"idle_seconds,omitempty" jsonschema:"seconds that a connection may carry nothing"`
}

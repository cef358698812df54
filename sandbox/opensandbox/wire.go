package opensandbox

import (
	"strings"
	"time"
)

// The lifecycle API's objects, as far as they are used. Readers are tolerant:
// unknown members are ignored and unknown states passed through.
// Source: specs/sandbox-lifecycle.yml of OpenSandbox.

// keyHeader carries the API key.
const keyHeader = "OPEN-SANDBOX-API-KEY"

// egressPort is where the sidecar that enforces the network policy listens
// (specs/egress-api.yaml).
const egressPort = 18080

type createRequest struct {
	Image          imageSpec         `json:"image"`
	Entrypoint     []string          `json:"entrypoint"`
	Timeout        int64             `json:"timeout"` // seconds
	ResourceLimits map[string]string `json:"resourceLimits"`
	Env            map[string]string `json:"env,omitempty"`
	Metadata       map[string]string `json:"metadata"`
	NetworkPolicy  networkPolicy     `json:"networkPolicy"`
}

type imageSpec struct {
	URI string `json:"uri"`
}

// networkPolicy without rules and with defaultAction deny lets nothing out.
type networkPolicy struct {
	DefaultAction string       `json:"defaultAction"`
	Egress        []egressRule `json:"egress"`
}

type egressRule struct {
	Action string `json:"action"`
	Target string `json:"target"`
}

// denyAll is the policy of every sandbox.
func denyAll() networkPolicy { return networkPolicy{DefaultAction: "deny", Egress: []egressRule{}} }

// policyStatus is the sidecar's answer to GET /policy.
type policyStatus struct {
	Mode            string         `json:"mode"`
	EnforcementMode string         `json:"enforcementMode"`
	Policy          *networkPolicy `json:"policy"`
}

// remote is a sandbox as the server describes it.
type remote struct {
	ID     string     `json:"id"`
	Image  *imageSpec `json:"image"`
	Status struct {
		State   string `json:"state"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"status"`
	Metadata  map[string]string `json:"metadata"`
	ExpiresAt stamp             `json:"expiresAt"`
	CreatedAt stamp             `json:"createdAt"`
}

type page struct {
	Items      []remote `json:"items"`
	Pagination struct {
		HasNextPage bool `json:"hasNextPage"`
	} `json:"pagination"`
}

type endpoint struct {
	Endpoint string            `json:"endpoint"` // host[:port][/path], without a scheme
	Headers  map[string]string `json:"headers"`
}

type renewal struct {
	ExpiresAt stamp `json:"expiresAt"`
}

// stamp is a time on the server's clock. One without a zone is UTC, as the
// server itself reads it; null and "" are none.
type stamp struct{ time.Time }

func (s *stamp) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if text == "" || text == "null" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04:05.999999999", text)
	}
	s.Time = t
	return err
}

func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(`"` + s.UTC().Format("2006-01-02T15:04:05.000Z") + `"`), nil
}

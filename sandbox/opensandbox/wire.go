package opensandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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

	// CredentialProxy has TLS end in the sidecar, which secrets need.
	CredentialProxy *credentialProxy `json:"credentialProxy,omitempty"`
}

type credentialProxy struct {
	Enabled bool `json:"enabled"`
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

// String names a policy in errors.
func (n networkPolicy) String() string {
	if len(n.Egress) == 0 {
		return fmt.Sprintf("\"default: %s\"", n.DefaultAction)
	}
	return fmt.Sprintf("\"default: %s\" with %d rules", n.DefaultAction, len(n.Egress))
}

// denyAll is the policy of a sandbox of which nothing else is asked.
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
	Items      items `json:"items"`
	Pagination struct {
		HasNextPage bool `json:"hasNextPage"`
	} `json:"pagination"`
}

// items are the sandboxes of one page, and how many bytes they were.
type items struct {
	list []remote
	size int
}

// Bounds of a listing, of which a page is asked for with pageSize, the most that
// the server gives at once.
const (
	pageSize   = 200
	maxPages   = 100
	maxListing = 16 << 20 // bytes; a sandbox has some 800
)

// errTooMany is an answer with more sandboxes than are read.
var errTooMany = errors.New("the server lists more sandboxes than are read")

// UnmarshalJSON reads no more than a page holds: of "{}" after "{}" a few
// megabytes would become hundreds.
func (i *items) UnmarshalJSON(b []byte) error {
	*i = items{size: len(b)}
	if string(b) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("items is no list")
	}
	for d.More() {
		if len(i.list) == pageSize {
			return fmt.Errorf("%w: more than %d on one page", errTooMany, pageSize)
		}
		var r remote
		if err := d.Decode(&r); err != nil {
			return err
		}
		i.list = append(i.list, r)
	}
	return nil
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

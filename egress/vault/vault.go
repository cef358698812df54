// Package vault gives a sandbox's requests the credentials that the sandbox
// itself does not have. What it has are placeholders: texts that look like the
// credentials and are worth nothing. The gateway, which has ended TLS, asks the
// vault about each request: whether what stands where credentials do is the
// placeholder of a secret that is bound to this host, port, method and path, and
// then puts the secret in its place. A placeholder anywhere else, and any
// credential that is not this sandbox's, is refused: the first is a secret on its
// way to where it does not belong, the second somebody else's account, into which
// data could be carried.
//
// The package does no input and output, and knows no connections.
package vault

import (
	"fmt"

	"github.com/rein-sh/rein/secret"
)

// Secret is one credential and what it is for.
type Secret struct {
	Name  string       `json:"name"`
	Value secret.Value `json:"-"`

	// Variable is the environment variable whose value inside is the
	// placeholder; empty is none: then only what needs no placeholder is given
	// the secret.
	Variable string `json:"variable,omitempty"`

	Use []Binding `json:"use"`
}

// Binding is one use of a secret: where, and in what form.
type Binding struct {
	Host    string   `json:"host" jsonschema:"the exact name of a host"`
	Ports   []int    `json:"ports,omitempty" jsonschema:"443 unless set"`
	Methods []string `json:"methods,omitempty" jsonschema:"methods of requests that are given it; all unless set"`
	Paths   []string `json:"paths,omitempty" jsonschema:"paths of requests that are given it, exact or ending in *; all unless set"`

	As   Form    `json:"as" jsonschema:"bearer, header, basic, query, substitute or aws4"`
	Name string  `json:"name,omitempty" jsonschema:"of header: the field; of query: the parameter"`
	User string  `json:"user,omitempty" jsonschema:"of basic: the user; x-access-token for tokens of GitHub"`
	In   []Place `json:"in,omitempty" jsonschema:"of substitute: header, query, path, body"`

	// AccessKey is, of aws4, the id of the access key: it is not secret.
	AccessKey string `json:"access_key,omitempty" jsonschema:"of aws4: the id of the access key"`
}

// Form is how a request carries a secret.
type Form string

// The forms.
const (
	Bearer     Form = "bearer"     // Authorization: Bearer (RFC 6750 2.1)
	Header     Form = "header"     // a field of its own
	Basic      Form = "basic"      // Authorization: Basic (RFC 7617); git over HTTPS
	Query      Form = "query"      // a parameter of the query
	Substitute Form = "substitute" // wherever the placeholder stands, in some places
	AWS4       Form = "aws4"       // AWS Signature Version 4: signed again
)

// Place is a part of a request in which placeholders are substituted.
type Place string

// The places.
const (
	InHeader Place = "header"
	InQuery  Place = "query"
	InPath   Place = "path"
	InBody   Place = "body"
)

// Target is where a connection leads.
type Target struct {
	Host string // in its canonical form
	Port uint16
}

func (t Target) String() string { return fmt.Sprintf("%s:%d", t.Host, t.Port) }

// The rules of a Refusal. They are written in records: append only.
const (
	RuleLeak    = "vault.leak"    // a placeholder is where it may not be
	RuleForeign = "vault.foreign" // a credential that is not this sandbox's
	RuleForm    = "vault.form"    // the request cannot be given its credential
)

// Refusal is why a request may not pass. It never holds a secret or placeholder.
type Refusal struct {
	Rule   string
	Reason string
	Told   bool // Grant.Found was told of it
}

func (r *Refusal) Error() string { return r.Rule + ": " + r.Reason }

func refuse(rule, format string, args ...any) *Refusal {
	return &Refusal{Rule: rule, Reason: fmt.Sprintf(format, args...)}
}

// Fault is one thing wrong with secrets, as policy.Fault is with policies.
type Fault struct {
	Path    string // such as github.use[1].host
	Message string
	Hint    string // may be empty
}

func (f Fault) String() string {
	s := f.Path + ": " + f.Message
	if f.Hint != "" {
		s += " (" + f.Hint + ")"
	}
	return s
}

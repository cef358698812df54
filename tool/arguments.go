package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rein-sh/rein/evidence"
)

// MaxArguments bounds what is parsed of one call, in bytes: a file as large as
// write_file takes, escaped.
const MaxArguments = 8 << 20

func resolve(schema json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	if s.Type != "object" {
		return nil, errors.New("it must describe an object")
	}
	return s.Resolve(nil)
}

// object parses arguments. Models that mean "none" send nothing, or null.
func object(raw json.RawMessage) (any, error) {
	if s := string(bytes.TrimSpace(raw)); s == "" || s == "null" {
		return map[string]any{}, nil
	}
	if len(raw) > MaxArguments {
		return nil, fmt.Errorf("the arguments have %d bytes, more than %d", len(raw), MaxArguments)
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("the arguments are not UTF-8")
	}
	var v any
	if json.Unmarshal(raw, &v) == nil {
		return v, nil
	}
	v = nil
	d := json.NewDecoder(bytes.NewReader(raw)) // which tells where the fault is
	if err := d.Decode(&v); err != nil {
		at := d.InputOffset()
		if se, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = se.Offset
		}
		if err == io.ErrUnexpectedEOF {
			return nil, fmt.Errorf("the JSON ends in the middle, after %d bytes", len(raw))
		}
		return nil, fmt.Errorf("invalid JSON at byte %d: %v", at, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("invalid JSON at byte %d: something follows the object", d.InputOffset())
	}
	return v, nil
}

var (
	validating = regexp.MustCompile(`^validating (root|/[^:]*): `)
	keywords   = regexp.MustCompile(`/(properties|items|additionalProperties)(/|$)`)
	fraction   = regexp.MustCompile(`\b(\d+)/1\b`)
	zeros      = regexp.MustCompile(`\b(\d+)\.0+\b`)
)

// fault takes the path of the faulty value, as a JSON pointer, and what is
// wrong with it out of a validation error, whose text names each schema on the
// way to the fault.
func fault(err error) (where, what string) {
	what = err.Error()
	for {
		m := validating.FindStringSubmatch(what)
		if m == nil {
			break
		}
		if where = ""; m[1] != "root" {
			where = m[1]
		}
		what = what[len(m[0]):]
	}
	for keywords.MatchString(where) {
		where = keywords.ReplaceAllString(where, "/")
	}
	where = "arguments" + strings.TrimSuffix(where, "/")
	what = zeros.ReplaceAllString(fraction.ReplaceAllString(what, "$1"), "$1")
	return where, evidence.Cut(what, 300)
}

// decode reads arguments that have been validated.
func decode[T any](c Call) (T, error) {
	var v T
	err := json.Unmarshal(c.Arguments, &v)
	return v, err
}

package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Telemetry says which collector of OpenTelemetry is told of runs. Nothing is
// sent unless an endpoint is named here or in the environment.
type Telemetry struct {
	Endpoint string         `json:"endpoint,omitempty" jsonschema:"address of the collector, such as http://127.0.0.1:4318; empty is OTEL_EXPORTER_OTLP_ENDPOINT, and without that nothing is sent"`
	Headers  map[string]Key `json:"headers,omitempty" jsonschema:"headers of each request: where the host finds each value; one of env, file, command"`
	Protocol string         `json:"protocol,omitempty" jsonschema:"http/protobuf, the only one there is"`
	Content  bool           `json:"content,omitempty" jsonschema:"also send what was said: task, messages, arguments and results, masked"`
}

// ProtocolHTTP is the value of Telemetry.Protocol.
const ProtocolHTTP = "http/protobuf"

func (v *validator) telemetry(t Telemetry) {
	v.oneOf("telemetry.protocol", t.Protocol, []string{ProtocolHTTP})
	if t.Endpoint != "" {
		switch u, err := url.Parse(t.Endpoint); {
		case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
			v.fault("telemetry.endpoint", "such as http://127.0.0.1:4318", "no http or https address")
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			v.fault("telemetry.endpoint", "put what identifies you under headers:", "an address must not contain a user, a password or a query")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		at := "telemetry.headers." + name
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			v.fault(at, "such as authorization", "%s is no name of a header", fmt.Sprintf("%q", name))
		}
		v.key(at, t.Headers[name], true)
	}
}

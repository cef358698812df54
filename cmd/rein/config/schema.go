package config

import (
	"encoding/json"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rein-sh/rein/sandbox"
)

const sizePattern = `^[0-9.]+ *([KMGT]i?B|B)?$`

// Schema returns the JSON Schema of a configuration file, made from the types.
// Editors that check YAML against a schema can use it.
func Schema(known Known) ([]byte, error) {
	text := func(description, pattern string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Description: description, Pattern: pattern}
	}
	s, err := jsonschema.For[Config](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[Size]():     {Types: []string{"string", "integer"}, Pattern: sizePattern},
		reflect.TypeFor[Duration](): text("a number and a unit, such as 90s, 15m or 2h", ""),
		reflect.TypeFor[Price]():    text("dollars per million tokens: INPUT,OUTPUT[,CACHED[,CACHE_WRITE]]", `^[0-9.]+( *, *[0-9.]+){1,3}$`),
		reflect.TypeFor[sandbox.Capability](): {
			Type: "string", Enum: anys(capabilityNames()),
		},
	}})
	if err != nil {
		return nil, err
	}
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "rein configuration"
	s.Properties["limits"].Properties["preset"].Enum = anys(known.Presets)
	s.Properties["targets"].AdditionalProperties.Properties["provider"].Enum = anys(known.Providers)
	s.Properties["models"].AdditionalProperties.Properties["vendor"].Enum = anys(known.Vendors)
	limits := s.Properties["targets"].AdditionalProperties.Properties["network"].Properties["limits"].Properties
	for _, key := range []string{"bytes", "max_upload_bytes"} { // plain numbers for everybody else
		limits[key].Type, limits[key].Types, limits[key].Pattern = "", []string{"string", "integer"}, sizePattern
	}
	return json.MarshalIndent(s, "", "  ")
}

func anys(names []string) []any {
	out := make([]any, len(names))
	for i, n := range names {
		out[i] = n
	}
	return out
}

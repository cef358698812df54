package egress

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of a sandbox's egress. A field that is 0 has its value from
// DefaultLimits; a negative one is an error. What a limit stops is recorded
// with the rule "limit:" and the limit's name.
type Limits struct {
	Connections    int   // limit:connections, open or being opened at once
	NewPerSecond   int   // limit:new_per_second, on average; ten times as many may come at once
	Bytes          int64 // limit:bytes, both ways in total
	MaxUploadBytes int64 // limit:max_upload_bytes, from the sandbox in total
	Dials          int   // limit:dials, host connections being made at once
	Questions      int   // limit:questions, that wait for an answer at once
	Names          int   // limit:names, that were given an address
	NamesPerMinute int   // limit:names_per_minute, distinct ones below wildcards
}

// DefaultLimits are the limits where nothing else is said.
var DefaultLimits = Limits{
	Connections:    256,
	NewPerSecond:   50,
	Bytes:          16 << 30,
	MaxUploadBytes: 1 << 30,
	Dials:          32,
	Questions:      3,
	Names:          4096,
	NamesPerMinute: 60,
}

// orDefault returns l with its defaults.
func (l Limits) orDefault() Limits {
	for _, f := range []struct{ v, d *int }{
		{&l.Connections, &DefaultLimits.Connections}, {&l.NewPerSecond, &DefaultLimits.NewPerSecond},
		{&l.Dials, &DefaultLimits.Dials}, {&l.Questions, &DefaultLimits.Questions},
		{&l.Names, &DefaultLimits.Names}, {&l.NamesPerMinute, &DefaultLimits.NamesPerMinute},
	} {
		if *f.v == 0 {
			*f.v = *f.d
		}
	}
	if l.Bytes == 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	if l.MaxUploadBytes == 0 {
		l.MaxUploadBytes = DefaultLimits.MaxUploadBytes
	}
	return l
}

// check says which limits make no sense.
func (l Limits) check() error {
	var bad []string
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"connections", int64(l.Connections)}, {"new_per_second", int64(l.NewPerSecond)},
		{"bytes", l.Bytes}, {"max_upload_bytes", l.MaxUploadBytes}, {"dials", int64(l.Dials)},
		{"questions", int64(l.Questions)}, {"names", int64(l.Names)}, {"names_per_minute", int64(l.NamesPerMinute)},
	} {
		if f.v < 0 {
			bad = append(bad, fmt.Sprintf("limit %s is %d, below zero", f.name, f.v))
		}
	}
	if bad == nil {
		return nil
	}
	return errors.New(strings.Join(bad, "; "))
}

package main

import (
	"reflect"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagNames lists the flags a command takes.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// textValue is a flag whose value reads and writes itself as text.
type textValue[T any, P interface {
	*T
	UnmarshalText([]byte) error
	MarshalText() ([]byte, error)
}] struct {
	p    P
	kind string
}

func (v textValue[T, P]) Set(s string) error { return v.p.UnmarshalText([]byte(s)) }
func (v textValue[T, P]) Type() string       { return v.kind }

// String is empty for the zero value, so that help shows no default for it.
func (v textValue[T, P]) String() string {
	if v.p == nil || reflect.ValueOf(v.p).Elem().IsZero() {
		return ""
	}
	text, err := v.p.MarshalText()
	if err != nil {
		return ""
	}
	return string(text)
}

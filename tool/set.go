package tool

import "context"

// Set is an ordered collection of tools. It is immutable and safe for
// concurrent use.
type Set struct{}

// Definitions lists the tools in order.
func (s *Set) Definitions() []Definition { return nil }

// Run answers one call. Whatever is wrong with it is in the result.
func (s *Set) Run(ctx context.Context, c Call) Result { return Result{} }

// Package agents has the tests that drive the command-line agents themselves, as
// npm has them, in rein wrap: with a scripted model on their vendors' wire, in real
// sandboxes. make test-agents runs all of them.
package agents

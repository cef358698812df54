// Package mcphosts has the tests that have the MCP clients of others use rein mcp: the
// protocol's conformance suite, its inspector, and the command-line agents that are
// hosts of MCP servers, with a scripted model as their vendor. make test-clients runs them:
// what they need is installed from npm first.
package mcphosts

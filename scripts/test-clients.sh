#!/usr/bin/env bash
# test-clients.sh runs pip, npm, git, curl, Go, Node and Java in sandboxes of both
# runtimes, against registries on loopback that have the names, the ports and TLS
# as the real ones do: once where a policy allows them and twice where it does
# not, and what publishes, where a bundle lets it install from. It prints the table.
# As root, because the ports are 443 and 80. Then MCP clients of others use rein mcp.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "the servers listen on ports 443 and 80 of a loopback address: run this as root" >&2
	exit 1
fi
scripts/need.sh runc:runc python3:python3 git:git curl:curl wget:wget node:nodejs npm:npm java:default-jre-headless pip3:python3-pip twine:twine
go test ./internal/clients -run 'TestClients|TestPublishing' -count=1 -timeout=20m -v -args -all | sed -n 's/^ *\(clients\|publish\)_test.go:[0-9]*: //p; /^ *---/p; /^ok/p; /^FAIL/p; /^=== RUN/p'

# MCP clients of others with rein mcp: what they need is installed from npm.
go test ./internal/mcphosts -count=1 -timeout=20m -v -args -all | sed -n 's/^ *[a-z]*_test.go:[0-9]*: //p; /^ *---/p; /^ok/p; /^FAIL/p'

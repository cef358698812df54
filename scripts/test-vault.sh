#!/usr/bin/env bash
# test-vault.sh runs curl, git, pip, npm, Node, Python, Java and Go in sandboxes of
# both runtimes, against servers on loopback that want a key: with the right to use
# one that is not in the sandbox, without, and with somebody else's. It prints the
# table. As root, because the ports are 443 and 80.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "the servers listen on ports 443 and 80 of a loopback address: run this as root" >&2
	exit 1
fi
scripts/need.sh runc:runc python3:python3 git:git curl:curl node:nodejs npm:npm java:default-jre-headless pip3:python3-pip
if ! /usr/bin/python3 -c 'import httpx, h2' 2>/dev/null; then
	scripts/need.sh no-httpx:python3-httpx no-h2:python3-h2
fi
go test ./internal/clients -run TestVault -count=1 -timeout=20m -v -args -all | sed -n 's/^ *vault_test.go:[0-9]*: //p; /^ *---/p; /^ok/p; /^FAIL/p; /^=== RUN/p'

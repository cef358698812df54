#!/usr/bin/env bash
# verify.sh runs the conformance suite on every provider, as root and, where that
# is a way of its own, as an ordinary user, and writes what it has shown into
# docs/verified and docs/capabilities.md.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "as root: the Docker daemon needs it, and some of local's limits do" >&2
	exit 1
fi
scripts/need.sh runc:runc
export REIN_VERIFIED=$PWD/docs/verified
mkdir -p "$REIN_VERIFIED"
go test -count=1 -timeout=30m -run '^TestMemory$' ./sandbox/sandboxtest
go test -count=1 -timeout=30m -run '^TestConformance(OnImage)?$' ./sandbox/local
# Into a directory that the user may write.
shared=$(mktemp -d)
trap 'rm -rf "$shared"' EXIT
chmod 0777 "$shared"
REIN_VERIFIED=$shared scripts/test-rootless.sh -count=1 -timeout=30m -run '^TestConformance(OnImage)?$'
cp "$shared"/local-gvisor-user.json "$shared"/local-runc-user.json "$REIN_VERIFIED"
go test -count=1 -timeout=30m -run '^TestSuite' ./sandbox/opensandbox
scripts/test-opensandbox.sh
go test -count=1 -run '^TestCapabilitiesPage$' ./sandbox/sandboxtest -args -update

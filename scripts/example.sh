#!/usr/bin/env bash
# Builds the example module, which is outside rein's own, and runs it with both
# runtimes.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$PWD/bin
cd examples/embed
if ! go vet .; then
	echo "examples/embed does not build. If go asks for updates to go.mod: (cd examples/embed && go mod tidy)" >&2
	exit 1
fi
CGO_ENABLED=0 go build -trimpath -o "$bin/rein-embed" .
for runtime in gvisor runc; do
	echo "== examples/embed, $runtime"
	"$bin/rein-embed" -bin "$bin" -runtime "$runtime"
done

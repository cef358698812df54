#!/usr/bin/env bash
# All tests: as the caller, and, when that is root, those that make sandboxes
# once more as an ordinary user, because rootless is a way of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

# What the tests drive: runc beside gVisor, programs that prompt and fork, and
# node for the OpenSandbox SDK.
needs=(runc:runc python3:python3 git:git curl:curl openssl:openssl setpriv:util-linux node:nodejs npm:npm tmux:tmux)
race=()
if [ "${CI:-}" = true ]; then needs+=(gcc:gcc gcc:libc6-dev); fi
say "what the tests need"
scripts/need.sh "${needs[@]}"
if command -v gcc >/dev/null; then
	race=(-race)
	export CGO_ENABLED=1
	echo "race detector: on"
else
	echo "race detector: off, because there is no C compiler (gcc and libc6-dev would turn it on)"
fi

# cmd/rein-runsc is a call into gVisor. Its tests are those of its sandboxes;
# compiled for the race detector it would only cost minutes.
mapfile -t all < <(go list ./... | grep -v '/cmd/rein-runsc$')

# The same flags in both legs, so that the second compiles nothing again. vet
# runs in lint. Tests wait for sandboxes more than they compute, so that more
# than one a core run at a time.
flags=(-trimpath -vet=off -timeout=20m -parallel=4 "${race[@]}")

# What a model is shown of the corpus is counted: the same for everybody, and
# minutes of computing under the race detector. make build has compiled for it.
counted='^TestCorpusReachesTheModel$'

say "go test, as $(id -un)"
go test "${flags[@]}" -skip "$counted" "${all[@]}"
CGO_ENABLED=0 go test -trimpath -vet=off -run "$counted" ./agent

if [ "$(id -u)" -ne 0 ]; then
	say "passed (run as root, make test also tests the rootful way)"
	exit 0
fi

# The suite on an image has run as root; as an ordinary user it is part of
# make verify, which takes its time.
scripts/test-rootless.sh -skip "^TestConformanceOnImage\$|$counted" "${flags[@]}"
say "passed, as root and as an ordinary user"

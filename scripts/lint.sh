#!/usr/bin/env bash
# gofmt, go vet, staticcheck, shellcheck and govulncheck. Import ranks, size
# budgets and the other house rules are a test: internal/layout.
set -euo pipefail
cd "$(dirname "$0")/.."

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.9.0

say() { printf '\n== %s\n' "$*"; }

# Both are pinned here and kept out of go.mod, which lists what rein is made
# from; they are built once into bin/lint.
tool() { # tool NAME MODULE@VERSION
	local stamp="bin/lint/$1.${2##*@}"
	[ -e "$stamp" ] && return
	echo "building $2"
	GOBIN="$PWD/bin/lint" GOFLAGS=-trimpath go install "$2"
	touch "$stamp"
}

say gofmt
unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
	printf '%s\n' "$unformatted" "not formatted: run make fmt" >&2
	exit 1
fi

say "go vet"
go vet ./...

say staticcheck
tool staticcheck "$staticcheck"
bin/lint/staticcheck ./...

say shellcheck
scripts/need.sh shellcheck:shellcheck
git ls-files -z -co --exclude-standard '*.sh' .ci/run ':!internal/trajectory/testdata' | xargs -0 shellcheck

say govulncheck
tool govulncheck "$govulncheck"
# It asks vuln.go.dev. Where that cannot be reached nothing was checked, which
# is said and is no failure: the tree did not change.
if out=$(bin/lint/govulncheck ./... 2>&1); then
	echo "$out" | tail -n 3
elif grep -q 'Vulnerability #' <<<"$out"; then
	echo "$out"
	exit 1
elif grep -q 'fetching vulnerabilities' <<<"$out"; then
	echo "NOT CHECKED for known vulnerabilities: the database vuln.go.dev cannot be reached from here"
else
	echo "$out" >&2
	exit 1
fi

say "lint passed"

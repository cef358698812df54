#!/usr/bin/env bash
# fuzz.sh [TIME] runs every Fuzz test of the tree for TIME (default 5s) each.
# Inputs are made smaller for a few tries only: where coverage is not the same
# each time, Go spends a minute on it and tests nothing else meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-5s}
git ls-files -co --exclude-standard '*_test.go' | xargs grep -Ho '^func Fuzz[A-Za-z0-9_]*' |
	while IFS=: read -r file match; do
		name=${match#func }
		echo "== ${file%/*} $name"
		go test -run='^$' -fuzz="^$name\$" -fuzztime="$time" -fuzzminimizetime=20x "./${file%/*}" </dev/null
	done

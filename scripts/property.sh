#!/usr/bin/env bash
# property.sh [SCRIPTS] plays made-up runs (default 10000) in simulated time and
# holds each to the properties of internal/soak. SEED says where the scripts
# begin; without it they are new ones.
set -euo pipefail
cd "$(dirname "$0")/.."

seed=${SEED:-$(date +%s)}
echo "scripts from seed $seed on; SEED=$seed plays them again"
go test ./internal/soak -run=TestProperty -count=1 -timeout=1h -v -args -scripts="${1:-10000}" -from="$seed" |
	{ grep -v -e '^ *=== ' -e '^ *--- PASS' || true; }

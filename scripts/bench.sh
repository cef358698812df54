#!/usr/bin/env bash
# bench.sh [FLAGS] builds and runs the benchmark; see bench/main.go for flags.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh runc:runc
CGO_ENABLED=0 go build -trimpath -o bin/rein-bench ./bench
exec bin/rein-bench "$@"

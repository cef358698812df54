#!/usr/bin/env bash
# context.sh [FLAGS] plays what a coding agent does in sandboxes and says how
# many tokens its model was sent; see bench/context/main.go for flags.
set -euo pipefail
cd "$(dirname "$0")/.."

CGO_ENABLED=0 go build -trimpath -o bin/rein-context ./bench/context
exec bin/rein-context "$@"

#!/usr/bin/env bash
# bench.sh [FLAGS] builds and runs the benchmark; see bench/main.go for flags.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh runc:runc
# The networks that rein's is measured beside; root makes them.
if [ "$(id -u)" -eq 0 ]; then scripts/need.sh ip:iproute2 nft:nftables slirp4netns:slirp4netns pasta:passt unshare:util-linux; fi
CGO_ENABLED=0 go build -trimpath -o bin/rein-bench ./bench
exec bin/rein-bench "$@"

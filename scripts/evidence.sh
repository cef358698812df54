#!/usr/bin/env bash
# evidence.sh shows what previews keep of the lines that decide, beside a plain
# beginning and end, and how fast they are made. It asserts the shares; the
# speed is what this machine has left.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "decisive lines that an 8 KiB preview keeps of each log (* of a tool that no pattern names)"
go test ./evidence -run '^(TestCorpus|TestCorpusItself|TestHeldOut)$' -count=1 -v |
	sed -E 's/^ +corpus_test\.go:[0-9]+: ?//; /^=== RUN/d'
go test ./evidence -run '^$' -bench '^BenchmarkCorpus$' -benchtime 2s |
	awk '/^Benchmark/ { for (i = 2; i < NF; i++) if ($(i+1) ~ /MB/) printf "speed: %.0f %s\n", $i, $(i+1) }'

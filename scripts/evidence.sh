#!/usr/bin/env bash
# evidence.sh shows what previews keep of the lines that decide, beside a plain
# beginning and end, and how fast they are made. It fails when a share is missed;
# the speed is what this machine has left, so it is only judged in words.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "decisive lines that an 8 KiB preview keeps of each log (* of a tool that no pattern names)"
failed=0
go test ./evidence -run '^(TestCorpus|TestCorpusInLittleRoom|TestCorpusItself|TestHeldOut)$' -count=1 -v |
	sed -E 's/^ +corpus_test\.go:[0-9]+: ?//; /^=== RUN/d' || failed=$?
go test ./evidence -run '^$' -bench '^BenchmarkCorpus$' -benchtime 2s |
	awk -v want=100 '
		/^Benchmark/ {
			for (i = 2; i < NF; i++) { if ($(i+1) == "MB/s") speed = $i; if ($(i+1) == "MB/cpu-s") processor = $i }
		}
		END {
			if (speed == "") { print "speed: not measured"; exit 1 }
			printf "speed: %.0f MB/s  (target %d MB/s)  %s; %.0f MB in a second of processor time\n", speed, want, (speed + 0 < want ? "MISSED" : "met"), processor
		}'
exit "$failed"

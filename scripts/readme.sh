#!/usr/bin/env bash
# readme.sh [write] runs the demo and compares it with what README.md shows of
# it (all but the task and the report), leaving out what differs between two
# runs: ids, hashes, times, counts of records; and what is said only where no
# terminal is there to watch, as there is for readers. With "write" it replaces it.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
scripts/demo.sh sh >"$scratch/all" 2>&1 || {
	cat "$scratch/all" >&2
	exit 1
}
{
	echo '```'
	awk '/^== /{ show = ($0 != "== the report" && $0 !~ /^== the task/) } show && !/^warning: nobody watches this run/' "$scratch/all"
	echo '```'
} | cat -s >"$scratch/new"
awk '/^<!-- \/demo -->/{ on = 0 } on; /^<!-- demo -->/{ on = 1 }' README.md >"$scratch/old"

same() {
	sed -E 's/\b[0-9a-f]{64}\b/HASH/g; s/\b(sb-)?[0-9A-Za-z]{26}\b/ID/g; s/\b[0-9.]+ ?m?s\b/TIME/g; s/[0-9]+ records/N records/; s/head [0-9]+:/head N:/' "$1"
}
if [ "${1:-}" = write ]; then
	awk -v new="$scratch/new" '
		/^<!-- \/demo -->/ { on = 0 }
		!on
		/^<!-- demo -->/ { on = 1; while ((getline line < new) > 0) print line }' README.md >"$scratch/README.md"
	cat "$scratch/README.md" >README.md
elif ! diff -u --label README.md <(same "$scratch/old") --label "make demo" <(same "$scratch/new"); then
	echo "README.md shows another demo than this one: make readme" >&2
	exit 1
else
	echo "README.md shows what make demo prints"
fi

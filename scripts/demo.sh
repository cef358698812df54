#!/usr/bin/env bash
# demo.sh [sh|go|python] gives a scripted agent a small project whose test
# fails, on the embedded default: a gVisor sandbox, no key, no network. It
# works on a copy and keeps its state apart, so it changes nothing here.
set -euo pipefail
cd "$(dirname "$0")/.."

lang=${1:-sh}
# The sandbox has the host's /usr, so Go is where it usually is; the PATH meant
# is the sandbox's.
# shellcheck disable=SC2016
case $lang in
sh) test=test.sh accept='sh test.sh' ;;
go) test=wrap_test.go accept='PATH=$PATH:/usr/local/go/bin go test ./...' ;;
python) test=test_intervals.py accept='python3 -m unittest' ;;
*)
	echo "demo.sh: $lang: the demo projects are sh, go and python" >&2
	exit 2
	;;
esac

rein=$PWD/bin/rein
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "examples/demo/$lang/project" "$scratch/project"
printf '{}\n' >"$scratch/config.yaml" # not the user's: the defaults are shown
export XDG_STATE_HOME=$scratch/state
r() { "$rein" --config "$scratch/config.yaml" "$@"; }
say() { printf '\n== %s\n' "$*"; }
hash() { sha256sum "$scratch/project/$test" | cut -c1-64; }

before=$(hash)
say "the task, in a project whose test fails"
cat "examples/demo/$lang/task.txt"

say "rein run"
started=$(date +%s%N)
r run --model "script:examples/demo/$lang/script.yaml" --workspace "$scratch/project" \
	--accept "$accept" --protect "$test" "$(cat "examples/demo/$lang/task.txt")" \
	>"$scratch/report" 2> >(tee "$scratch/progress" >&2)
wait $! # tee
took=$(($(date +%s%N) - started))

say "the report"
cat "$scratch/report"

say "the patch, applied to the project"
run=$(cd "$scratch"/state/rein/runs && echo *)
cat "$scratch/state/rein/runs/$run/patch"
r runs apply last --dir "$scratch/project"

say "checked from outside"
if [ "$(hash)" != "$before" ]; then
	echo "FAILED: $test was changed" >&2
	exit 1
fi
echo "unchanged: $test, sha256 $before"
if [ "$lang" = sh ]; then # we know what the patch is, so it may run here
	(cd "$scratch/project" && sh test.sh)
fi
r runs verify last --head "$(tail -n 1 "$scratch/progress" | awk '{ print $3 }')"
if [ "$(r sandbox ls --json)" != "[]" ]; then
	echo "FAILED: a sandbox is left" >&2
	r sandbox ls >&2
	exit 1
fi
echo "no sandbox is left"
awk -v ns="$took" 'BEGIN { printf "rein run took %.1f s\n", ns / 1e9 }'

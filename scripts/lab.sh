#!/usr/bin/env bash
# lab.sh [EXPERIMENT...] runs experiments (default a4 and a6) with both runtimes, as the
# caller and, when that is root, also as the ordinary user rein-test. Results go
# to lab/*.json of REIN_LAB_DIR (default: a temporary directory).
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/need.sh runc:runc curl:curl wget:wget git:git python3:python3 setpriv:util-linux
[ $# -gt 0 ] || set -- a4 a6
experiments=("$@")
out=${REIN_LAB_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/rein-lab.XXXXXX")}
mkdir -p "$out"
failed=0

# The binaries where anybody may read them: the checkout may lie where only root can.
bin=$(mktemp -d "${TMPDIR:-/tmp}/rein-bin.XXXXXX")
trap 'rm -rf "$bin"' EXIT
chmod 0755 "$bin"
cp bin/rein bin/rein-keep bin/rein-execd bin/rein-runsc "$bin"

one() { # RUNTIME USER COMMAND...
	local runtime=$1 user=$2 file
	shift 2
	for e in "${experiments[@]}"; do
		file="$out/$e-$runtime-$user.json"
		if "$@" "$bin/rein" lab "$e" --runtime "$runtime" --json >"$file" 2>"$file.err" </dev/null; then verdict=pass; else verdict=FAIL failed=1; fi
		python3 - "$file" "$e $runtime, as $user: $verdict" <<-'PY'
			import json, sys
			r = json.load(open(sys.argv[1]))
			steps = r["steps"]
			tried = [s for s in steps if not s.get("not_tried")]
			print(f"{sys.argv[2]}: {sum(s['pass'] for s in tried)} of {len(tried)} steps passed, {len(steps) - len(tried)} not tried here, {r['duration_ms'] / 1000:.1f} s")
			for s in tried:
			    if not s["pass"]:
			        print(f"    {s['name']}: expected {s['expected']}, got {s['got']}")
		PY
	done
}

user=rein-test
for runtime in gvisor runc; do
	one "$runtime" "$(id -un)" env
	if [ "$(id -u)" -eq 0 ] && id "$user" >/dev/null 2>&1; then
		home=$(getent passwd "$user" | cut -d: -f6)
		one "$runtime" "$user" setpriv --reuid="$user" --regid="$user" --init-groups \
			env -u XDG_RUNTIME_DIR -u XDG_CONFIG_HOME -u XDG_STATE_HOME -u XDG_CACHE_HOME -u TMPDIR HOME="$home" USER="$user" LOGNAME="$user"
	fi
done
echo "results in $out"
exit "$failed"

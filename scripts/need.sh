#!/usr/bin/env bash
# need.sh COMMAND:PACKAGE... installs the Debian package of every command that
# is not there. Without root it prints the line to run, and fails.
set -euo pipefail

missing=()
for pair in "$@"; do
	# Debian keeps some of them in sbin, which is not on every user's PATH.
	PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "missing here: ${missing[*]}. Install and repeat:" >&2
	echo "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
	exit 1
fi
echo "installing with apt-get: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
	tail -n 20 "$log" >&2
	echo "apt-get could not install: ${missing[*]}" >&2
	exit 1
fi

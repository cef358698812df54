#!/bin/sh
# Checks average.awk against averages worked out by hand.
want='north 15.00
south 5.00'
got=$(awk -f average.awk sales.csv)
if [ "$got" != "$want" ]; then
	echo "FAIL: average.awk sales.csv" >&2
	printf 'want:\n%s\ngot:\n%s\n' "$want" "$got" >&2
	exit 1
fi
echo "ok: averages are right"

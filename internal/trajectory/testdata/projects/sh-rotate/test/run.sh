#!/bin/sh
# run.sh [NAME...] runs the tests of that name, or all.
set -u

test_directory=$(cd "$(dirname "$0")" && pwd)
project_directory=$(dirname "$test_directory")
tests_failed=0
tests_done=0

expect_equal() {
	if [ "$2" != "$3" ]; then
		printf '%s: %s: got "%s", want "%s"\n' "$current_test" "$1" "$2" "$3" >&2
		test_failed=yes
	fi
}

make_log_file() {
	mkdir -p "$(dirname "$1")"
	i=0
	while [ $i -lt "$2" ]; do
		echo "line $i of the log file"
		i=$((i + 1))
	done >"$1"
}

run_rotate() {
	rotate_output=$(sh "$project_directory/rotate.sh" "$@" 2>&1)
	rotate_status=$?
}

for test_file in "$test_directory"/test_*.sh; do
	current_test=$(basename "$test_file" .sh)
	if [ $# -gt 0 ]; then
		case " $* " in
		*" $current_test "*) ;;
		*) continue ;;
		esac
	fi
	work_directory=$(mktemp -d)
	test_failed=no
	cd "$work_directory" || exit 1
	. "$test_file"
	cd "$project_directory" || exit 1
	rm -rf "$work_directory"
	tests_done=$((tests_done + 1))
	if [ $test_failed = yes ]; then
		tests_failed=$((tests_failed + 1))
		echo "FAIL $current_test"
	else
		echo "ok   $current_test"
	fi
done
echo "$tests_done tests, $tests_failed failed"
[ $tests_failed -eq 0 ]

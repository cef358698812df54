#!/bin/sh
# rotate.sh [--dry-run] CONFIGURATION moves the files that the configuration
# names out of the way when they are too large or too old.
set -eu

program_directory=$(cd "$(dirname "$0")" && pwd)
. "$program_directory/lib/message.sh"
. "$program_directory/lib/config.sh"
. "$program_directory/lib/size.sh"
. "$program_directory/lib/generation.sh"

dry_run=no
if [ "${1-}" = --dry-run ]; then
	dry_run=yes
	shift
fi
if [ $# -ne 1 ]; then
	message_usage "rotate.sh [--dry-run] CONFIGURATION"
	exit 2
fi

rotate_one_file() {
	log_file=$1
	if [ ! -f "$log_file" ]; then
		message_warning "$log_file is not there"
		return 0
	fi
	if ! size_exceeds "$log_file" "$config_max_size" && ! age_exceeds "$log_file" "$config_max_age"; then
		message_debug "$log_file stays"
		return 0
	fi
	if [ "$dry_run" = yes ]; then
		return 0
	fi
	generation_shift "$log_file" "$config_keep"
	generation_make "$log_file" "$config_compress"
	message_info "$log_file was rotated"
}

config_read "$1"
status=0
for pattern in $config_files; do
	for found in $pattern; do
		rotate_one_file "$found" || status=1
	done
done
exit $status

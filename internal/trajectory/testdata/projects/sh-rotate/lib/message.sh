# Messages go to standard error; message_level says which.

message_level=${message_level:-info}

message_number_of_level() {
	case $1 in
	debug) echo 0 ;;
	info) echo 1 ;;
	warning) echo 2 ;;
	error) echo 3 ;;
	*) echo 1 ;;
	esac
}

message_write() {
	if [ "$(message_number_of_level "$1")" -ge "$(message_number_of_level "$message_level")" ]; then
		printf 'rotate: %s: %s\n' "$1" "$2" >&2
	fi
}

message_debug() { message_write debug "$1"; }
message_info() { message_write info "$1"; }
message_warning() { message_write warning "$1"; }
message_error() { message_write error "$1"; }

message_usage() {
	printf 'usage: %s\n' "$1" >&2
}

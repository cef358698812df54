# The configuration is lines of key=value. Empty lines and lines that begin with
# a # are left out.

config_set_defaults() {
	config_files=
	config_keep=5
	config_max_size=1M
	config_max_age=0
	config_compress=no
}

config_refuse() {
	message_error "$1:$2: $3"
	exit 2
}

config_check_number() {
	case $4 in
	'' | *[!0-9]*) config_refuse "$1" "$2" "$3 is a number, not \"$4\"" ;;
	esac
}

config_check_choice() {
	case $4 in
	yes | no) ;;
	*) config_refuse "$1" "$2" "$3 is yes or no, not \"$4\"" ;;
	esac
}

config_set_value() {
	case $3 in
	files) config_files="$config_files $4" ;;
	keep)
		config_check_number "$@"
		config_keep=$4
		;;
	max_size)
		size_in_bytes "$4" >/dev/null || config_refuse "$1" "$2" "max_size is a size such as 10M, not \"$4\""
		config_max_size=$4
		;;
	max_age)
		config_check_number "$@"
		config_max_age=$4
		;;
	compress)
		config_check_choice "$@"
		config_compress=$4
		;;
	*) config_refuse "$1" "$2" "there is no key \"$3\"" ;;
	esac
}

config_read() {
	config_set_defaults
	config_line_number=0
	while IFS= read -r config_line || [ -n "$config_line" ]; do
		config_line_number=$((config_line_number + 1))
		case $config_line in
		'' | '#'*) continue ;;
		*=*) ;;
		*) config_refuse "$1" "$config_line_number" "a line is key=value" ;;
		esac
		config_set_value "$1" "$config_line_number" "${config_line%%=*}" "${config_line#*=}"
	done <"$1"
	if [ -z "$config_files" ]; then
		config_refuse "$1" "$config_line_number" "no files are named"
	fi
}

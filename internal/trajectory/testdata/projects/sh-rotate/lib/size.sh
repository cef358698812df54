# Sizes have a unit, K, M or G, or none for bytes. Ages are days.

size_in_bytes() {
	case $1 in
	*K) size_factor=1024 ;;
	*M) size_factor=1048576 ;;
	*G) size_factor=1073741824 ;;
	*) size_factor=1 ;;
	esac
	size_digits=${1%[KMG]}
	case $size_digits in
	'' | *[!0-9]*) return 1 ;;
	esac
	echo $((size_digits * size_factor))
}

size_of_file() {
	wc -c <"$1" | tr -d ' '
}

# size_exceeds FILE SIZE: no file exceeds a size of 0.
size_exceeds() {
	size_limit=$(size_in_bytes "$2")
	[ "$size_limit" -gt 0 ] && [ "$(size_of_file "$1")" -gt "$size_limit" ]
}

# age_exceeds FILE DAYS: no file exceeds an age of 0.
age_exceeds() {
	[ "$2" -gt 0 ] && [ -n "$(find "$1" -prune -mtime "+$2")" ]
}

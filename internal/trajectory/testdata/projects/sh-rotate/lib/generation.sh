# Generation 1 of a file is the newest old one: log.1, or log.1.gz.

generation_name() {
	if [ -f "$1.$2.gz" ]; then
		echo "$1.$2.gz"
	elif [ -f "$1.$2" ]; then
		echo "$1.$2"
	fi
}

generation_remove() {
	generation_found=$(generation_name "$1" "$2")
	if [ -n "$generation_found" ]; then
		rm -f -- "$generation_found"
		message_debug "$generation_found was removed"
	fi
}

generation_move() {
	generation_found=$(generation_name "$1" "$2")
	case $generation_found in
	'') return 0 ;;
	*.gz) mv -- "$generation_found" "$1.$3.gz" ;;
	*) mv -- "$generation_found" "$1.$3" ;;
	esac
}

# generation_shift FILE KEEP makes room for a new generation 1.
generation_shift() {
	generation_number=$2
	if [ "$config_compress" = yes ]; then
		generation_number=$((generation_number - 1))
	fi
	generation_remove "$1" "$generation_number"
	while [ "$generation_number" -gt 1 ]; do
		generation_move "$1" $((generation_number - 1)) "$generation_number"
		generation_number=$((generation_number - 1))
	done
}

# generation_make FILE COMPRESS makes generation 1, and an empty file.
generation_make() {
	cp -p -- "$1" "$1.1"
	: >"$1"
	if [ "$2" = yes ]; then
		gzip -n -- "$1.1"
	fi
}

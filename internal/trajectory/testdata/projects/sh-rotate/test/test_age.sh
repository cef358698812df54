make_log_file old.log 3
make_log_file new.log 3
touch -t 202001010000 old.log
printf 'files=*.log\nmax_size=0\nmax_age=7\n' >rotate.conf
run_rotate rotate.conf
expect_equal "output" "$rotate_output" "rotate: info: old.log was rotated"

make_log_file large.log 400
make_log_file small.log 2
printf 'files=*.log\nmax_size=1K\n' >rotate.conf
run_rotate rotate.conf
expect_equal "status" $rotate_status 0
expect_equal "output" "$rotate_output" "rotate: info: large.log was rotated"
expect_equal "the new file" "$(wc -c <large.log | tr -d ' ')" 0
expect_equal "lines of generation 1" "$(wc -l <large.log.1 | tr -d ' ')" 400
expect_equal "the small file" "$(wc -l <small.log | tr -d ' ')" 2

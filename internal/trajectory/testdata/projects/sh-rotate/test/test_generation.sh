printf 'files=app.log\nmax_size=1K\nkeep=3\n' >rotate.conf
for round in 1 2 3 4 5; do
	make_log_file app.log $((100 + round))
	run_rotate rotate.conf
done
expect_equal "files" "$(ls app.log* | tr '\n' ' ')" "app.log app.log.1 app.log.2 app.log.3 "
expect_equal "lines of the newest" "$(wc -l <app.log.1 | tr -d ' ')" 105
expect_equal "lines of the oldest" "$(wc -l <app.log.3 | tr -d ' ')" 103

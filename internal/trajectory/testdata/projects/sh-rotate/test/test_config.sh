printf 'files=app.log\nkeep=many\n' >rotate.conf
run_rotate rotate.conf
expect_equal "status of a bad number" $rotate_status 2
expect_equal "message of a bad number" "$rotate_output" 'rotate: error: rotate.conf:2: keep is a number, not "many"'

printf '# nothing\n\nkeep=3\n' >rotate.conf
run_rotate rotate.conf
expect_equal "message without files" "$rotate_output" 'rotate: error: rotate.conf:3: no files are named'

printf 'files=app.log\ncolour=red\n' >rotate.conf
run_rotate rotate.conf
expect_equal "message of an unknown key" "$rotate_output" 'rotate: error: rotate.conf:2: there is no key "colour"'

printf 'files=app.log\nmax_size=10X\n' >rotate.conf
run_rotate rotate.conf
expect_equal "message of a bad size" "$rotate_output" 'rotate: error: rotate.conf:2: max_size is a size such as 10M, not "10X"'

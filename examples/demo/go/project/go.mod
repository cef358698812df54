module example.org/wrap

go 1.26

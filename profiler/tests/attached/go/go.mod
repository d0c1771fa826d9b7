module service

go 1.19

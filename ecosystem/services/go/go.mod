module service

go 1.21

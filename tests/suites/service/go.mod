module leeward.invalid/suites/service

go 1.24

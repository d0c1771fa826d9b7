module faults

go 1.20

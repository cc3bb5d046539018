module github.com/karat-run/karat/testdata

go 1.26

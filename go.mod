module github.com/karat-run/karat

go 1.26

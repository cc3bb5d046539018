module github.com/karat-run/karat/internal/dev/oracle

go 1.26.0

require github.com/dlclark/regexp2/v2 v2.12.0

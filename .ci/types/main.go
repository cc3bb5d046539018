// Types checks that all packages and their tests have valid types on other targets:
// go run -modfile=.ci/tools.mod ./.ci/types windows/amd64 js/wasm. Nothing is compiled: a tenth of go vet's time.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	failed := false
	for _, target := range os.Args[1:] {
		system, arch, _ := strings.Cut(target, "/")
		list, err := packages.Load(&packages.Config{
			Mode:  packages.LoadAllSyntax,
			Tests: true,
			Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "GOFLAGS="),
		}, "./...")
		if err != nil {
			fmt.Println(target, err)
			failed = true
			continue
		}
		fmt.Println(target, len(list), "packages")
		failed = packages.PrintErrors(list) > 0 || failed
	}
	if failed {
		os.Exit(1)
	}
}

//go:build ignore

// Unpack writes the weights of the models that lie in this folder packed, or as a seed, beside
// them, where commands find them.
//
//	go run testdata/unpack.go
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/dev/golden"
)

func main() {
	log.SetFlags(0)
	paths, err := filepath.Glob("testdata/models/*/model.safetensors.br")
	if err == nil && len(paths) == 0 {
		log.Fatal("no packed models in testdata/models: run this in the repository's root folder")
	}
	for _, path := range paths {
		var b []byte
		if b, err = golden.Unpack(path); err == nil {
			err = os.WriteFile(strings.TrimSuffix(path, ".br"), b, 0o666)
		}
		if err != nil {
			break
		}
		fmt.Println(filepath.Dir(path))
	}
	seeds, _ := filepath.Glob("testdata/*/*/seed.json")
	for _, path := range seeds {
		if err == nil {
			err = golden.Grow(filepath.Dir(path))
			fmt.Println(filepath.Dir(path))
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

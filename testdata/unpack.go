//go:build ignore

// Unpack writes the weights of the models that lie packed in this folder beside them, where
// commands find them.
//
//	go run testdata/unpack.go
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/golden"
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
	if err != nil {
		log.Fatal(err)
	}
}

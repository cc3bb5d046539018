//go:build ignore

// Unpack writes the weights and records that lie in this folder packed, or as a seed, beside them, where commands find
// them.
//
//	go run testdata/unpack.go
package main

import (
	"fmt"
	"log"
	"path/filepath"

	"github.com/karat-run/karat/internal/dev/golden"
)

func main() {
	log.SetFlags(0)
	paths, err := golden.UnpackAll("testdata", "testdata")
	if err == nil && len(paths) == 0 {
		log.Fatal("nothing packed in testdata: run this in the repository's root folder")
	}
	for _, path := range paths {
		fmt.Println(path)
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

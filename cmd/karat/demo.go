package main

import (
	_ "embed"
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/checkpoint"
)

// demo is a Gemma 3 of 18.9 million parameters, trained on Go source and
// generated sentences, in Q4_K_M.
//
//go:embed demo.gguf
var demo []byte

// demoName stands for the demo's path in messages.
const demoName = "demo.gguf (embedded)"

// sayModel tells that the demo is used where no path is given.
func sayModel(path string, stderr io.Writer) {
	if path != "" {
		return
	}
	fmt.Fprintln(stderr, "karat: no MODEL was given: this is the embedded demo, a tiny Gemma 3")
}

// openCheckpoint opens the model at path, or the demo if path is empty.
func openCheckpoint(path string) (*checkpoint.Checkpoint, error) {
	if path == "" {
		return checkpoint.Parse(demoName, demo)
	}
	path, err := findModel(path)
	if err != nil {
		return nil, err
	}
	return checkpoint.Open(path)
}

package main

import (
	_ "embed"
	"fmt"
	"io"
)

// demo is a Gemma 3 of 18.9 million parameters, trained on Go source and
// generated sentences, in Q4_K_M.
//
//go:embed demo.gguf
var demo []byte

// demoName stands for the demo's path in messages.
const demoName = "demo.gguf (embedded)"

// sayDemo announces the demo, for an empty path.
func sayDemo(path string, log io.Writer) {
	if path == "" {
		fmt.Fprintln(log, "karat: no MODEL was given: this is the embedded demo, a tiny Gemma 3")
	}
}

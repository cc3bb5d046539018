// The gen command writes the headers words_amd64.h and words_arm64.h of package
// simd: instructions that Go's assembler lacks, as macros of data. The program also writes the
// kernels of the tier wasm, a module of its own. Run it there:
//
//	go generate ./internal/simd
//
// Each encoding is put together from the bit fields of the processors' manuals.
//
// Files in reading order: main.go, amd64.go, arm64.go (headers); kernels.go, wasm.go (the
// tier wasm: its kernels, and the encoder).
package main

import (
	"fmt"
	"os"
)

func main() {
	for name, text := range headers() {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

// headers are the files' texts by name.
func headers() map[string]string {
	files := wasm()
	files["words_amd64.h"], files["words_arm64.h"] = amd64(), arm64()
	return files
}

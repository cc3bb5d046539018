package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
)

// The program is inside every karat; nothing is built where a user runs it. CI builds it
// and compares (docs/web.md).
//
//go:generate go run ../dev/webgen

//go:embed program/karat.wasm.br
var wasm []byte

//go:embed program/wasm_exec.js
var wasmExec []byte

// Embedded is the program that is inside.
func Embedded() (Program, error) {
	module, err := io.ReadAll(brotli.NewReader(bytes.NewReader(wasm)))
	if err != nil {
		return Program{}, fmt.Errorf("the program inside: %w", err)
	}
	return Program{Wasm: module, Brotli: wasm, Exec: wasmExec}, nil
}

//go:build embedweb

package web

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
)

// A release has the program inside: go generate ./internal/web, then
// go build -tags embedweb ./cmd/karat.
//
//go:generate go run ./gen

//go:embed karat.wasm.gz
var wasm []byte

//go:embed wasm_exec.js.gz
var wasmExec []byte

// embedded is the program that is inside, or a zero one.
func embedded() (p Program, err error) {
	if p.Wasm, err = unpack(wasm); err == nil {
		p.Exec, err = unpack(wasmExec)
	}
	return p, err
}

func unpack(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("web: what is embedded: %w", err)
	}
	return io.ReadAll(r)
}

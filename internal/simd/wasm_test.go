//go:build !js

package simd

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/js"
)

// TestWasm runs this package's tests under Node, with the kernels that the page has.
func TestWasm(t *testing.T) {
	golden.SkipFast(t, "this builds the package's tests for js and runs them")
	if _, err := exec.LookPath("node"); err != nil {
		golden.Lacking(t, err)
	}
	dir := t.TempDir()
	program, script := filepath.Join(dir, "simd.wasm"), filepath.Join(dir, "script.js")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags=karat_wasmsimd", "-o", program, ".")
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	kernels, err2 := js.Joined("kernels.js", "simd.js")
	text = append(append(text, kernels...), "globalThis.giveKernels = giveKernels;\n"...)
	if err := errors.Join(err, err2, os.WriteFile(script, text, 0o666)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "node", filepath.Join("testdata", "run.cjs"), script, program, "-test.short",
		"-test.v").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestTwins ")) || !bytes.Contains(out, []byte("PASS: TestAddRow/wasm")) {
		t.Fatalf("%v: %s", err, out[max(0, len(out)-4000):])
	}
}

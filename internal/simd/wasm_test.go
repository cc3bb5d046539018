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

// TestWasm runs this package's tests under Node, with both forms of the kernels that the page has, and the test of lanes
// of package cpu with threads.
func TestWasm(t *testing.T) {
	golden.SkipFast(t, "this builds packages' tests for js and runs them")
	if _, err := exec.LookPath("node"); err != nil {
		golden.Lacking(t, err)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	fused, plain := filepath.Join(dir, "fused.js"), filepath.Join(dir, "plain.js")
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	kernels, err2 := js.Joined("kernels.js", "simd.js")
	text = append(append(text, kernels...), "Object.assign(globalThis, { giveKernels, giveThreads, sharedMemory, withMemory, runKernels });\n"...)
	none := bytes.Replace(text, []byte("FUSED = '"), []byte("FUSED = 'AAAA"), 1) // no module
	if err := errors.Join(err, err2, os.WriteFile(fused, text, 0o666), os.WriteFile(plain, none, 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		script, pkg, threads, run string
		passes                    []string
	}{
		{fused, ".", "1", ".", []string{"--- PASS: TestTwins ", "PASS: TestAddRow/wasm"}},
		{plain, ".", "1", ".", []string{"--- PASS: TestTwins ", "PASS: TestAddRow/wasm"}},
		{fused, "../backend/cpu", "3", "TestLanes|TestAttentionGroups",
			[]string{"--- PASS: TestLanes ", "--- PASS: TestAttentionGroups "}},
	} {
		program := filepath.Join(dir, "test.wasm")
		build := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags=karat_wasmsimd", "-o", program, c.pkg)
		build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := exec.CommandContext(t.Context(), "node", filepath.Join("testdata", "run.cjs"), c.script, c.threads, program,
			"-test.short", "-test.v", "-test.run="+c.run).CombinedOutput()
		for _, pass := range c.passes {
			if err != nil || !bytes.Contains(out, []byte(pass)) {
				t.Fatalf("%s: %v: %s", c.pkg, err, out[max(0, len(out)-4000):])
			}
		}
	}
}

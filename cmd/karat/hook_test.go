package main

import (
	"bytes"
	"io/fs"
	"os/exec"
	"strings"
	"testing"
)

// TestHooksParse: the printed scripts are Python.
func TestHooksParse(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	files, err := fs.Glob(hooks, "hooks/*.py")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		text, err := hooks.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for source, right := range map[string]bool{string(text): true, string(text) + "\n)": false} {
			c := exec.Command(python, "-c", "import ast, sys; ast.parse(sys.stdin.read())")
			var out bytes.Buffer
			c.Stdin, c.Stderr = strings.NewReader(source), &out
			if err := c.Run(); (err == nil) != right {
				t.Errorf("%s: %v: %s", name, err, out.String())
			}
		}
	}
}

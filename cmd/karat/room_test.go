package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/sysinfo"
)

// TestRoom: what does not fit the disk is refused before it is written, with both numbers.
func TestRoom(t *testing.T) {
	model := golden.Model(t, "tiny-qwen3")
	t.Chdir(t.TempDir())
	free := sysinfo.FreeDisk
	t.Cleanup(func() { sysinfo.FreeDisk = free })
	run := func(line string) error {
		c := newRootCommand()
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		c.SetArgs(strings.Fields(line))
		return c.Execute()
	}
	if err := run("convert " + model + " -o in.gguf"); err != nil {
		t.Fatal(err)
	}
	sysinfo.FreeDisk = func(string) int64 { return 1000 }
	for _, line := range []string{"convert in.gguf -o out", "convert in.gguf -o out.gguf", "quantize in.gguf out.gguf Q8_0"} {
		if err := run(line); err == nil || !strings.Contains(err.Error(), "it needs ") || !strings.Contains(err.Error(), "the disk has 1000 free") {
			t.Errorf("karat %s: %v", line, err)
		}
	}
	if all, err := os.ReadDir("."); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

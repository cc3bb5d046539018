package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/sysinfo"
)

// TestSynth: a made model is written whole, is the same for the same seed, and runs. What cannot be leaves no file.
func TestSynth(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(line string) error { return synthTask(t.Context(), strings.Fields(line), io.Discard, io.Discard) }
	for _, line := range []string{"--arch qwen3 --shape tiny --seed 3 -o a.gguf", "--arch qwen3 --shape tiny --seed 3 -o b.gguf",
		"--arch llama --shape tiny --type Q8_0 --vocab a.gguf -o c.gguf"} {
		if err := write(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	a, errA := os.ReadFile("a.gguf")
	b, errB := os.ReadFile("b.gguf")
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("equal seeds: %d and %d bytes, %v, %v", len(a), len(b), errA, errB)
	}
	for _, path := range []string{"a.gguf", "c.gguf"} {
		m, err := karat.Load(t.Context(), path, karat.Options{Context: 64})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := m.Complete(t.Context(), "abc", karat.GenerateOptions{MaxTokens: 3})
		if err != nil || answer.GeneratedTokens == 0 {
			t.Errorf("%s: %+v, %v", path, answer, err)
		}
		m.Close()
	}
	for line, want := range map[string]string{"": "-o FILE.gguf", "--shape tiny --vocab a.gguf -o a.gguf": "would replace a.gguf, which is read",
		"--shape 70b -o d.gguf": `shape "70b" of llama, want `} {
		if err := write(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	free := sysinfo.FreeDisk
	t.Cleanup(func() { sysinfo.FreeDisk = free })
	sysinfo.FreeDisk = func(string) int64 { return 1000 }
	if err := write("--shape tiny -o d.gguf"); err == nil || !strings.Contains(err.Error(), "the disk has 1000 free") {
		t.Errorf("a full disk: %v", err)
	}
	if all, err := filepath.Glob("*"); err != nil || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
}

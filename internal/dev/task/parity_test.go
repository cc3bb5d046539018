package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestParityUsage wants an error of what cannot be meant.
func TestParityUsage(t *testing.T) {
	root := golden.Repo(t)
	models, tiny := filepath.Join(root, "models"), t.TempDir()
	data, err := os.ReadFile(filepath.Join(golden.Root(t), demo))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(tiny, "tiny.gguf")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"--faults twice":                            "want single, pictures, multi, within, clean, probe, coarse, logits, right or all",
		"--every 0":                                 "--every 0: want 1 to 1000000",
		"--only tiny-qwen2":                         "the names are those of --models",
		"--models " + models + " --only nobody":     ": the models in " + models + " are tiny-gemma3, tiny-gemma4",
		"--models " + root + "/records":             "no folder with a config.json and no GGUF file",
		"--models nowhere":                          "nowhere",
		"--json-file none/scores.json":              "none",
		"--models " + tiny + " --html-file " + path: "tiny.gguf would be replaced, which is read",
		"--models " + tiny + " --match nobody":      `no case has "nobody" in its name`,
	} {
		if err := parityTask(t.Context(), strings.Fields(line), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// TestParitySlice scores one case.
func TestParitySlice(t *testing.T) {
	if testing.Short() {
		t.Skip("a case takes seconds")
	}
	seeded := filepath.Dir(golden.Model(t, "tiny-qwen2"))
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	line := "--models " + seeded + " --only tiny-qwen2 --faults probe --every 42 --json-file scores.json --html-file scores.html"
	if err := parityTask(t.Context(), strings.Fields(line), &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "ParityBench: 1 engines of 1 planned, seed 1, one case in 42") {
		t.Error(out.String())
	}
	for file, want := range map[string]string{"scores.json": `"condition": "probe"`, "scores.html": "<h1>ParityBench</h1>"} {
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, no %s", file, err, want)
		}
	}
}

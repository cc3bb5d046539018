package main

import (
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/server"
)

// TestKarat measures Karat's own server: answers are the same under load and alone, and there is a picture.
func TestKarat(t *testing.T) {
	m, err := karat.Load(t.Context(), golden.Model(t, "tiny-qwen2"), karat.Options{Context: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	handler, err := server.New(t.Context(), server.Options{Models: []server.Model{{Name: "tiny", Model: m}}})
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	s := httptest.NewServer(handler)
	defer s.Close()
	svg := filepath.Join(t.TempDir(), "latency.svg")
	for line, want := range map[string][]string{
		"--clients 1,3 --requests 4 --prompt-tokens 8,16 --answer 4 --verify 2 --shared-prefix 8 --svg " + svg: {"| 3 clients | 4 |",
			"1 client: 2 of 2 answers are the same when asked again alone", "3 clients: 2 of 2 answers are the same when asked again alone"},
		"--rate 50 --requests 4 --prompt-tokens 8 --answer 4 --chat --goodput ttft=100000 --csv": {"server,clients,rate,"},
	} {
		var out, log bytes.Buffer
		if err := run(t.Context(), append(strings.Fields(line), s.URL), &out, &log); err != nil {
			t.Errorf("%s: %v\n%s", line, err, &log)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %q in\n%s", line, w, &out)
			}
		}
	}
	if b, err := os.ReadFile(svg); err != nil || !strings.Contains(string(b), "3 clients</text>") {
		t.Errorf("the picture: %v, %d bytes", err, len(b))
	}
	if runtime.GOOS == "windows" {
		return
	}
	program := filepath.Join(t.TempDir(), "karat") // serves elsewhere, and says what it was told
	script := "#!/bin/sh\necho \"$*\" >&2\necho " + s.URL + "\nexec sleep 60\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	line := "--karat " + program + " m.gguf --clients 1 --requests 1 --prompt-tokens 8 --answer 2 --json -- --threads 1"
	if err := run(t.Context(), strings.Fields(line), &out, &log); err != nil || !strings.Contains(log.String(), "--no-page --threads 1 -- m.gguf") {
		t.Errorf("%v\n%s", err, &log)
	}
}

// TestUsage wants what contradicts itself to be an error before anything is loaded.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":                                  "want URL or MODEL",
		"--svg m.gguf m.gguf":               "would replace",
		"--svg none/a.svg m.gguf":           "none",
		"http://127.0.0.1:1 -- --threads 1": "--threads: flags are for a MODEL",
		"m.gguf --peer other":               "--peer other: want a URL",
		"m.gguf --prompt-tokens 9,3":        "--prompt-tokens [9 3]: want the least and the most, or one number",
		"m.gguf --goodput itl=3":            "--goodput itl=3: want ttft, tpot or e2e, and milliseconds",
		"m.gguf --soak 1m --svg a.svg":      "--soak and --svg",
		"m.gguf --csv --json":               "give one of them",
		"--karat none/karat m.gguf":         "none/karat",
	} {
		if err := run(t.Context(), strings.Fields(line), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

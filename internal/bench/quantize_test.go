package bench

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestQuantize(t *testing.T) {
	for how, same := range map[string]bool{"quantizes": true, "quantizes worse": false} {
		p := peer(t, how)
		t.Chdir(t.TempDir())
		temporary := t.TempDir()
		t.Setenv("TMPDIR", temporary)
		if err := os.WriteFile("in.gguf", make([]byte, 100), 0o666); err != nil {
			t.Fatal(err)
		}
		var told []string
		o := QuantizeOptions{File: "in.gguf", Types: []string{"Q8_0", "Q4_0"}, Threads: []int{1, 2}, Repeat: 3, Self: p.Self[0], Peer: p.Bench, Progress: func(s string) { told = append(told, s) }}
		all, err := Quantize(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 4 || len(told) != 16 || told[7] != "Q4_0, threads 1, run 3 of 3" {
			t.Errorf("%d tests, %q", len(all), told)
		}
		for _, q := range all {
			if len(q.Seconds) != 3 || len(q.Peer) != 3 || q.Same != same || q.Bytes != 6 || q.Source != 100 || q.Ratio.Median <= 0 ||
				slices.Max(q.Seconds) < q.Median || q.Ratio.Samples[2] != q.Peer[2]/q.Seconds[2] {
				t.Errorf("%+v", q)
			}
		}
		var b bytes.Buffer
		if err := WriteQuantizing(&b, all); err != nil || strings.Count(b.String(), "\n") != 6 || strings.Contains(b.String(), "| yes |") != same {
			t.Errorf("%v\n%s", err, &b)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	}
}

func TestQuantizeErrors(t *testing.T) {
	p := peer(t, "fails")
	t.Chdir(t.TempDir())
	o := QuantizeOptions{File: "in.gguf", Types: []string{"Q8_0"}, Threads: []int{1}, Repeat: 1, Self: p.Self[0]}
	if _, err := Quantize(t.Context(), o); err == nil || !strings.Contains(err.Error(), "in.gguf") {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile("in.gguf", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Quantize(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no such architecture") {
		t.Errorf("a program that fails: %v", err)
	}
	t.Setenv("FAKE", "empty") // writes no file
	if _, err := Quantize(t.Context(), o); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that writes nothing: %v", err)
	}
	folder := o
	folder.File = t.TempDir()
	if _, err := Quantize(t.Context(), folder); err == nil || !strings.Contains(err.Error(), "is a folder, and quantizing starts from a GGUF file") {
		t.Errorf("a folder: %v", err)
	}
	if line := (&tail{text: []byte("why\nRun \"karat quantize --help\" for help.\n")}).line(); line != "why" {
		t.Errorf("the line is %q", line)
	}
	o.Peer = "none/llama-quantize"
	if _, err := Quantize(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), "peer: ") {
		t.Errorf("no peer: %v", err)
	}
	o.Peer = ""
	t.Setenv("FAKE", "hangs")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Quantize(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

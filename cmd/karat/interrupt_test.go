package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// countdown is a context that ends once it has been asked for a number of times, so that an interrupt comes at a step
// and not at a time.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	left   int
}

func (c *countdown) ask() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		c.cancel()
	}
}

func (c *countdown) Err() error            { c.ask(); return c.Context.Err() }
func (c *countdown) Done() <-chan struct{} { c.ask(); return c.Context.Done() }

// TestInterruptedOutput interrupts each long command that writes a file, at several of its steps, where the file of an
// earlier run is there: the earlier file keeps its bytes, and an unfinished file has .partial in its name.
func TestInterruptedOutput(t *testing.T) {
	old := interruptible
	t.Cleanup(func() { interruptible = old })
	model := golden.Model(t, "smollm3")
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("p.json", `[{"text": "The color of the sky is blue."}, {"text": "Hello"}]`)
	write("t.txt", strings.Repeat("The color of the sky is blue. ", 40))
	interruptible = func() (context.Context, func()) { return context.WithCancel(t.Context()) }
	karat := func(line string) error {
		c := newRootCommand()
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		c.SetArgs(strings.Fields(line))
		return c.Execute()
	}
	for _, line := range []string{"convert " + model + " -o in.gguf", "edit in.gguf --set tokenizer.ggml.eos_token_id=uint32:3 -o bad.gguf",
		"lab record in.gguf --prompts p.json --taps all --precision f64 -o dump.safetensors"} {
		if err := karat(line); err != nil {
			t.Fatalf("karat %s: %v", line, err)
		}
	}
	factor := 25 // between the steps at which a command is interrupted
	if golden.Slow() {
		factor = 5
	}
	for out, line := range map[string]string{
		"c.gguf": "convert " + model + " -o c.gguf", "q.gguf": "quantize in.gguf q.gguf Q8_0",
		"t.gguf": "quantize --target-size 450K --tensor-type blk=Q4_0 --window 16 --chunks 1 in.gguf t.gguf", "i.gguf": "imatrix in.gguf t.txt --window 16 -o i.gguf",
		"e.kld": "eval in.gguf --text t.txt --window 16 --save-logits e.kld", "r.safetensors": "lab record in.gguf --prompts p.json --taps all -o r.safetensors",
		"k.kv": "kv export in.gguf -f t.txt -o k.kv", "x.npy": "lab extract in.gguf --prompts p.json -o x.npy", "in2.gguf": "edit in.gguf --set general.name=string:x -o in2.gguf",
		"w/index.html": "web -o w", "fixed.gguf": "check bad.gguf --against " + model + " --fix fixed.gguf", "m.safetensors": "lab import dump.safetensors -o m.safetensors --model in.gguf",
		"d.json": "lab diagnose in.gguf dump.safetensors --json-file d.json", "report/index.html": "lab diagnose in.gguf dump.safetensors --report report",
	} {
		t.Run(out, func(t *testing.T) {
			interruptible = func() (context.Context, func()) { return context.WithCancel(t.Context()) }
			if err := karat(line); err != nil {
				t.Fatalf("karat %s: %v", line, err)
			}
			whole, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			before := below(t)
			for k := 1; k < 1<<14; k *= factor {
				ended := false
				interruptible = func() (context.Context, func()) {
					ctx, cancel := context.WithCancel(t.Context())
					c := &countdown{Context: ctx, cancel: cancel, left: k}
					return c, func() { c.mu.Lock(); ended = ended || c.left <= 0; c.mu.Unlock(); cancel() }
				}
				err := karat(line)
				now, e := os.ReadFile(out)
				if err == nil {
					whole = now // with other times in it
				}
				if e != nil || err != nil && !bytes.Equal(now, whole) {
					t.Errorf("step %d: %v: the file of the run before has changed: %v", k, err, e)
				}
				for _, f := range below(t) {
					if !slices.Contains(before, f) && !strings.Contains(f, ".partial") {
						t.Errorf("step %d: %s is left", k, f)
					}
				}
				if !ended {
					break
				}
			}
		})
	}
}

// below lists all files below the current folder.
func below(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

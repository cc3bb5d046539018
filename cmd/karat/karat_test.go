package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch/gemma4"
	"github.com/karat-run/karat/internal/bind"
	"github.com/karat-run/karat/internal/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"karat": main}) }

// TestScripts runs testdata/script: command lines and what they print.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("TESTDATA", golden.Repo(t))
			return writeHostile(e.WorkDir)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits, "forget": forget},
	})
}

// exits is a script's command: exits STATUS PROGRAM ARGUMENTS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARGUMENTS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// forget is a script's command: forget KEY FILE writes the demo without a key.
func forget(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || bytes.Count(demo, []byte(args[0])) != 1 {
		ts.Fatalf("usage: forget KEY FILE")
	}
	other := bytes.Repeat([]byte("x"), len(args[0])) // of the same length: everything stays in its place
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), bytes.Replace(demo, []byte(args[0]), other, 1), 0o666))
}

// writeHostile writes files that are no models, though they begin as such.
func writeHostile(dir string) error {
	header := func(counts ...uint64) []byte { // of tensors and of keys
		b := binary.LittleEndian.AppendUint32([]byte("GGUF"), 3)
		for _, n := range counts {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	key := append(binary.LittleEndian.AppendUint64(header(0, 1), 1<<62), make([]byte, 64)...) // a name of 2^62 bytes
	for name, data := range map[string][]byte{
		"short.gguf":  header(0)[:10],
		"counts.gguf": header(1<<60, 1<<60),
		"key.gguf":    key,
		"empty.gguf":  header(0, 0),
		"text.gguf":   []byte("once upon a time there was no model"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// keysAndValues is a source of a model that has only the optional tensors of its
// attention, and those without data.
type keysAndValues struct{ headDim, hiddenSize int }

func (keysAndValues) Names() []string             { return nil }
func (keysAndValues) Name(gguf, hf string) string { return gguf }

func (k keysAndValues) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	layer, name, _ := strings.Cut(strings.TrimPrefix(gguf, "blk."), ".")
	dim := k.headDim
	if i, _ := strconv.Atoi(layer); i%5 == 4 {
		dim *= 2
	}
	switch name {
	case "attn_k", "attn_v":
		return tensor.Tensor{Name: gguf, DType: tensor.BF16, Shape: tensor.Shape{dim, k.hiddenSize}}, true
	case "attn_k_norm":
		return tensor.Tensor{Name: gguf, DType: tensor.BF16, Shape: tensor.Shape{dim}}, true
	}
	return tensor.Tensor{}, false
}

// TestMemoryPerToken wants the figures of Gemma 4 E2B, whose configuration is
// published (google/gemma-4-E2B): 15 of 35 layers have keys and values of their own,
// of 1 head, 12 with 256 features in a window of 512 and 3 with 512 features in none.
func TestMemoryPerToken(t *testing.T) {
	c := gemma4.Config{VocabSize: 262144, HiddenSize: 1536, IntermediateSize: 6144, DoubleWide: true, NumLayers: 35, NumHeads: 8, NumKVHeads: 1,
		HeadDim: 256, PerLayer: map[string]gemma4.Override{}, SlidingWindow: 512, NumKVShared: 20, PLESize: 256, PLEVocabSize: 262144,
		RMSNormEps: 1e-6, Act: graph.GELUTanh, Softcap: 30}
	c.Rope.Full = rope.Params{Type: "proportional", Theta: 1e6, Part: 0.25}
	c.Rope.Sliding = rope.Params{Theta: 1e4}
	for i := range c.NumLayers {
		kind := "sliding_attention"
		if i%5 == 4 {
			kind = "full_attention"
			c.PerLayer[strconv.Itoa(i)] = gemma4.Override{HeadDim: 512}
		}
		c.LayerTypes = append(c.LayerTypes, kind)
	}
	m, err := gemma4.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := bind.Model(m, keysAndValues{c.HeadDim, c.HiddenSize}); err == nil {
		t.Fatal("no tensor is missing")
	}
	b := graph.New()
	m.Forward(b)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	want := []tokenMemory{{UpTo: 512, F16: 18432, F32: 36864}, {F16: 6144, F32: 12288}}
	if got := memoryPerToken(g.KVs()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567"} {
		if got := digits(n); got != want {
			t.Errorf("digits(%d) = %q, want %q", n, got, want)
		}
	}
}

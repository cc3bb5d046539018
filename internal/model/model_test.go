package model

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/sysinfo"
)

// demo is the command's, whose weights are quantized.
const demo = "../../cmd/karat/demo.gguf"

func parse(t *testing.T, precision string) numerics.Numerics {
	t.Helper()
	n, err := numerics.Parse(precision, "")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOpen: each way of opening a model gives the same one, with its defaults.
func TestOpen(t *testing.T) {
	data, err := os.ReadFile(demo)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Numerics: parse(t, "fast"), Threads: 2}
	open := map[string]func() (*Model, error){
		"Open":       func() (*Model, error) { return Open(t.Context(), demo, o) },
		"Read, Data": func() (*Model, error) { return Read(t.Context(), []gguf.Source{{Name: "demo", Data: data}}, o) },
		"Read, ReaderAt": func() (*Model, error) {
			return Read(t.Context(), []gguf.Source{{Name: "demo", At: bytes.NewReader(data), Size: int64(len(data))}}, o)
		},
	}
	for name, open := range open {
		m, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c := m.Checkpoint.ContextLength(); m.Engine.Context() != min(c, DefaultContext) || m.Tokenizer == nil || m.Graph == nil || m.Backend == nil {
			t.Errorf("%s: a context of %d, the model's is %d", name, m.Engine.Context(), c)
		}
		s := m.Engine.NewSequence()
		if rows, err := s.Feed(t.Context(), []int32{2, 3, 4}, 1); err != nil || len(rows) != 1 || len(rows[0]) != m.Engine.VocabSize() {
			t.Errorf("%s: %d rows, %v", name, len(rows), err)
		}
		s.Close()
		if err := m.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpenEnds: a context that ends ends Open where it is.
func TestOpenEnds(t *testing.T) {
	o := Options{Numerics: parse(t, "fast"), Threads: 2}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if m, err := Open(ended, demo, o); m != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("before: %v, %v", m, err)
	}
	c, err := checkpoint.Open(demo)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := Start(ended, c, o); m != nil || !errors.Is(err, context.Canceled) || c.Bytes() > 0 {
		t.Errorf("before Start: %v, %v; the checkpoint is open: %v", m, err, c.Bytes() > 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	o.Engine.Progress = func(done, total int64) error {
		if calls++; done == total {
			t.Error("all is done already")
		}
		cancel()
		return nil
	}
	if m, err := Open(ctx, demo, o); m != nil || !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("while weights are prepared: %v, %v after %d calls", m, err, calls)
	}
	r := &reader{}
	ctx, r.cancel = context.WithCancel(t.Context())
	if m, err := Read(ctx, []gguf.Source{{Name: "m.gguf", At: r, Size: 3 * piece}}, o); m != nil || !errors.Is(err, context.Canceled) || r.calls != 1 {
		t.Errorf("while a file is read: %v, %v after %d calls", m, err, r.calls)
	}
}

// reader is a file of zeros that ends a context when it is read.
type reader struct {
	cancel func()
	calls  int
}

func (r *reader) ReadAt(b []byte, _ int64) (int, error) {
	r.calls++
	r.cancel()
	return len(b), nil
}

// TestFits: what would not fit the memory is refused, but for NoFit.
func TestFits(t *testing.T) {
	path, o := golden.Model(t, "tiny-llama"), Options{Numerics: parse(t, "f64"), Threads: 1}
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, _, err := Graph(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Eight terabytes of keys and values, more than any machine of the tests has.
	if err := Fits(c, g, o.Numerics, 0, 1<<32, 0); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "tiny-llama needs ") || !strings.Contains(err.Error(), "of memory is free") {
		t.Errorf("a context of 2^32 tokens: %v", err)
	}
	o.Engine.Context = MaxContext // 32 gigabytes
	m, err := Open(t.Context(), path, o)
	if most := Fits(c, g, o.Numerics, 0, MaxContext, 0); errors.Is(err, ErrMemory) != (most != nil) || (m == nil) != (err != nil) {
		t.Errorf("a context of %d tokens: %v, and Fits says %v", MaxContext, err, most)
	}
	if m != nil {
		m.Close()
	}
	o.NoFit = true
	if m, err = Open(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
	if m.Engine.Context() != MaxContext {
		t.Errorf("a context of %d", m.Engine.Context())
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	huge := []gguf.Source{{Name: "m.gguf", At: &reader{}, Size: 1 << 50}}
	if _, err := Read(t.Context(), huge, Options{Numerics: parse(t, "")}); !errors.Is(err, ErrMemory) {
		t.Errorf("a file of a pebibyte: %v", err)
	}
}

// TestOpenRefuses: options, and files, that cannot be.
func TestOpenRefuses(t *testing.T) {
	for _, context := range []int{-1, MaxContext + 1} {
		o := Options{Numerics: parse(t, "")}
		o.Engine.Context = context
		if m, err := Open(t.Context(), demo, o); err == nil || m != nil || !strings.Contains(err.Error(), "want 1 to 16777216") {
			t.Errorf("a context of %d: %v", context, err)
		}
	}
	if m, err := Open(t.Context(), demo, Options{Numerics: parse(t, ""), Threads: -1}); err == nil || m != nil {
		t.Errorf("threads: %v", err)
	}
	if m, err := Open(t.Context(), filepath.Join(t.TempDir(), "none.gguf"), Options{Numerics: parse(t, "")}); !errors.Is(err, os.ErrNotExist) || m != nil {
		t.Errorf("no file: %v", err)
	}
}

// remote is a GPU of some memory.
type remote struct {
	backend.Backend
	bytes int64
}

func (r remote) Memory() (string, int64)    { return "Test GPU", r.bytes }
func (remote) Weights(g *graph.Graph) int64 { return 3 << 30 }

// TestFitsRemote: what would not fit a GPU's memory is refused, also where only the budget for keys and
// values is too large; and where nobody tells the memory, nothing is.
func TestFitsRemote(t *testing.T) {
	for _, c := range []struct {
		memory, adapters, cache int64
		refused                 string
	}{{4 << 30, 0, 1 << 30, ""}, {0, 0, 1 << 40, ""}, {4 << 30, 1 << 28, 3 << 28, ""}, {4 << 30, 1 << 29, 1 << 30, "needs 4.50 GiB (weights 3.50 GiB"}, {4<<30 - 1, 0, 1 << 30, "m.gguf needs 4.00 GiB (weights 3.00 GiB, keys and values 1.00 GiB), but Test GPU has only 4.00 GiB"},
		{8 << 30, 0, 16 << 30, "needs 19.00 GiB"}} {
		err := fitsRemote("m.gguf", remote{bytes: c.memory}, nil, c.adapters, c.cache)
		if (err != nil) != (c.refused != "") || err != nil && (!errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := fitsRemote("m.gguf", struct{ backend.Backend }{}, nil, 0, 1<<60); err != nil {
		t.Errorf("on the CPU: %v", err)
	}
}

// gpus has one GPU of 10 MiB, whose weights take 3 GiB.
type gpus struct{}

func (gpus) Matrices(int) bool { return false }
func (gpus) Open(int, numerics.GPUOptions) (backend.Backend, error) {
	return remote{cpu.New(cpu.Options{}), 10 << 20}, nil
}

// TestOpenRemote: Open asks the GPU, but for NoFit.
func TestOpenRemote(t *testing.T) {
	numerics.Register(gpus{})
	o := Options{Numerics: parse(t, "")}
	o.Numerics.GPU = 1
	if m, err := Open(t.Context(), demo, o); m != nil || !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "Test GPU has only 0.01 GiB") {
		t.Errorf("%v, %v", m, err)
	}
	o.NoFit = true
	m, err := Open(t.Context(), demo, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestAdaptersFit counts all adapters, beside the model.
func TestAdaptersFit(t *testing.T) {
	c, err := checkpoint.Open(demo)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, _, err := Graph(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	free := sysinfo.Memory()
	if free == 0 {
		golden.Lacking(t, "the system does not tell how much memory is free")
	}
	o := Options{Numerics: parse(t, ""), Adapters: make([]Adapter, 2)}
	half := free/2 - c.Bytes()/2
	if err := adaptersFit(c, g, o, half); err != nil {
		t.Errorf("half of the free memory: %v", err)
	}
	if err := adaptersFit(c, g, o, 2*half+free/2); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "with its 2 adapters needs ") {
		t.Errorf("more than the free memory: %v", err)
	}
	o.NoFit = true
	if err := adaptersFit(c, g, o, 4*free); err != nil {
		t.Errorf("with NoFit: %v", err)
	}
}

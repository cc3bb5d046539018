package numerics

import (
	"errors"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/tensor"
)

// fake is GPUs that are not there. GPU 7 has matrix units.
type fake struct{}

var errFake = errors.New("no such GPU")

func (fake) Matrices(n int) bool { return n == 7 }

func (fake) Open(int, GPUOptions) (backend.Backend, error) { return nil, errFake }

// link registers GPUs, or none, for a test.
func link(t *testing.T, g GPUs) {
	gpus = nil
	t.Cleanup(func() { gpus = nil })
	if g != nil {
		Register(g)
	}
}

// TestNotLinked: a program without GPUs says what it needs.
func TestNotLinked(t *testing.T) {
	link(t, nil)
	n, err := Parse("fast", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.On("webgpu:1"); !errors.Is(err, ErrNotLinked) || !strings.Contains(err.Error(), `backend webgpu:1: `) || !strings.Contains(err.Error(), `_ "github.com/karat-run/karat/webgpu"`) {
		t.Errorf("On: %v", err)
	}
	if _, err := n.On("gpu"); errors.Is(err, ErrNotLinked) {
		t.Errorf("On with another name: %v", err)
	}
	n.GPU = 1
	if _, err := n.Backend(0); !errors.Is(err, ErrNotLinked) {
		t.Errorf("Backend: %v", err)
	}
}

// TestRegister: GPUs are registered once.
func TestRegister(t *testing.T) {
	link(t, fake{})
	defer func() {
		if recover() == nil {
			t.Error("registered twice")
		}
	}()
	Register(fake{})
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		precision, kv string
		want          Numerics
		activations   string
		bytes         int64
	}{
		{"", "", Numerics{Precision: "fast", KV: "f16"}, "i16_32", 2},
		{"fast", "f32", Numerics{Precision: "fast", KV: "f32"}, "i16_32", 4},
		{"f32", "", Numerics{Precision: "f32", KV: "f32"}, "f32", 4},
		{"f32", "f16", Numerics{Precision: "f32", KV: "f16"}, "f32", 2},
		{"f64", "", Numerics{Precision: "f64", KV: "f64"}, "f64", 8},
	} {
		n, err := Parse(c.precision, c.kv)
		if err != nil || n != c.want || n.Activations() != c.activations || n.KVBytes() != c.bytes {
			t.Errorf("Parse(%q, %q) = %v, %v", c.precision, c.kv, n, err)
		}
		b, err := n.Backend(1)
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
	}
	for _, c := range [][2]string{{"f16", ""}, {"fast", "q8"}, {"fast", "f64"}, {"f64", "f16"}, {"f64", "f32"}} {
		if n, err := Parse(c[0], c[1]); err == nil {
			t.Errorf("Parse(%q, %q) = %v", c[0], c[1], n)
		}
	}
	if _, err := (Numerics{Precision: "f64", KV: "f64"}).Backend(1, "glu"); err == nil {
		t.Error("f64 without a fusion")
	}
	for _, threads := range []int{-1, 1025} {
		if _, err := (Numerics{Precision: "fast", KV: "f16"}).Backend(threads); err == nil {
			t.Errorf("%d threads", threads)
		}
	}
}

// TestAsked: what a GPU makes of a precision is asked for by the user's word.
func TestAsked(t *testing.T) {
	for precision, want := range map[string]string{"fast": "fast", "f16": "fast", "f32": "f32", "f64": "f64"} {
		if got := (Numerics{Precision: precision}).Asked(); got != want {
			t.Errorf("%s is asked for as %s, want %s", precision, got, want)
		}
	}
	if got := (Numerics{Precision: "f16", GPU: 1}).Activations(); got != "f16" {
		t.Errorf("activations %s", got)
	}
}

func TestOn(t *testing.T) {
	link(t, fake{})
	fast, exact := Numerics{Precision: "fast", KV: "f16"}, Numerics{Precision: "f64", KV: "f64"}
	for name, want := range map[string]Numerics{
		"": fast, "cpu": fast,
		"webgpu":    {Precision: "f32", KV: "f16", GPU: 1},
		"webgpu:0":  {Precision: "f32", KV: "f16", GPU: 1},
		"webgpu:12": {Precision: "f32", KV: "f16", GPU: 13},
		"webgpu:7":  {Precision: "f16", KV: "f16", GPU: 8},
	} {
		if n, err := fast.On(name); err != nil || n != want {
			t.Errorf("On(%q) = %v, %v", name, n, err)
		}
	}
	for _, name := range []string{"gpu", "webgpu:", "webgpu:x", "webgpu:-1", "cpu:0", "WebGPU"} {
		if n, err := fast.On(name); err == nil {
			t.Errorf("On(%q) = %v", name, n)
		}
	}
	if _, err := exact.On("webgpu"); err == nil {
		t.Error("f64 on a GPU")
	}
	if n, err := exact.On("cpu"); err != nil || n != exact {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := (Numerics{Precision: "f32", KV: "f32", GPU: 1 << 20}).Backend(0); !errors.Is(err, errFake) {
		t.Errorf("a GPU that is not there: %v", err)
	}
}

// TestCacheBytes: rings are as long as the steps of the backend need.
func TestCacheBytes(t *testing.T) {
	g := backendtest.Decoder(t, 1, tensor.BF16, 0, 64)
	n := Numerics{Precision: "fast", KV: "f16"}
	for _, threads := range []int{1, 15, 16, 64} {
		b := cpu.New(cpu.Options{Threads: threads})
		want := backend.CacheBytes(g, 4096, b.Rows(), 2, false)
		if got := n.CacheBytes(g, threads, 4096); got != want {
			t.Errorf("%d threads: %d bytes, want %d", threads, got, want)
		}
		b.Close()
	}
	if n.CacheBytes(g, 16, 4096) <= n.CacheBytes(g, 1, 4096) {
		t.Error("wide steps take no more")
	}
}

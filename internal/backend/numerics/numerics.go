// Package numerics names the arithmetics open to users, and makes the backend for each.
package numerics

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// Numerics is how numbers are computed and kept.
type Numerics struct {
	Precision string // fast, f32 or f64; f16 for fast on a GPU's matrix units
	KV        string // keys and values: f16, q8_0, f32 or f64
	Forced    bool   // KV, whatever the family
	GPU       int    // 1 for the first GPU; 0 for the CPU
}

// Parse resolves a user's request; "" is the default: fast, and keys and values in f16 with fast, else as precise as
// the products.
func Parse(precision, kv string) (Numerics, error) {
	if precision == "" {
		precision = "fast"
	}
	byDefault, ok := map[string]string{"fast": "f16", "f32": "f32", "f64": "f64"}[precision]
	if !ok {
		return Numerics{}, fmt.Errorf("precision %q, want fast, f32 or f64", precision)
	}
	n := Numerics{Precision: precision, KV: kv}
	if kv == "q8_0!" {
		n.KV, n.Forced = "q8_0", true
		kv = n.KV
	}
	switch {
	case kv == "":
		n.KV = byDefault
	case kv != "f16" && kv != "q8_0" && kv != "f32":
		return n, fmt.Errorf("keys and values as %q, want f16, q8_0 or f32", kv)
	case precision == "f64":
		return n, fmt.Errorf("keys and values as %s, with precision f64 they are kept in float64", kv)
	}
	return n, nil
}

// On returns n on a backend of a name: "cpu" or "", "webgpu" for the first GPU, or "webgpu:N" for the N-th, from 0. A
// GPU has products in f32, and fast products in f16 with matrix units.
func (n Numerics) On(name string) (Numerics, error) {
	if name == "" || name == "cpu" {
		return n, nil
	}
	kind, number, numbered := strings.Cut(name, ":")
	i := 0
	if numbered {
		var err error
		if i, err = strconv.Atoi(number); err != nil || i < 0 {
			kind = ""
		}
	}
	if kind != "webgpu" {
		return n, fmt.Errorf("backend %q, want cpu, webgpu or webgpu:N", name)
	}
	if gpus == nil {
		return n, fmt.Errorf("backend %s: %w", name, ErrNotLinked)
	}
	if n.Precision == "f64" {
		return n, fmt.Errorf("precision f64, which backend %s has not", name)
	}
	if n.Precision == "fast" && gpus.Matrices(i) {
		n.Precision = "f16"
	} else {
		n.Precision = "f32"
	}
	n.GPU = i + 1
	return n, nil
}

// Asked returns the name of n's precision in a request.
func (n Numerics) Asked() string {
	if n.Precision == "f16" {
		return "fast"
	}
	return n.Precision
}

// Activations names the form of activations in products with quantized weights: f64, f32, f16, or 16-bit integers with
// a scale for every 32.
func (n Numerics) Activations() string {
	if n.Precision == "fast" {
		return "i16_32"
	}
	return n.Precision
}

// KVBytes returns the size of an element of the keys and values; of q8_0, of the newest.
func (n Numerics) KVBytes() int64 {
	return map[string]int64{"f16": 2, "q8_0": 2, "f32": 4, "f64": 8}[n.KV]
}

// CacheBytes returns the memory for the keys, values and states of one sequence of context tokens of g, with the
// threads of Backend.
func (n Numerics) CacheBytes(g *graph.Graph, threads, context int) int64 {
	return backend.CacheBytes(g, context, cpu.Rows(threads), n.KVBytes(), n.KV == "q8_0")
}

// Repacked returns the number of bytes of g's weights in memory beyond their bytes in the file.
func (n Numerics) Repacked(g *graph.Graph) int64 {
	if n.Precision != "fast" {
		return 0
	}
	return cpu.Repacked(g)
}

// Backend makes the backend. threads 0 is sysinfo.Threads. noFuse are names of fusions to do without: none changes a
// bit, and the plan refuses unknown names.
func (n Numerics) Backend(threads int, noFuse ...string) (backend.Backend, error) {
	if threads < 0 || threads > 1024 {
		return nil, fmt.Errorf("%d threads, want 1 to 1024", threads)
	}
	if n.GPU > 0 {
		if gpus == nil {
			return nil, ErrNotLinked
		}
		return gpus.Open(n.GPU-1, GPUOptions{KV: n.KV, Matrices: n.Precision == "f16", NoFuse: noFuse})
	}
	if n.Precision == "f64" {
		if len(noFuse) > 0 {
			return nil, fmt.Errorf("fusions %q, precision f64 has none", noFuse)
		}
		return reference.Backend{Threads: threads}, nil
	}
	o := cpu.Options{Threads: threads, NoFuse: noFuse}
	if n.Precision == "f32" {
		o.Precision = cpu.F32
	}
	switch n.KV {
	case "f32":
		o.KV = cpu.KVF32
	case "q8_0":
		o.KV = cpu.KVQ8
	}
	return cpu.New(o), nil
}

// ErrNotLinked is wrapped by the error for a GPU in a program linked without GPUs.
var ErrNotLinked = errors.New("this program is built without GPUs; " +
	`it needs import _ "github.com/karat-run/karat/webgpu"`)

// GPUs makes the backends of a machine's GPUs, numbered from 0.
type GPUs interface {
	// Matrices reports whether GPU n has matrix units in reach.
	Matrices(n int) bool
	// Open makes the backend of GPU n.
	Open(n int, o GPUOptions) (backend.Backend, error)
}

// GPUOptions say how a GPU computes.
type GPUOptions struct {
	KV       string   // keys and values: f16, q8_0 or f32
	Matrices bool     // products of binary16 on matrix units
	NoFuse   []string // names of fusions to do without
}

// gpus is nil until a package registers its own.
var gpus GPUs

// Register makes g the backend "webgpu". A package that links GPUs calls Register in its init; a second call panics, as
// in database/sql.
func Register(g GPUs) {
	if gpus != nil {
		panic("numerics: GPUs are registered twice")
	}
	gpus = g
}

package arch_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/bind"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// seededModel is a model of shared/goldens/families whose family no checkpoint reads
// yet: its weights come from its seed, and a test records its graph.
type seededModel struct {
	dir     string
	tensors map[string]tensor.Tensor
}

// openSeeded writes the weights. change, which may be nil, makes of a tensor what the
// graph wants, as a converter would.
func openSeeded(t *testing.T, name string, change func(*tensor.Tensor)) *seededModel {
	t.Helper()
	m := &seededModel{golden.Shared(t, "goldens/families/"+name), map[string]tensor.Tensor{}}
	f, err := safetensors.Open(filepath.Join(golden.Seeded(t, m.dir), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for _, x := range f.Tensors {
		if x.Name = strings.TrimSuffix(x.Name, ".weight"); change != nil {
			change(&x)
		}
		m.tensors[x.Name] = x
	}
	return m
}

// Names, Tensor, Name and Key implement bind.Source.
func (m *seededModel) Names() (names []string) {
	for name := range m.tensors {
		names = append(names, name)
	}
	return names
}

func (m *seededModel) Tensor(_, hf string) (tensor.Tensor, bool) {
	x, ok := m.tensors[hf]
	return x, ok
}

func (m *seededModel) Name(_, hf string) string { return hf }
func (m *seededModel) Key(name string) string   { return name }

// graph binds the weights to model and records it.
func (m *seededModel) graph(t *testing.T, model interface {
	Forward(g graph.Builder) *graph.Node
}) *graph.Graph {
	t.Helper()
	if _, err := bind.Model(model, m); err != nil {
		t.Fatal(err)
	}
	b := graph.New()
	model.Forward(b)
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// seededRecord is what PyTorch computed.
type seededRecord struct {
	prompts []golden.Prompt
	tensors map[string][]float32
}

func (m *seededModel) record(t *testing.T) *seededRecord {
	t.Helper()
	r := &seededRecord{tensors: map[string][]float32{}}
	b, err := os.ReadFile(filepath.Join(m.dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(b, &r.prompts)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(m.dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, x := range f.Tensors {
		if x.DType == tensor.F32 {
			v := make([]float32, x.Shape.Size())
			if err := binary.Read(bytes.NewReader(x.Data), binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
			r.tensors[x.Name] = v
		}
	}
	return r
}

// pass runs a prompt and greedy tokens behind it, and returns the prompt's logits, the
// tokens, and the taps of the prompt.
func pass(t *testing.T, g *graph.Graph, b backend.Backend, chunk int, prompt []int, more int, taps bool) (logits [][]float32, ids []int, tapped map[string][]float32) {
	t.Helper()
	defer b.Close()
	tapped = map[string][]float32{}
	o := engine.Options{Context: len(prompt) + more, Chunk: chunk}
	if taps {
		o.Want = func(*graph.Node) bool { return true }
		o.Tap = func(n *graph.Node, out []float32) { tapped[n.HF] = append(tapped[n.HF], out...) }
	}
	e, err := engine.New(g, b, o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := e.NewSequence()
	defer s.Close()
	feed := make([]int32, len(prompt))
	for i, id := range prompt {
		feed[i] = int32(id)
	}
	all, err := s.Feed(context.Background(), feed, len(feed))
	for i := 0; err == nil && i < len(all); i++ {
		logits = append(logits, slices.Clone(all[i]))
	}
	for range more {
		if err != nil {
			t.Fatal(err)
		}
		last := all[len(all)-1]
		best := 0
		for i, v := range last {
			if v > last[best] {
				best = i
			}
		}
		ids = append(ids, best)
		all, err = s.Feed(context.Background(), []int32{int32(best)}, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return logits, ids, tapped
}

// farther is the largest difference of two lists, infinite where their lengths differ.
func farther(a, b []float32) (d float64) {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i, x := range a {
		if y := math.Abs(float64(x) - float64(b[i])); !(y <= d) {
			d = y
		}
	}
	return d
}

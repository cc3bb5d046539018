package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
)

// encoderFacts are an encoder's results for a text, or for two.
type encoderFacts struct {
	Features int      `json:"features,omitempty"` // of a vector
	Pooling  string   `json:"pooling,omitempty"`
	Dense    int      `json:"dense,omitempty"` // layers behind the pooling
	Unit     bool     `json:"normalized,omitempty"`
	Prompts  []string `json:"prompts,omitempty"`
	Ranks    bool     `json:"reranks,omitempty"`
}

// describeEncoder returns nil for a generating model.
func describeEncoder(m *checkpoint.Checkpoint, g *graph.Graph) (*encoderFacts, error) {
	if g == nil || !g.Bidirectional() {
		return nil, nil
	}
	f := &encoderFacts{}
	_, err := m.Ranking()
	f.Ranks = err == nil
	h, err := m.Embedding()
	if err != nil {
		return nil, err
	}
	if h.Pooling != "" || !f.Ranks {
		f.Features, f.Pooling = h.Features(model.Hidden(g).Shape.Size()), string(h.Pooling)
		f.Dense, f.Unit = len(h.Dense), h.Normalize
		f.Prompts = slices.Sorted(maps.Keys(h.Prompts))
	}
	return f, nil
}

func (f *encoderFacts) write(w io.Writer) {
	if f.Ranks {
		fmt.Fprintf(w, "makes\ta score of a query and a document (karat rerank)\n")
	}
	if f.Features == 0 {
		return
	}
	parts := []string{fmt.Sprintf("%d features", f.Features), "pooling " + f.Pooling}
	if f.Pooling == "" {
		parts[1] = "pooling unknown: give --pooling"
	}
	if f.Dense > 0 {
		parts = append(parts, count(f.Dense, "dense layer"))
	}
	if f.Unit {
		parts = append(parts, "normalized")
	}
	fmt.Fprintf(w, "makes\tvectors (karat embed): %s\n", strings.Join(parts, ", "))
	if len(f.Prompts) > 0 {
		fmt.Fprintf(w, "prompts\t%s\n", oneLine(strings.Join(f.Prompts, ", ")))
	}
}

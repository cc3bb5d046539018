package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

type inspectFlags struct {
	model                                    modelArg
	graph, metadata, tensors, template, json bool
}

func newInspectCommand() *cobra.Command {
	var f inspectFlags
	c := &cobra.Command{
		Use:   "inspect [MODEL]",
		Short: "Show the contents of a model's files, and the memory it needs",
		Long: `Inspect prints the contents of a model's files: architecture, sizes, element types,
metadata, tensors, tokenizer and chat template. It also prints the settings that the files
leave out and Karat assumes, and the memory that keys and values take for each token of
context. Layers with a sliding window take less beyond the window.

With --metadata, --tensors or --template it prints only these sections, in full. With
--graph it prints the recorded forward pass, one node on a line: name, operation, inputs,
weights, shape for each token, attributes, and the name of the same value in PyTorch.`,
		Example: `  karat inspect model.gguf
  karat inspect ./gemma-3-1b-it --tensors
  karat inspect model.gguf --template
  karat inspect model.gguf --graph | grep blk.0
  karat inspect model.gguf --json | jq .memory_per_token`,
		Args: atMost(1, "MODEL is one file or folder"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.model.add(c, false)
	fs.BoolVar(&f.graph, "graph", false, "print the recorded graph")
	fs.BoolVar(&f.metadata, "metadata", false, "print the metadata, or config.json")
	fs.BoolVar(&f.tensors, "tensors", false, "print every tensor with its type, shape, bytes and, in a GGUF file, offset")
	fs.BoolVar(&f.template, "template", false, "print the chat template unchanged")
	fs.BoolVar(&f.json, "json", false, "print everything but the graph as one JSON object")
	return c
}

func (f *inspectFlags) run(c *cobra.Command, args []string) error {
	if f.json && (f.graph || f.metadata || f.tensors || f.template) {
		return usagef("--json holds every section; give it alone")
	}
	if _, err := f.model.take(args); err != nil {
		return err
	}
	path, err := f.model.find(c)
	if err != nil {
		return err
	}
	sayModel(path, c.ErrOrStderr())
	m, err := openCheckpoint(path)
	if err != nil {
		return f.contents(c, path, err)
	}
	defer m.Close()
	g, notes, broken := model.Graph(c.Context(), m, 0)
	if f.graph {
		if broken != nil {
			return broken
		}
		return graph.Print(c.OutOrStdout(), g)
	}
	r := newReport(m, notes)
	if broken == nil {
		r.Memory, r.Latents, r.States = memoryPerToken(g.KVs()), latents(g.KVs()), backend.StateBytes(g)
		r.Encoder, broken = describeEncoder(m, g)
	}
	// The contents of the files are shown all the same: they help to find the fault.
	t, err := m.Tokenizer()
	if err == nil {
		r.setTokenizer(c.Context(), t, m.EndOfTurn(t))
	}
	return errors.Join(f.show(c.OutOrStdout(), r), broken, err)
}

// contents shows files that hold no model, and returns why, the reason.
func (f *inspectFlags) contents(c *cobra.Command, path string, why error) error {
	m, err := checkpoint.Contents(path)
	if err != nil || f.graph {
		return why
	}
	defer m.Close()
	r := newReport(m, nil)
	if t, err := checkpoint.OpenTokenizer(path); err == nil {
		r.setTokenizer(c.Context(), t, t.EndOfTurn())
	}
	return errors.Join(f.show(c.OutOrStdout(), r), why)
}

// show prints what was asked for.
func (f *inspectFlags) show(w io.Writer, r *report) error {
	switch {
	case f.json:
		e := newEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	case f.metadata || f.tensors || f.template:
		return f.writeSections(w, r)
	}
	return r.write(w)
}

// report is what inspect knows about a model.
type report struct {
	Path          string `json:"path"`
	Format        string `json:"format"`
	Architecture  string `json:"architecture"`
	Parameters    int64  `json:"parameters"`
	Bytes         int64  `json:"bytes"` // of the tensors
	ContextLength int    `json:"context_length,omitempty"`

	Types     []typeUse          `json:"types"`
	Memory    []tokenMemory      `json:"memory_per_token"`
	Latents   *latentFacts       `json:"latents,omitempty"`
	States    int64              `json:"state_bytes,omitempty"` // of a sequence, whatever its length
	Encoder   *encoderFacts      `json:"encoder,omitempty"`
	Tokenizer *tokenizerFacts    `json:"tokenizer,omitempty"`
	Template  *templateFacts     `json:"chat_template,omitempty"`
	Sampling  map[string]float64 `json:"recommended_sampling,omitempty"`
	Notes     []string           `json:"notes,omitempty"`
	Metadata  []setting          `json:"metadata"`
	Tensors   []tensorFacts      `json:"tensors"`
}

type setting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// typeUse is how much of a model has one element type.
type typeUse struct {
	Type       string `json:"type"`
	Tensors    int    `json:"tensors"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
}

type tensorFacts struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Shape  []int  `json:"shape"`
	Bytes  int64  `json:"bytes"`
	File   string `json:"file,omitempty"`
	Offset *int64 `json:"offset,omitempty"` // in the file, where it is known
}

// templateFacts identifies a chat template.
type templateFacts struct {
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
	Text   string `json:"text"`

	LostMarkers []string `json:"lost_markers,omitempty"` // special tokens that it builds from content
}

type tokenizerFacts struct {
	Vocabulary int         `json:"vocabulary"`
	BOS        *tokenName  `json:"bos,omitempty"`
	AddsBOS    bool        `json:"adds_bos"`
	EOS        *tokenName  `json:"eos,omitempty"`
	End        []tokenName `json:"end_of_turn"` // any of them ends an answer
}

type tokenName struct {
	ID    int    `json:"id"`
	Piece string `json:"piece"`
}

func (t tokenName) String() string { return fmt.Sprintf("%s (%d)", oneLine(t.Piece), t.ID) }

// tokenMemory is what keys and values of one more token take, up to a number
// of tokens (0: beyond the one before).
type tokenMemory struct {
	UpTo int   `json:"up_to,omitempty"`
	F16  int64 `json:"f16"`
	F32  int64 `json:"f32"`
}

func newReport(m *checkpoint.Checkpoint, notes []string) *report {
	r := &report{Path: m.Path, Format: string(m.Format), Architecture: m.Arch, Bytes: m.Bytes(), ContextLength: m.ContextLength(),
		Template: describeTemplate(m.Template()), Sampling: recommended(m.Generation()), Notes: notes}
	for _, e := range m.Metadata {
		r.Metadata = append(r.Metadata, setting{e.Key, e.Value})
	}
	r.setTensors(m)
	return r
}

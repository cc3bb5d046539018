package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// inspectFlags are the flags of inspect.
type inspectFlags struct {
	graph, metadata, tensors, template, json bool
}

func newInspectCommand() *cobra.Command {
	var f inspectFlags
	c := define("inspect", f.run)
	c.takesModel()
	c.flags("graph", &f.graph, "metadata", &f.metadata, "tensors", &f.tensors, "template", &f.template, "json", &f.json)
	return c.Command
}

func (f *inspectFlags) run(x *call) error {
	if f.json && (f.graph || f.metadata || f.tensors || f.template) {
		return usagef("--json holds every section; give it alone")
	}
	path := must(x.find())
	sayDemo(path, x.log)
	if t, file, err := checkpoint.OpenProjector(path); err == nil {
		defer file.Close()
		return f.tower(x, t)
	}
	m, err := openCheckpoint(path)
	if err != nil {
		return f.contents(x, path, err)
	}
	throw(checkpoint.FitProjector(m, ""))
	defer m.Close()
	g, notes, broken := model.Graph(x.ctx, m, 0)
	if f.graph {
		if broken != nil {
			return broken
		}
		return graph.Print(x.out, g)
	}
	r := newReport(m, notes)
	if broken == nil {
		r.Next = m.Values.Int(m.Family.NextKey())
		r.Memory, r.Latents, r.States = memoryPerToken(g), latents(g.KVs()), backend.StateBytes(g)
		r.Encoder, broken = describeEncoder(m, g)
	}
	if r.Tower, err = describeTower(m.Tower); err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("pictures are not read: %v", err))
	}
	// The contents of the files are shown all the same, as a help in finding the fault.
	t, err := m.Tokenizer()
	if err == nil {
		r.setTokenizer(x.ctx, t, m.EndOfTurn(t))
	}
	return errors.Join(f.show(x, r), broken, err)
}

// tower shows a file of a part for pictures.
func (f *inspectFlags) tower(x *call, t *checkpoint.Tower) error {
	g, _, broken := arch.Tower(t)
	if f.graph {
		if broken != nil {
			return broken
		}
		return graph.Print(x.out, g)
	}
	m := must(checkpoint.Contents(t.Path))
	defer m.Close()
	r := newReport(m, nil)
	if broken == nil {
		r.Tower, broken = describeTower(t)
	}
	return errors.Join(f.show(x, r), broken)
}

// contents shows files without a model, and returns why, the reason.
func (f *inspectFlags) contents(x *call, path string, why error) error {
	m, err := checkpoint.Contents(path)
	if err != nil || f.graph {
		return why
	}
	defer m.Close()
	r := newReport(m, nil)
	if t, err := checkpoint.OpenTokenizer(path); err == nil {
		r.setTokenizer(x.ctx, t, t.EndOfTurn())
	}
	return errors.Join(f.show(x, r), why)
}

// show prints the requested sections.
func (f *inspectFlags) show(x *call, r *report) error {
	switch {
	case f.json:
		return x.json(r)
	case f.metadata || f.tensors || f.template:
		text, err := f.sections(x, r)
		return cmp.Or(x.printf("%s", text), err)
	}
	return x.printf("%s", r.text())
}

// report is the facts about a model.
type report struct {
	Path          string `json:"path"`
	Format        string `json:"format"`
	Packing       string `json:"packing,omitempty"` // of a folder's quantized weights
	Architecture  string `json:"architecture"`
	Parameters    int64  `json:"parameters"`
	Bytes         int64  `json:"bytes"` // of the tensors
	ContextLength int    `json:"context_length,omitempty"`

	Types     []typeUse          `json:"types"`
	Memory    []tokenMemory      `json:"memory_per_token"`
	Latents   *latentFacts       `json:"latents,omitempty"`
	States    int64              `json:"state_bytes,omitempty"` // of a sequence, whatever its length
	Next      int                `json:"next_layers,omitempty"` // behind the last, predicting further tokens
	Encoder   *encoderFacts      `json:"encoder,omitempty"`
	Tower     *towerFacts        `json:"tower,omitempty"`
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

// typeUse is the share of an element type in a model.
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
	Offset *int64 `json:"offset,omitempty"` // in the file, if known
}

// templateFacts identifies a chat template.
type templateFacts struct {
	SHA256 string `json:"sha256"`
	Bytes  int    `json:"bytes"`
	Text   string `json:"text"`

	LostMarkers []string `json:"lost_markers,omitempty"` // special tokens built from content
}

type tokenizerFacts struct {
	Vocabulary int         `json:"vocabulary"`
	BOS        *tokenName  `json:"bos,omitempty"`
	AddsBOS    bool        `json:"adds_bos"`
	EOS        *tokenName  `json:"eos,omitempty"`
	End        []tokenName `json:"end_of_turn"` // ends of an answer
}

type tokenName struct {
	ID    int    `json:"id"`
	Piece string `json:"piece"`
}

func (t tokenName) String() string { return fmt.Sprintf("%s (%d)", oneLine(t.Piece), t.ID) }

// tokenMemory is the memory for keys and values of a further token, up to a number of tokens (0: beyond the entry
// before).
type tokenMemory struct {
	UpTo int   `json:"up_to,omitempty"`
	Q8   int64 `json:"q8_0"` // behind the newest positions
	F16  int64 `json:"f16"`
	F32  int64 `json:"f32"`
}

func newReport(m *checkpoint.Checkpoint, notes []string) *report {
	r := &report{Path: m.Path, Format: string(m.Format), Packing: m.Packing, Architecture: m.Arch, Bytes: m.Bytes(),
		ContextLength: m.ContextLength(), Template: describeTemplate(m.Template()),
		Sampling: recommended(m.Generation()), Notes: notes}
	for _, e := range m.Metadata {
		r.Metadata = append(r.Metadata, setting{e.Key, e.Value})
	}
	r.setTensors(m)
	return r
}

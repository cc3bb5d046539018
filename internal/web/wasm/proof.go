//go:build js

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall/js"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/lab"
	opener "github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/web/probe"
)

// proveOptions are the options of prove.
type proveOptions struct {
	KV      string    `json:"kv"`
	MaxKL   float64   `json:"maxKL"`   // where the record has no floor of float32
	Taps    bool      `json:"taps"`    // compare also a prompt's taps with float64's
	Prompt  int       `json:"prompt"`  // the prompt's index
	Prompts [][]int32 `json:"prompts"` // token ids, where there is no record
}

// prove computes the prompts of a golden record anew, like "karat lab record", and compares, like "karat lab compare".
// Without a record float64 on the CPU is the golden one.
func (m *model) prove(args []js.Value) (any, error) {
	record, options := argument(args, 0), argument(args, 1)
	o := proveOptions{KV: "f32", MaxKL: 1e-5, Prompt: 2}
	if err := read(options, "prove", &o); err != nil {
		return nil, err
	}
	n, err := numerics.Parse("f32", o.KV)
	if err == nil {
		n, err = n.On(string(m.o.Backend))
	}
	if err != nil {
		return nil, fmt.Errorf("prove: %w", err)
	}
	ctx, end := until(options)
	defer end()
	progress := function(options, "onProgress")
	golden, err := m.texts(ctx, o.Prompts)
	if err != nil {
		return nil, err
	}
	if record.Type() == js.TypeObject {
		golden, err = lab.ParseRecord("golden.safetensors", bytesOf(record.Get("json")), bytesOf(record.Get("tensors")))
		if err != nil {
			return nil, err
		}
	}
	var result *proof
	err = m.aside(func() error {
		done, total := 0, len(golden.Prompts)
		if o.Taps && golden.Prompt(o.Prompt) != nil {
			total++ // the prompt in float64
		}
		step := func(p *lab.Prompt, c *lab.PromptComparison) error {
			done++
			row, err := plain(c)
			progress(done, total, p.Text, row)
			return err
		}
		if record.Type() != js.TypeObject {
			total += len(golden.Prompts)
			count := func(p, _ *lab.Prompt) error { return step(p, nil) }
			if golden, err = m.record(ctx, golden, exact, none, count); err != nil {
				return err
			}
			golden.Path = "float64"
		}
		result, err = m.proof(ctx, golden, n, &o, step)
		return err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

var ownTexts = []string{"The color of the sky is", "func main() {", "2 + 2 =",
	"Er sagte: \u201eGuten Tag\u201c, und", "日本の首都は"}

// texts returns prompts without values; without ids, prompts of ownTexts.
func (m *model) texts(ctx context.Context, ids [][]int32) (*lab.Record, error) {
	r := &lab.Record{Path: "float64"}
	for i, list := range ids {
		r.Prompts = append(r.Prompts, &lab.Prompt{Index: i, IDs: list})
	}
	if ids != nil {
		return r, nil
	}
	for i, text := range ownTexts {
		p := &lab.Prompt{Index: i, Text: text}
		all, err := m.m.Tokenize(ctx, text, karat.TokenizeOptions{})
		if err != nil {
			return nil, err
		}
		for _, id := range all {
			p.IDs = append(p.IDs, int32(id))
		}
		r.Prompts = append(r.Prompts, p)
	}
	return r, nil
}

// exact is the arithmetic of the golden side.
var exact = numerics.Numerics{Precision: "f64", KV: "f64"}

func none(*lab.Prompt) bool { return false }

// proof is a comparison with a golden record.
type proof struct {
	*lab.Comparison
	Judged bool                `json:"inside"`
	Taps   []lab.TapComparison `json:"taps,omitempty"` // of one prompt, against float64
}

func (m *model) proof(ctx context.Context, golden *lab.Record, n numerics.Numerics, o *proveOptions,
	step func(*lab.Prompt, *lab.PromptComparison) error) (*proof, error) {
	tapped := func(p *lab.Prompt) bool { return o.Taps && p.Index == o.Prompt }
	var judge lab.Options
	if slices.ContainsFunc(golden.Prompts, func(p *lab.Prompt) bool { return p.Float32 == nil }) {
		judge.MaxKL = &o.MaxKL
	}
	mine, err := m.record(ctx, golden, n, tapped, func(p, x *lab.Prompt) error { // the verdict of each at once
		c, err := lab.Compare(&lab.Record{Prompts: []*lab.Prompt{p}}, &lab.Record{Prompts: []*lab.Prompt{x}}, judge)
		if err != nil {
			return err
		}
		c.Prompts[0].Taps = nil
		return step(p, &c.Prompts[0])
	})
	if err != nil {
		return nil, err
	}
	c, err := lab.Compare(golden, mine, judge)
	if err == nil {
		err = c.Limited()
	}
	if err != nil {
		return nil, err
	}
	r := &proof{Comparison: c, Judged: c.Inside()}
	p := golden.Prompt(o.Prompt)
	if !o.Taps || p == nil {
		return r, nil
	}
	reference, err := m.record(ctx, &lab.Record{Prompts: []*lab.Prompt{p}}, exact, tapped,
		func(p, _ *lab.Prompt) error { return step(p, nil) })
	if err != nil {
		return nil, err
	}
	if c, err = lab.Compare(reference, mine, lab.Options{MaxKL: &o.MaxKL, Partial: true}); err != nil {
		return nil, err
	}
	r.Taps = c.Prompts[0].Taps
	return r, nil
}

// record computes the prompts of a record as n says; step is called behind each, with what was computed.
func (m *model) record(ctx context.Context, of *lab.Record, n numerics.Numerics, tapped func(*lab.Prompt) bool,
	step func(p, mine *lab.Prompt) error) (*lab.Record, error) {
	list, err := sources(m.files, n.GPU == 0) // the CPU needs all files in memory
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.Read(list...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	g, _, err := opener.Graph(ctx, c, 0)
	if err != nil {
		return nil, err
	}
	b, err := n.Backend(1)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	longest, keep := 1, 1
	for _, p := range of.Prompts {
		longest = max(longest, len(p.IDs))
		if p.Logits != nil {
			keep = max(keep, p.Logits.Shape[0])
		}
	}
	r, err := lab.NewRecorder(ctx, g, b, longest, keep)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	mine := &lab.Record{Path: "this browser"}
	for _, p := range of.Prompts {
		x := &lab.Prompt{Index: p.Index, Input: p.Input, Text: p.Text, IDs: p.IDs, Decode: p.Decode}
		if err := r.Record(ctx, x, tapped(p)); err != nil {
			return nil, err
		}
		mine.Prompts = append(mine.Prompts, x)
		if err := step(p, x); err != nil {
			return nil, err
		}
	}
	return mine, nil
}

// bytesOf returns a string, or a Uint8Array, as bytes; nil for all else.
func bytesOf(v js.Value) []byte {
	switch {
	case v.Type() == js.TypeString:
		return []byte(strings.Clone(v.String()))
	case v.Type() == js.TypeObject && v.InstanceOf(js.Global().Get("Uint8Array")):
		b := make([]byte, v.Length())
		js.CopyBytesToGo(b, v)
		return b
	}
	return nil
}

// nodeInfo is a karat.Node.
type nodeInfo struct {
	Name  string `json:"name"`
	HF    string `json:"hf"`
	Op    string `json:"op"`
	Layer int    `json:"layer"`
	Shape []int  `json:"shape"`
	Heads int    `json:"heads"` // of the node's values, or of its input's
}

func (m *model) nodes([]js.Value) (any, error) {
	var list []nodeInfo
	heads := map[string]int{}
	for _, n := range m.m.Nodes() {
		if heads[n.Name] = n.Heads; n.Heads == 0 && len(n.In) == 1 {
			n.Heads = heads[n.In[0]]
		}
		list = append(list, nodeInfo{n.Name, n.HF, n.Op, n.Layer, n.Shape, n.Heads})
	}
	return list, nil
}

// probe computes a prompt and describes the whole value of a node.
func (m *model) probe(args []js.Value) (any, error) {
	return m.withPrompt(args, 1, "probe", func(ctx context.Context, _ prompt, ids []int) (any, error) {
		r, err := probe.Describe(ctx, m.m, ids, argument(args, 0).String())
		return struct {
			*probe.Result
			Tokens []token `json:"tokens"`
		}{r, tokensOf(m, ids)}, err
	})
}

// change computes a prompt without and with a change of a node's values.
func (m *model) change(args []js.Value) (any, error) {
	var c probe.Change
	if err := read(argument(args, 0), "change", &c); err != nil {
		return nil, err
	}
	return m.withPrompt(args, 1, "change", func(ctx context.Context, _ prompt, ids []int) (any, error) {
		return c.Effect(ctx, m.m, ids)
	})
}

//go:build js

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall/js"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/lab"
)

// prove computes the prompts of a golden record anew, as "karat lab record" does, and
// compares, as "karat lab compare" does. With taps it computes the taps of a prompt in
// float64, too, and compares these.
func (m *model) prove(args []js.Value) (any, error) {
	record, options := argument(args, 0), argument(args, 1)
	if record.Type() != js.TypeObject {
		return nil, errors.New("karat: prove: no record")
	}
	info, tensors := bytesOf(record.Get("json")), bytesOf(record.Get("tensors"))
	golden, err := lab.ParseRecord("golden.safetensors", info, tensors)
	if err != nil {
		return nil, err
	}
	var o struct {
		KV     string `json:"kv"`
		Taps   bool   `json:"taps"`
		Tapped int    `json:"prompt"` // of Taps
	}
	o.KV, o.Tapped = "f32", 2
	if err := read(options, "prove", &o); err != nil {
		return nil, err
	}
	n, err := numerics.Parse("f32", o.KV)
	if err == nil {
		n, err = n.On(m.o.Backend)
	}
	if err != nil {
		return nil, fmt.Errorf("karat: prove: %w", err)
	}
	ctx, end := until(options)
	defer end()
	var result any
	err = m.aside(func() error {
		result, err = m.proof(ctx, golden, n, function(options, "onProgress"), o.Taps, o.Tapped)
		return err
	})
	if err != nil {
		return nil, err
	}
	return plain(result)
}

// proof is a comparison with a golden record.
type proof struct {
	*lab.Comparison
	Judged bool                `json:"inside"`
	Taps   []lab.TapComparison `json:"taps,omitempty"` // of one prompt, with float64
}

func (m *model) proof(ctx context.Context, golden *lab.Record, n numerics.Numerics, progress func(...any), taps bool, tapped int) (*proof, error) {
	total := len(golden.Prompts)
	mine, err := m.record(ctx, golden, n, func(p *lab.Prompt) bool { return taps && p.Index == tapped }, func(done int, p *lab.Prompt) { progress(done, total, p.Text) })
	if err != nil {
		return nil, err
	}
	c, err := lab.Compare(golden, mine, lab.Options{})
	if err != nil {
		return nil, err
	}
	r := &proof{Comparison: c, Judged: c.Inside()}
	if !taps {
		return r, nil
	}
	only := *golden
	only.Prompts = nil
	if p := golden.Prompt(tapped); p != nil {
		only.Prompts = []*lab.Prompt{p}
	}
	exact, err := m.record(ctx, &only, numerics.Numerics{Precision: "f64", KV: "f64"}, func(*lab.Prompt) bool { return true }, func(int, *lab.Prompt) {})
	if err != nil {
		return nil, err
	}
	limit := 1e30 // the taps alone are looked at
	if c, err = lab.Compare(exact, mine, lab.Options{MaxDiff: &limit, Partial: true}); err != nil {
		return nil, err
	}
	r.Taps = c.Prompts[0].Taps
	return r, nil
}

// record computes the prompts of a record as n says.
func (m *model) record(ctx context.Context, of *lab.Record, n numerics.Numerics, tapped func(*lab.Prompt) bool, done func(int, *lab.Prompt)) (*lab.Record, error) {
	c, err := m.checkpoint(n)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	g, _, err := arch.Load(c)
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
	r, err := lab.NewRecorder(g, b, longest, keep)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	mine := &lab.Record{Path: "this browser"}
	for i, p := range of.Prompts {
		x := &lab.Prompt{Index: p.Index, Input: p.Input, Text: p.Text, IDs: p.IDs, Decode: p.Decode}
		if err := r.Record(ctx, x, tapped(p)); err != nil {
			return nil, err
		}
		mine.Prompts = append(mine.Prompts, x)
		done(i+1, p)
	}
	return mine, nil
}

// checkpoint opens the model's file for n: the CPU needs all of it in memory.
func (m *model) checkpoint(n numerics.Numerics) (*checkpoint.Checkpoint, error) {
	if n.GPU > 0 {
		return checkpoint.Read(m.file.name, m.file, m.file.size)
	}
	data, err := m.file.all()
	if err != nil {
		return nil, err
	}
	return checkpoint.Parse(m.file.name, data)
}

// bytesOf is a string, or a Uint8Array, as bytes; nil for all else.
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

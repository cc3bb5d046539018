//go:build js

package main

import (
	"syscall/js"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/web/probe"
)

// nodeInfo is a karat.Node.
type nodeInfo struct {
	Name  string `json:"name"`
	HF    string `json:"hf"`
	Op    string `json:"op"`
	Layer int    `json:"layer"`
	Shape []int  `json:"shape"`
	Heads int    `json:"heads"` // of its values, or of the values that it reads
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
	return plain(list)
}

// probe computes a prompt and describes the whole value of one node.
func (m *model) probe(args []js.Value) (any, error) {
	p, err := readPrompt(argument(args, 1))
	if err != nil {
		return nil, err
	}
	ctx, end := until(argument(args, 2))
	defer end()
	ids, err := m.ids(ctx, p, karat.GenerateOptions{})
	if err != nil {
		return nil, err
	}
	r, err := probe.Of(ctx, m.m, ids, argument(args, 0).String())
	if err != nil {
		return nil, err
	}
	return plain(struct {
		*probe.Result
		Tokens []token `json:"tokens"`
	}{r, m.tokens(ids)})
}

// change computes a prompt without and with a change of a node's values.
func (m *model) change(args []js.Value) (any, error) {
	var c probe.Change
	if err := read(argument(args, 0), "change", &c); err != nil {
		return nil, err
	}
	p, err := readPrompt(argument(args, 1))
	if err != nil {
		return nil, err
	}
	ctx, end := until(argument(args, 2))
	defer end()
	ids, err := m.ids(ctx, p, karat.GenerateOptions{})
	if err != nil {
		return nil, err
	}
	e, err := c.Effect(ctx, m.m, ids)
	if err != nil {
		return nil, err
	}
	return plain(e)
}

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
}

func (m *model) nodes([]js.Value) (any, error) {
	var list []nodeInfo
	for _, n := range m.m.Nodes() {
		list = append(list, nodeInfo{n.Name, n.HF, n.Op, n.Layer, n.Shape})
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

package cpu

import (
	"github.com/karat-run/karat/internal/graph"
)

// chain is consecutive nodes, each computing a row from the same row of its inputs alone: one loop computes all, rows
// by rows. So a token's chain stays on one thread, and threads do not meet between the nodes of a few rows.
type chain struct {
	e      *executable
	node   *graph.Node                // the first
	before []func() error             // work done before the loop
	bodies []func(from, to int) error // by node
	after  []func() error             // work done after the loop
	size   int                        // numbers of a row
	body   func(worker, from, to int) error
}

// chains reports whether n can be in a chain.
func chains(n *graph.Node) bool {
	switch n.Op {
	case graph.Embed, graph.RMSNorm, graph.Add, graph.Mul, graph.Scale, graph.Softcap, graph.GLU, graph.Act, graph.RoPE,
		graph.StoreKV,
		graph.LayerNorm, graph.L2Norm, graph.Concat, graph.Slice, graph.EmbedPos, graph.ScalePos,
		graph.Patches, graph.Interpolate, graph.Clamp, graph.Deepstack,
		graph.Mix, graph.Match, graph.Above:
		return true
	}
	return false
}

// link puts n at the end of the running chain, or else begins a chain and returns the kernel. before may be nil.
func (p *planner) link(n *graph.Node, before func() error, body func(from, to int) error) func() error {
	first := p.chain == nil || p.e.after[p.chain.node] != p.e.after[n]
	if first {
		p.unchain()
		p.chain = &chain{e: p.e, node: n}
		c := p.chain
		c.body = func(_, from, to int) error {
			for _, body := range c.bodies {
				if err := body(from, to); err != nil {
					return err
				}
			}
			return nil
		}
	}
	c := p.chain
	if before != nil {
		c.before = append(c.before, before)
	}
	c.bodies, c.size = append(c.bodies, body), c.size+n.Shape.Size()
	if first {
		return c.run
	}
	return nil
}

// unchain ends the chain: later nodes may take its nodes' buffers, but not within the chain, while threads are at
// different rows.
func (p *planner) unchain() {
	p.chain = nil
	p.free = append(p.free, p.held...)
	p.held = p.held[:0]
}

func (c *chain) run() error {
	for _, f := range c.before {
		if err := f(); err != nil {
			return err
		}
	}
	if err := c.e.b.pool.run(c.e.count(c.node), max(1, soloWork/c.size), c.body); err != nil {
		return err
	}
	for _, f := range c.after {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

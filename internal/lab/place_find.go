package lab

import (
	"cmp"
	"errors"
	"regexp"
	"slices"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/spelling"
)

// Find returns the node of g of a name in any naming scheme, such as model.layers.0.mlp.down_proj.in, ffn_out-0 and
// blk.0.ffn_down. Without a node the error says why, and which name is near.
func Find(g *graph.Graph, name string) (*graph.Node, error) {
	l := newPlacer(g, &Prompt{})
	if n := l.byName[name]; n != nil {
		return n, nil
	}
	why := ""
	for _, find := range []func(string) spot{l.hf, l.llamaCpp, l.karat} {
		s := find(name)
		if s.node != nil {
			return s.node, nil
		}
		why = cmp.Or(why, s.why)
	}
	if n, near := NamesOf(g).Near(g, name); n != nil {
		why += ": did you mean " + near + "?"
	}
	return nil, errors.New(why)
}

// maxNear is the most letters of a name that is compared with all names.
const maxNear = 200

// Near returns the value of g whose name looks most like a name without a place, and its name; nil if none does. Names
// of PyTorch's modules come before llama.cpp's and the graph's.
func (names Names) Near(g *graph.Graph, name string) (best *graph.Node, as string) {
	if len(name) > maxNear {
		return nil, ""
	}
	least, numbers := max(1, len(name)/6)+1, digits.FindAllString(name, -1)
	for _, n := range g.Nodes {
		for _, known := range []string{names.Torch[n], names.LlamaCpp[n], n.Name} {
			if known == "" || !slices.Equal(digits.FindAllString(known, -1), numbers) {
				continue
			}
			if d := spelling.Distance(name, known); d < least {
				best, as, least = n, known, d
			}
		}
	}
	return best, as
}

// digits matches the numbers of names, such as layers.
var digits = regexp.MustCompile(`\d+`)

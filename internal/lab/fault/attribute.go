package fault

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// attributeSpecs are faults of attributes that few families have.
var attributeSpecs = []*spec{
	{id: "attention_sink", pick: ops(graph.Attention), apply: plain(func(_ *plan, n *graph.Node) (string, error) {
		if len(n.W) == 0 {
			return "", same("there are no sinks")
		}
		n.W = nil
		return "the sinks are left out", nil
	})},
	{id: "attention_cap", pick: ops(graph.Attention), apply: plain(func(_ *plan, n *graph.Node) (string, error) {
		a := n.Attr.(graph.AttentionAttr)
		if a.Cap == 0 {
			return "", same("scores have no cap")
		}
		detail := fmt.Sprintf("scores are not capped at %g", a.Cap)
		a.Cap = 0
		n.Attr = a
		return detail, nil
	}), tokens: 2},
	{id: "chunk_missing", pick: having(graph.Attention, func(_ *plan, n *graph.Node) bool { return n.Attr.(graph.AttentionAttr).KV.Chunked }), values: []string{"window"}, windows: true, apply: chunkMissing},
	{id: "latent_part", pick: having(graph.Attention, func(_ *plan, n *graph.Node) bool { return n.Attr.(graph.AttentionAttr).KV.Latent }), apply: plain(func(p *plan, n *graph.Node) (string, error) {
		kv := n.Attr.(graph.AttentionAttr).KV
		if kv.Values() == kv.Dim {
			return "", same("values are all of the keys")
		}
		p.attend(n).tail = true
		return fmt.Sprintf("the last %d elements of keys for the first", kv.Values()), nil
	})},
	{id: "activation_limit", pick: ops(graph.GLU, graph.Experts), values: []string{"limit", "alpha", "plus"}, apply: activationLimit},
	{id: "gate_up_layout", pick: ops(graph.Experts), apply: plain(func(_ *plan, n *graph.Node) (string, error) {
		a, _ := n.Attr.(graph.ExpertsAttr)
		detail := "halves for rows by turns"
		switch a.Form {
		case graph.Interleaved:
			a.Form = graph.Fused
		case graph.Fused:
			a.Form, detail = graph.Interleaved, "rows by turns for halves"
		default:
			return "", same("gate and up are no one weight")
		}
		n.Attr = a
		return detail, nil
	})},
	{id: "expert_input", pick: ops(graph.Experts), apply: plain(func(_ *plan, n *graph.Node) (string, error) {
		a, _ := n.Attr.(graph.ExpertsAttr)
		a.OnInput = !a.OnInput
		n.Attr = a
		if a.OnInput {
			return "weights multiply what experts read", nil
		}
		return "weights multiply what experts give", nil
	})},
	{id: "router_factor", pick: ops(graph.Route), apply: plain(func(_ *plan, n *graph.Node) (string, error) {
		a, _ := n.Attr.(graph.RouteAttr)
		if a.Factor == 0 || a.Factor == 1 {
			return "", same("there is no factor")
		}
		was := a.Factor
		a.Factor = 0
		n.Attr = a
		return fmt.Sprintf("1 for %g", was), nil
	})},
	{id: "router_eps", pick: ops(graph.Route), apply: plain(func(_ *plan, n *graph.Node) (string, error) {
		a, _ := n.Attr.(graph.RouteAttr)
		if a.Eps < 1e-4 { // the chosen scores add up to about 1: less is rounding
			return "", same(fmt.Sprintf("%g is added to the sum", a.Eps))
		}
		was := a.Eps
		a.Eps = 0
		n.Attr = a
		return fmt.Sprintf("divided by the sum without %g", was), nil
	})},
	{id: "router_groups", pick: ops(graph.Route), values: []string{"best"}, apply: routerGroups},
	{id: "scale_factor", pick: factors, apply: scaleFactor, values: []string{"twice"}},
	{id: "router_bias", pick: ops(graph.Route), apply: routerBias, values: []string{"none"}},
}

// factors are the model's own: not those of per-layer embeddings.
func factors(l *layer) []*graph.Node {
	ple := pleScales(l)
	return slices.DeleteFunc(l.of(graph.Scale), func(n *graph.Node) bool {
		return len(ple) > 0 || n.Attr.(graph.ScaleAttr).By == 1
	})
}

// scaleFactor leaves a factor out, or multiplies by it twice.
func scaleFactor(p *plan, n *graph.Node, value string) (string, error) {
	by := n.Attr.(graph.ScaleAttr).By
	switch value {
	case "":
		n.Attr = graph.ScaleAttr{By: 1}
		return fmt.Sprintf("without the factor of %.7g", by), nil
	case "twice":
		n.Attr = graph.ScaleAttr{By: by * by}
		return fmt.Sprintf("twice times %.7g", by), nil
	}
	return "", odd(value, "twice")
}

// routerGroups chooses without groups, or ranks a group by its best expert alone.
func routerGroups(_ *plan, n *graph.Node, value string) (string, error) {
	a, _ := n.Attr.(graph.RouteAttr)
	was, detail := a, "chosen among all experts"
	switch value {
	case "":
		a.Groups, a.Kept, a.Best = 0, 0, 0
	case "best":
		a.Best, detail = 0, "a group is as good as its best expert"
	default:
		return "", odd(value, "best")
	}
	if was.Groups <= 1 || value == "best" && was.Best <= 1 {
		return "", same("groups are not ranked so")
	}
	n.Attr = a
	return detail, nil
}

// chunkMissing sees all earlier positions, or the last ones of a window.
func chunkMissing(p *plan, n *graph.Node, value string) (string, error) {
	kv := n.Attr.(graph.AttentionAttr).KV // a copy of its own
	switch value {
	case "":
		detail := fmt.Sprintf("all positions for runs of %d", kv.Window)
		kv.Chunked = false
		return detail, p.see(n, 0)
	case "window":
		kv.Chunked = false
		return fmt.Sprintf("a window for runs of %d", kv.Window), nil
	}
	return "", odd(value, "window")
}

func activationLimit(_ *plan, n *graph.Node, value string) (string, error) {
	a, _ := n.Activates()
	was := a
	switch value {
	case "":
		a.Limit, a.Alpha, a.Plus = 0, 0, 0
	case "limit":
		a.Limit = 0
	case "alpha":
		a.Alpha = 0
	case "plus":
		a.Plus = 0
	default:
		return "", odd(value, "limit", "alpha", "plus")
	}
	if a == was {
		return "", same("there is none")
	}
	if e, ok := n.Attr.(graph.ExpertsAttr); ok {
		e.ActAttr = a
		n.Attr = e
	} else {
		n.Attr = a
	}
	return "act(gate)·up without " + map[string]string{"": "limit, alpha and plus"}[value] + value, nil
}

// routerBias adds the bias of the choice to the weights, too, or leaves it out.
func routerBias(p *plan, n *graph.Node, value string) (string, error) {
	a, _ := n.Attr.(graph.RouteAttr)
	if !a.Biased {
		return "", same("there is no bias")
	}
	switch value {
	case "none":
		a.Biased, n.W = false, n.W[:len(n.W)-1]
		n.Attr = a
		return "chosen without the bias", nil
	case "":
		_, w := n.RouteWeights()
		bias, err := widen(w)
		if err != nil {
			return "", err
		}
		p.then(n, func(_ *reference.Call, y []float64, _ int) {
			for i := 0; i < len(y); i += 2 {
				y[i+1] += bias[int(y[i])]
			}
		})
		return "the bias is in the weights, too", nil
	}
	return "", odd(value, "none")
}

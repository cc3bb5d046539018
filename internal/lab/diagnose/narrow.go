package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// operations are the nodes that compute something.
func operations(span []*graph.Node) []*graph.Node {
	return slices.DeleteFunc(slices.Clone(span), func(n *graph.Node) bool { return n.Op == graph.View || n.Op == graph.Rows || n.Op == graph.StoreKV })
}

// untold are the values before target that no tap shows and a module of PyTorch's has, by which nodes would be told apart.
func (r *wiring) untold(among []*graph.Node, target *graph.Node) (values []*graph.Node) {
	for _, n := range among {
		if n != target && r.taps[n] == "" && r.others.Torch[n] != "" {
			values = append(values, n)
		}
	}
	return values
}

// narrow says which operations a finding may be about, and which taps would tell.
func (r *conclusion) narrow(f *Finding, among []*graph.Node, eq *equation) {
	const most = 8
	values := r.untold(among, eq.target)
	if len(values) == 0 {
		return
	}
	for _, n := range among {
		f.Among = append(f.Among, opName(n)+" "+role(n))
	}
	var gguf []string
	for i := range min(len(values), most) {
		n := values[i*len(values)/min(len(values), most)]
		f.AddTaps = append(f.AddTaps, r.others.Torch[n])
		if name := r.others.LlamaCpp[n]; name != "" {
			gguf = append(gguf, name)
		}
	}
	where := ""
	if len(f.AddTaps) < len(values) {
		where = fmt.Sprintf(", some of %d between which it may lie", len(values))
	}
	f.Fix = "Add taps that tell which operation it is, and diagnose again: " + strings.Join(f.AddTaps, ", ")
	if len(gguf) > 0 {
		f.Fix += " (llama.cpp: " + strings.Join(gguf, ", ") + ")"
	}
	f.Fix += where + "; in other layers likewise."
}

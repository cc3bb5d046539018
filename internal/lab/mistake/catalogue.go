package mistake

import (
	"cmp"
	_ "embed" // of the catalogue
	"encoding/json"
	"slices"
	"sync"

	"github.com/karat-run/karat/internal/graph"
)

// Kind is the class of a cause.
type Kind string

// The kinds.
const (
	Input      Kind = "input"      // the engine was given other tokens
	Weights    Kind = "weights"    // a weight was read wrongly
	Structural Kind = "structural" // an operation computes something else
	Numeric    Kind = "numeric"    // only rounding differs
	Instrument Kind = "instrument" // the probe is broken, not the engine
)

// Cause is an entry of the catalogue, catalogue.json.
type Cause struct {
	ID       string `json:"id"`
	Kind     Kind   `json:"kind"`
	Op       string `json:"op"`                // the graph's operation; "" for any
	Sentence string `json:"sentence"`          // the engine's behavior
	Numbers  []int  `json:"numbers,omitempty"` // in the list of 56 known faults behind the catalogue
	Story    string `json:"story,omitempty"`   // place where the mistake was met, with the source
	Fix      string `json:"fix"`               // change to make in the engine
}

//go:embed catalogue.json
var catalogue []byte

// All returns the catalogue, in the order of accusation. The caller must not change the list.
var All = sync.OnceValue(func() (all []Cause) {
	if err := json.Unmarshal(catalogue, &all); err != nil {
		panic(err)
	}
	return all
})

// Find returns the cause of an ID.
func Find(id string) (Cause, bool) {
	i := slices.IndexFunc(All(), func(c Cause) bool { return c.ID == id })
	if i < 0 {
		return Cause{}, false
	}
	return All()[i], true
}

// opOf returns the operation of a mistake at a node, in the words of findings.
func opOf(id string, n *graph.Node) string {
	switch c, _ := Find(id); {
	case c.Op == "" || c.Kind == Weights || slices.Contains([]string{"activation", "gelu_constant",
		"gate_up_swapped", "ple_scale", "activation_limit", "scan_decay", "scan_elements", "scan_groups",
		"scan_share", "state_lost"}, id):
		return OpName(n.Op)
	case slices.Contains([]string{"bias_missing", "norm_missing", "norm_eps", "norm_order", "final_norm_missing",
		"norm_mean", "norm_length", "norm_wrong_weight", "norm_joined"}, id) &&
		slices.Contains([]graph.Op{graph.RMSNorm, graph.LayerNorm, graph.L2Norm, graph.Conv, graph.Experts}, n.Op):
		return OpName(n.Op)
	default:
		return cmp.Or(c.Op, OpName(n.Op))
	}
}

// OpName returns the name of an operation in findings: rms_norm is RMSNorm.
func OpName(o graph.Op) string {
	return [...]string{"Embed", "Linear", "RMSNorm", "RoPE", "StoreKV", "Attention", "Add", "Mul",
		"Scale", "GLU", "Act", "Softcap", "Rows", "View", "Route", "Experts", "LayerNorm", "L2Norm", "Concat",
		"Slice", "EmbedPos", "ScalePos", "Pool", "HeadLinear",
		"Conv", "SSMScan", "DeltaScan", "Patches", "Interpolate", "Clamp", "Deepstack", "Mix",
		"Match", "Above", "Choose"}[o]
}

package lab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// The naming schemes of taps.
const (
	NamesAuto     = "auto"      // the one of the others that has a place for most of the taps
	NamesHF       = "hf"        // PyTorch's modules: model.layers.0.mlp.out
	NamesLlamaCpp = "llama.cpp" // nodes of its compute graph: ffn_out-0, ffn_out-0#0.MUL_MAT
	NamesKarat    = "karat"     // nodes of the graph: blk.0.ffn_down; PyTorch's modules; and NAME.LAYER: q_rope.07
)

// Placed is a tap at the node of the graph whose output it holds. Row i is
// the node's output, flat, at position First+i of the prompt.
type Placed struct {
	Name               string      // the dump's
	Tap                string      // PyTorch's name of the value, the node's where PyTorch has none
	Node               *graph.Node //
	Rows, Width, First int         // Width is the size of Node's shape

	data  rows
	heads int // if not 0, data is [heads, Rows, Width/heads]
	fold  int // if not 0, the positions of a row of data
	pairs int // if not 0, the size of heads whose two halves data has interleaved
}

// Unplaced is a tap that has no place, or does not fit the one that it has: then Node
// is that one, and Rows and Width are the tap's.
type Unplaced struct {
	Placed
	Why string
}

// Why a name has no place that nobody knows. Tools that write all they see write many of the first two beside; a layer
// that the model lacks, and parts of an unknown part of a layer, are another model's names.
const (
	noModule = "the graph has no such module"
	noValue  = "the graph has no such value"
	noLayer  = "the graph has no such layer"
	noPart   = "the graph's layers have no such part"
)

// IsUnknown reports whether the tap's name is no value's of the graph, nor of a value inside one.
func (u *Unplaced) IsUnknown() bool { return u.Why == noModule || u.Why == noValue || u.IsForeign() }

// IsBeside reports whether tools write the value beside the graph's, so that nobody meant it to have a place.
func (u *Unplaced) IsBeside() bool { return u.Node == nil && u.Why != noModule && !u.IsForeign() }

// IsForeign reports whether the tap's name is of a layer, or of parts of layers, that no such model has.
func (u *Unplaced) IsForeign() bool { return u.Why == noLayer || u.Why == noPart }

// Placement holds the places of a prompt's taps, logits and hidden states in a graph.
type Placement struct {
	Names    string     // the naming scheme
	Taps     []Placed   // in graph order
	Unplaced []Unplaced // by name
	Inferred []string   // what the dump did not say, a sentence each
}

// Read sets dst, of Width values, to row i. A tap of a mapped file is read
// under mmap.Guard.
func (p *Placed) Read(dst []float64, i int) {
	parts := max(1, p.heads)
	w := p.Width / parts
	for h := range parts {
		p.data.read(dst[h*w:(h+1)*w], h*p.Rows+i)
	}
	if p.pairs == 0 {
		return
	}
	half := p.pairs / 2
	was := make([]float64, p.pairs)
	for h := 0; h < p.Width; h += p.pairs {
		copy(was, dst[h:])
		for j := range half {
			dst[h+j], dst[h+half+j] = was[2*j], was[2*j+1]
		}
	}
}

// Tap makes a placed tap a known value of the reference.
type Tap struct{ Placed }

// Rows returns the first position with a row, and the number of rows.
func (t Tap) Rows() (first, n int) { return t.First, t.Placed.Rows * max(t.fold, 1) }

// Read sets dst to the row at a position.
func (t Tap) Read(dst []float64, row int) { t.Placed.Read(dst, (row-t.First)/max(t.fold, 1)) }

// Step returns the largest relative error of one rounding to the form in which the tap is stored: the form of its
// type, or 16 bits if all products the tap holds fit in 16 bits.
func (p *Placed) Step() float64 {
	f16, bf16 := p.data.dtype == tensor.F16, p.data.dtype == tensor.BF16
	if !f16 && !bf16 && p.Node.Op == graph.Linear {
		return p.Held()
	}
	return step(f16, bf16)
}

// Held returns the largest relative error of one rounding to the narrowest form in which the tap's values fit,
// whatever computes the values.
func (p *Placed) Held() float64 { return step(p.fits()) }

func step(f16, bf16 bool) float64 {
	switch {
	case bf16:
		return 0x1p-8
	case f16:
		return 0x1p-11
	}
	return 0x1p-24
}

// fits reports whether the values of the first rows, which are not all zero, are binary16 or bfloat16 numbers. Sums
// of float32 hardly ever fit by chance.
func (p *Placed) fits() (f16, bf16 bool) {
	row := make([]float64, p.Width)
	f16, bf16 = true, true
	zero := true
	for i := range min(p.Rows, 3) {
		p.Read(row, i)
		for _, v := range row {
			if v != v {
				continue // all forms have it
			}
			x := float32(v)
			zero = zero && v == 0
			f16 = f16 && float64(float16.F16(float16.ToF16(x))) == v
			bf16 = bf16 && float64(float16.BF16(float16.ToBF16(x))) == v
		}
	}
	return f16 && !zero, bf16 && !zero
}

// Place finds the nodes of g whose output p's taps hold. A tap with fewer rows than the prompt has positions has
// the last rows. Logits are the output of g's last node. Hidden states are taps of the embedding, the layers and
// the final norm, named hidden.LAYER, where p has no tap of as many positions. names is a naming scheme; "" means
// auto. The other prompts, which the same engine computed, help to infer facts of the engine.
func Place(g *graph.Graph, names string, p *Prompt, others ...*Prompt) (*Placement, error) {
	schemes := []string{names}
	switch names {
	case NamesHF, NamesLlamaCpp, NamesKarat:
	case "", NamesAuto:
		schemes = []string{NamesHF, NamesLlamaCpp, NamesKarat}
	default:
		return nil, fmt.Errorf("names %q: want %s, %s, %s or %s", names, NamesAuto, NamesHF, NamesLlamaCpp, NamesKarat)
	}
	prompts := append([]*Prompt{p}, slices.DeleteFunc(slices.Clone(others),
		func(o *Prompt) bool { return o == p || len(o.Taps) == 0 })...)
	var best []*placer
	most, of := -1, 0
	var counts []string
	for _, names := range schemes {
		var all []*placer
		n := 0
		of = 0
		for _, p := range prompts {
			l := newPlacer(g, p)
			l.place(names)
			for i := range l.out.Taps {
				if p.Taps[l.out.Taps[i].Name] != nil {
					n++
				}
			}
			of += len(p.Taps)
			all = append(all, l)
		}
		counts = append(counts, fmt.Sprintf("%s %d", names, n))
		if n > most {
			best, most = all, n
		}
	}
	l := best[0]
	l.orderHeads(best)
	if len(schemes) > 1 && of > 0 {
		l.out.Inferred = append(l.out.Inferred, fmt.Sprintf("the taps have the names of %s: of %d, these have "+
			"a place: %s", l.out.Names, of, strings.Join(counts, ", ")))
	}
	return &l.out, nil
}

// placer places the taps of one prompt.
type placer struct {
	g        *graph.Graph
	model    *reference.Model
	p        *Prompt
	byName   map[string]*graph.Node
	byModule map[string]*graph.Node // by PyTorch's name without prefix and .out
	root     string                 // see rootOf
	tops     map[string]bool        // the first parts of byModule's names
	taps     map[*graph.Node]string // names of values that are a module's input alone
	list     string                 // before a layer's number in byModule's names, with a dot
	parts    map[string]bool        // the first parts of names within a layer
	last     int                    // layer
	out      Placement
}

func newPlacer(g *graph.Graph, p *Prompt) *placer {
	l := &placer{g: g, p: p, byName: map[string]*graph.Node{}, byModule: map[string]*graph.Node{},
		taps: map[*graph.Node]string{}, root: rootOf(g), tops: map[string]bool{}, parts: map[string]bool{},
		model: reference.Of(g)}
	for _, n := range g.Nodes {
		l.byName[n.Name], l.last = n, max(l.last, n.Layer)
		if n.HF != "" {
			m := strings.TrimPrefix(strings.TrimSuffix(module(n.HF), ".out"), l.root)
			first, _, _ := strings.Cut(m, ".")
			l.byModule[m], l.tops[first] = n, true
			if list, part, ok := strings.Cut(m, fmt.Sprintf(".%d.", n.Layer)); ok {
				first, _, _ = strings.Cut(part, ".")
				l.list, l.parts[first] = list+".", true
			}
		}
		if name := projection(n); name != "" {
			l.taps[source(input(n))] = name + ".in"
		}
	}
	return l
}

// source returns the node that made n's value, behind views of the whole value and the choice of rows.
func source(n *graph.Node) *graph.Node {
	for n.Op == graph.Rows || n.Op == graph.View && n.Shape.Size() == n.In[0].Shape.Size() {
		n = n.In[0]
	}
	return n
}

// tap returns PyTorch's name of n's output, or n's own name.
func (l *placer) tap(n *graph.Node) string { return cmp.Or(n.HF, l.taps[n], n.Name) }

func (l *placer) place(names string) {
	l.out.Names = names
	find := map[string]func(string) spot{NamesHF: l.hf, NamesLlamaCpp: l.llamaCpp, NamesKarat: l.karat}[names]
	for _, name := range slices.Sorted(maps.Keys(l.p.Taps)) {
		l.add(name, find(name), l.p.Taps[name])
	}
	if l.p.Logits != nil {
		l.add("logits", spot{node: l.g.Result()}, l.p.Logits)
	}
	l.addHidden()
	l.positions()
	slices.SortStableFunc(l.out.Taps, func(a, b Placed) int {
		return cmp.Or(cmp.Compare(a.Node.ID, b.Node.ID), cmp.Compare(b.Rows, a.Rows))
	})
}

// spot holds the place of a tap by the tap's name.
type spot struct {
	node       *graph.Node // nil if there is no such place
	why        string      // there is none
	headsFirst bool        // the tensor is [heads, rows, head size]
}

// short are the nodes of short names of values, as in llamaCppLayer.
var short = map[string]string{
	"attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "q_norm": "attn_q_norm",
	"k_norm": "attn_k_norm", "v_norm": "attn_v_norm",
	"q_rope": "attn_q_rope", "k_rope": "attn_k_rope", "kqv": "attn_output<", "o": "attn_output",
	"post_attn_norm": "post_attention_norm",
	"resid1":         "ffn_norm<", "ffn_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "act": "ffn_down<",
	"down":   "ffn_down",
	"router": "ffn_gate_inp", "moe_mix": "ffn_experts", "post_ffn_norm": "post_ffw_norm", "l_out": "out",
	"embed_scaled": "token_embd", "final_norm": "output_norm", "logits_raw": "output",
	"hook_embed": "token_embd", "ln_final": "output_norm", // TransformerLens's
}

// lens are the nodes of TransformerLens's hooks in a block, of a model loaded without folding weights.
var lens = map[string]string{
	"hook_resid_pre": "attn_norm<", "hook_resid_mid": "ffn_norm<", "hook_resid_post": "out",
	"hook_attn_out": "attn_output", "hook_mlp_out": "ffn_down", "ln1.hook_normalized": "attn_norm",
	"ln2.hook_normalized": "ffn_norm", "attn.hook_q": "attn_q", "attn.hook_k": "attn_k", "attn.hook_v": "attn_v",
	"attn.hook_rot_q": "attn_q_rope", "attn.hook_rot_k": "attn_k_rope", "attn.hook_z": "attn_output<",
	"mlp.hook_pre": "ffn_gate", "mlp.hook_pre_linear": "ffn_up", "mlp.hook_post": "ffn_down<",
}

// karat finds a node by its own name, by PyTorch's name, or by a short name with .LAYER behind.
func (l *placer) karat(name string) spot {
	if n := l.byName[name]; n != nil {
		return spot{node: n}
	}
	base, number, _ := strings.Cut(name, ".")
	at := short[base]
	if base == "blocks" {
		number, base, _ = strings.Cut(number, ".")
		at = lens[base]
	}
	if layer, err := strconv.Atoi(number); err == nil && at != "" {
		n := l.node(layer, at)
		if n != nil && l.byName[n.Name+".bias"] != nil {
			n = l.byName[n.Name+".bias"]
		}
		if n != nil {
			return spot{node: n}
		}
		if l.isBeyond(layer) {
			return spot{why: noLayer}
		}
	} else if n := l.byName[at]; n != nil {
		return spot{node: n}
	}
	return l.hf(name)
}

// add places t, or notes why t has no place.
func (l *placer) add(name string, s spot, t *tensor.Tensor) {
	r := rowsOf(t)
	p := Placed{Name: name, Node: s.node, Rows: r.n, Width: r.width, data: r}
	why := s.why
	if s.node != nil {
		p.Tap = l.tap(s.node)
		why = p.fit(t, s)
	}
	if n := len(l.p.IDs); why == "" && n > 0 && p.Rows > n {
		why = fmt.Sprintf("%d rows, but the prompt has %d positions", p.Rows, n)
	}
	if why != "" {
		l.out.Unplaced = append(l.out.Unplaced, Unplaced{p, why})
		return
	}
	l.out.Taps = append(l.out.Taps, p)
}

// fit finds the rows of t, given that each has the size of the node's shape.
// Leading dimensions of 1 may be missing or too many.
func (p *Placed) fit(t *tensor.Tensor, s spot) string {
	want := s.node.Shape.Size()
	shape := t.Shape
	for len(shape) > 1 && shape[0] == 1 {
		shape = shape[1:]
	}
	width, dims := 1, len(shape)
	for dims > 0 && width < want {
		dims--
		width *= shape[dims]
	}
	rows := shape[:dims].Size()
	heads := 0
	if size := headSize(s.node); len(shape) == 3 && shape[2] == size && shape[0] == want/size &&
		(s.headsFirst || width != want) {
		width, rows, heads = want, shape[1], shape[0]
	}
	if width != want {
		return fmt.Sprintf("rows of %d values, but %s has %d", p.Width, s.node.Name, want)
	}
	p.Rows, p.Width, p.heads = rows, width, heads
	p.data.n, p.data.width = rows*max(1, heads), width/max(1, heads)
	return ""
}

// headSize returns the size of the heads in n's output.
func headSize(n *graph.Node) int {
	if a, ok := n.Attr.(graph.AttentionAttr); ok {
		return a.KV.Values()
	}
	return n.Shape.Last()
}

// HiddenStates returns the nodes whose values a dump has as hidden states, by their index there.
func HiddenStates(g *graph.Graph) map[int]*graph.Node {
	places := map[int]*graph.Node{}
	for n, i := range hiddenStates(g) {
		places[i] = n
	}
	return places
}

// addHidden makes taps of hidden states for which no tap has all positions.
func (l *placer) addHidden() {
	t := l.p.Hidden
	if t == nil || t.Shape[0] == 0 {
		return
	}
	places := HiddenStates(l.g)
	have := map[*graph.Node]int{}
	for _, p := range l.out.Taps {
		have[p.Node] = max(have[p.Node], p.Rows)
	}
	size := len(t.Data) / t.Shape[0]
	for i := range t.Shape[0] {
		s := spot{node: places[i]}
		if len(places) != t.Shape[0] {
			s = spot{why: fmt.Sprintf("%d hidden states, but the model has %d", t.Shape[0], len(places))}
		}
		if s.node == nil || have[s.node] < t.Shape[1] {
			l.add(fmt.Sprintf("hidden.%d", i), s, &tensor.Tensor{DType: t.DType, Shape: t.Shape[1:],
				Data: t.Data[i*size : (i+1)*size]})
		}
	}
}

// positions gives the rows their positions: the prompt's last ones.
func (l *placer) positions() {
	n := len(l.p.IDs)
	if n == 0 {
		for _, p := range l.out.Taps {
			n = max(n, p.Rows)
		}
		l.out.Inferred = append(l.out.Inferred,
			fmt.Sprintf("prompt %d: the dump has no ids; the longest tap says %d positions", l.p.Index, n))
	}
	for i := range l.out.Taps {
		t := &l.out.Taps[i]
		if fold := Fold(t.Node); fold > 1 && t.Rows*fold == n {
			t.fold = fold
		}
		t.First = n - t.Rows*max(t.fold, 1)
	}
}

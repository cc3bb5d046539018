package fault

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// attend is how an Attention attends otherwise than recorded.
type attend struct {
	tiled   bool // query head h reads key and value head h mod kv heads
	kAsV    bool
	tail    bool   // of a latent, values are the last elements of keys
	mask    string // "", none, future or self
	axis    string // of the softmax: "" for positions, else heads or sum
	chunk   int    // the window begins where that of the first position of a chunk of so many does; 0 for the own one
	shift   int    // keys and values of position p are read from p-shift
	fresh   bool   // only the keys and values of this step are there
	from    *graph.KV
	flat    bool                                         // from is read as if it had the layer's own shape
	lost    func(pos int) bool                           // positions whose values are read as 0
	rescale func(key []float64, pos int)                 // changes a copy of a key
	rows    func(y []float64, heads, dim int, pos int32) // changes a row's result
}

// attend is n's, whose kernel reads it.
func (p *plan) attend(n *graph.Node) *attend {
	a := p.attends[n]
	if a == nil {
		a = &attend{}
		p.attends[n] = a
		p.kernels[n] = a.kernel
	}
	return a
}

func (a *attend) kernel(c *reference.Call) ([]float64, error) {
	attr, heads := c.Node.Attr.(graph.AttentionAttr), c.Node.In[0].Shape[0]
	d, wide := attr.KV.Dim, attr.KV.Values()
	var sinks []float64
	if len(c.Node.W) > 0 {
		var err error
		if sinks, err = widen(c.Node.W[0]); err != nil {
			return nil, err
		}
	}
	y := make([]float64, len(c.Step.Pos)*heads*wide)
	for t := range c.Step.Pos {
		positions := a.seen(c.Step, t, attr)
		scores := make([][]float64, heads)
		for h := range heads {
			q := c.In[0][(t*heads+h)*d:][:d]
			for _, pos := range positions {
				key := a.fetch(c, attr.KV, t, pos, a.group(h, heads, attr.KV.Heads), false)
				var s float64
				for j, x := range key {
					s += q[j] * x
				}
				s *= attr.Scale
				if attr.Cap > 0 {
					s = attr.Cap * math.Tanh(s/attr.Cap)
				}
				scores[h] = append(scores[h], s)
			}
		}
		a.weigh(scores, sinks)
		for h := range heads {
			out := y[(t*heads+h)*wide:][:wide]
			for i, pos := range positions {
				if a.lost != nil && a.lost(pos) {
					continue
				}
				for j, x := range a.fetch(c, attr.KV, t, pos, a.group(h, heads, attr.KV.Heads), !a.kAsV)[:wide] {
					out[j] += scores[h][i] * x
				}
			}
		}
		if a.rows != nil {
			a.rows(y[t*heads*wide:][:heads*wide], heads, wide, c.Step.Pos[t])
		}
	}
	return y, nil
}

func (a *attend) group(h, heads, kvHeads int) int {
	if a.tiled {
		return h % kvHeads
	}
	return h * kvHeads / heads
}

// seen are the positions that row t sees.
func (a *attend) seen(s *backend.Step, t int, attr graph.AttentionAttr) (list []int) {
	pos := int(s.Pos[t])
	from := pos
	if a.chunk > 0 {
		from -= pos % a.chunk
	}
	first, last := attr.KV.Oldest(from), attr.Newest(pos, s.Seqs[t].Len())
	start, end := pos, pos // of the step's part of the sequence
	for r, q := range s.Seqs {
		if q == s.Seqs[t] {
			start, end = min(start, int(s.Pos[r])), max(end, int(s.Pos[r]))
		}
	}
	switch a.mask {
	case "none":
		last = end
	case "future":
		last = min(pos+1, end)
	case "self":
		last = max(first, pos-1)
	}
	if a.fresh {
		first = max(first, start)
	}
	for i := first; i <= last; i++ {
		list = append(list, i)
	}
	return list
}

// fetch is head g of the key or value of a position.
func (a *attend) fetch(c *reference.Call, kv *graph.KV, row, pos, g int, value bool) []float64 {
	from, read := kv, c.Keys
	if value {
		read = c.Values
	}
	pos = max(pos-a.shift, 0)
	if a.from != nil {
		from = a.from
	}
	dim, theirs := kv.Dim, from.Dim
	if value {
		dim, theirs = kv.Values(), from.Values()
	}
	size, width := kv.Heads*dim, from.Heads*theirs
	v := make([]float64, dim)
	switch {
	case a.tail && value:
		if all := c.Keys(from, row, pos); all != nil {
			copy(v, all[(g+1)*from.Dim-dim:])
		}
	case a.flat:
		for j := range v {
			at := pos*size + g*dim + j
			if all := read(from, row, at/width); all != nil {
				v[j] = all[at%width]
			}
		}
	default:
		if all := read(from, row, pos); all != nil {
			copy(v, all[g%from.Heads*theirs:][:theirs])
		}
	}
	if a.rescale != nil && !value {
		a.rescale(v, pos)
	}
	return v
}

// weigh makes weights of one row's scores [heads][positions].
func (a *attend) weigh(scores [][]float64, sinks []float64) {
	if a.axis == "heads" {
		for i := range scores[0] {
			column := make([]float64, len(scores))
			for h := range scores {
				column[h] = scores[h][i]
			}
			softmax(column, 0)
			for h := range scores {
				scores[h][i] = column[h]
			}
		}
		return
	}
	for h, s := range scores {
		sink := 0.0
		if sinks != nil {
			sink = math.Exp(sinks[h])
		}
		if a.axis == "sink" {
			sink = 1
		}
		softmax(s, sink)
	}
}

// softmax makes weights of scores; sink is added to their sum, as a score of 0 would be.
func softmax(x []float64, sink float64) {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	sum := sink * math.Exp(-top)
	for i, v := range x {
		x[i] = math.Exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

var attentionSpecs = []*spec{
	{id: "attention_scale", pick: ops(graph.Attention), apply: attentionScale, tokens: 2},
	{id: "window_size", pick: sliding, apply: windowSize, values: []string{"+1"}, windows: true},
	{id: "window_per_chunk", pick: sliding, windows: true, apply: windowPerChunk},
	{id: "window_missing", pick: sliding, windows: true, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		return fmt.Sprintf("all positions for %d", window(n)), p.see(n, 0)
	})},
	{id: "layer_pattern", pick: ops(graph.Attention), apply: plain(layerPattern), tokens: 2, windows: true},
	{id: "mask", pick: ops(graph.Attention), apply: mask, values: []string{"none", "self"}, tokens: 3},
	{id: "gqa_map", pick: ops(graph.Attention), tokens: 1, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		heads, kvHeads := n.In[0].Shape[0], n.Attr.(graph.AttentionAttr).KV.Heads
		if kvHeads == 1 || kvHeads == heads {
			return "", same(fmt.Sprintf("%d heads on %d", heads, kvHeads))
		}
		p.attend(n).tiled = true
		return fmt.Sprintf("head h reads h mod %d", kvHeads), nil
	})},
	{id: "k_as_v", pick: ops(graph.Attention), apply: plain(func(p *plan, n *graph.Node) (string, error) {
		if kv := n.Attr.(graph.AttentionAttr).KV; kv.Latent || kv.Values() != kv.Dim {
			return "", errors.New("keys and values differ in size")
		}
		p.attend(n).kAsV = true
		return "keys are read as values", nil
	})},
	{id: "kv_share_source", apply: kvShareSource, values: []string{"flat"}, pick: func(l *layer) []*graph.Node {
		if l.first(graph.StoreKV) != nil {
			return nil
		}
		return l.of(graph.Attention)
	}},
	{id: "kv_cache_position", pick: ops(graph.Attention), apply: kvCachePosition, values: []string{"2", "fresh"}, tokens: 2},
	{id: "softmax_axis", pick: ops(graph.Attention), tokens: 2, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		if n.In[0].Shape[0] == 1 {
			return "", errors.New("one head has no other axis")
		}
		p.attend(n).axis = "heads"
		return "softmax over the heads", nil
	})},
}

var sliding = having(graph.Attention, func(_ *plan, n *graph.Node) bool {
	return window(n) > 0 && !n.Attr.(graph.AttentionAttr).KV.Chunked
})

// see gives an Attention another window.
func (p *plan) see(n *graph.Node, positions int) error {
	if positions == window(n) {
		return same(fmt.Sprintf("the window is %d", positions))
	}
	n.Attr.(graph.AttentionAttr).KV.Window = positions // a copy of its own
	return nil
}

func attentionScale(p *plan, n *graph.Node, value string) (string, error) {
	a := n.Attr.(graph.AttentionAttr)
	equal := func(x float64) bool { return math.Abs(x/a.Scale-1) < 1e-6 }
	usual := 1 / math.Sqrt(float64(a.KV.Dim))
	if equal(usual) { // the hidden size divided by the heads taken for head_dim, or none
		if usual = 1 / math.Sqrt(float64(p.nodes[0].Shape.Size())/float64(n.In[0].Shape[0])); equal(usual) {
			usual = 1
		}
	}
	scale, err := number(value, usual)
	switch {
	case err != nil:
		return "", err
	case equal(scale):
		return "", same(fmt.Sprintf("the scale is %.7g", a.Scale))
	}
	detail := fmt.Sprintf("%.7g for %.7g", scale, a.Scale)
	a.Scale = scale
	n.Attr = a
	return detail, nil
}

func windowSize(p *plan, n *graph.Node, value string) (string, error) {
	if value == "" {
		value = "-1"
	}
	size, err := strconv.Atoi(value)
	was := window(n)
	if err == nil && strings.ContainsAny(value[:1], "+-") {
		size += was
	}
	if err != nil || size < 1 || size > 1<<20 {
		return "", fmt.Errorf("value %q: want a window, or with a sign how much is added", value)
	}
	return fmt.Sprintf("%d for %d", size, was), p.see(n, size)
}

// windowPerChunk makes the window's begin that of a chunk's first position; value is the chunk's size.
func windowPerChunk(p *plan, n *graph.Node, value string) (string, error) {
	usual := 32
	for usual > 2 && usual > window(n)/2 {
		usual /= 2
	}
	size, err := number(value, float64(usual))
	if err != nil || size != math.Trunc(size) || size < 2 || size > 1<<20 {
		return "", fmt.Errorf("value %q: want the positions of a chunk", value)
	}
	if n.Attr.(graph.AttentionAttr).Bidirectional {
		return "", errors.New("the window has two ends")
	}
	p.attend(n).chunk, p.keepAll = int(size), true
	return fmt.Sprintf("the window begins once for %g positions", size), nil
}

// layerPattern makes a sliding layer a full one or the reverse: window and rope.
func layerPattern(p *plan, n *graph.Node) (string, error) {
	attr := n.Attr.(graph.AttentionAttr)
	var other *layer // of the other kind
	for _, l := range p.layers[1:] {
		a := l.attention()
		if a == nil {
			continue
		}
		if kv := a.Attr.(graph.AttentionAttr).KV; kv.Dim != attr.KV.Dim || kv.Heads != attr.KV.Heads {
			return "", errors.New("the kinds of layers differ in shape, so that a wrong pattern does not load")
		}
		if l.index != n.Layer && (p.windows[a] == 0) != (p.windows[n] == 0) {
			other = l
		}
	}
	if other == nil {
		return "", errors.New("all layers are of one kind")
	}
	detail := fmt.Sprintf("window %d for %d", p.windows[other.attention()], window(n))
	if err := p.see(n, p.windows[other.attention()]); err != nil {
		return "", err
	}
	theirs := other.of(graph.RoPE)
	for i, r := range p.layers[n.Layer+1].of(graph.RoPE) {
		var f []float64 // of a kind that turns nothing
		if len(theirs) > 0 {
			f = p.freqs[theirs[min(i, len(theirs)-1)]]
		}
		if a := r.Attr.(graph.RoPEAttr); !slices.Equal(f, a.Freqs) {
			a.Freqs = f
			r.Attr = a
			p.touch(r)
		}
	}
	return detail, nil
}

func mask(p *plan, n *graph.Node, value string) (string, error) {
	if a := n.Attr.(graph.AttentionAttr); a.Bidirectional && value == "" {
		a.Bidirectional = false
		n.Attr = a
		return "later positions are hidden", nil
	}
	details := map[string]string{"future": "the next position is seen, too", "none": "all of the step's positions are seen",
		"self": "a query does not see its own position"}
	if value == "" {
		value = "future"
	}
	if details[value] == "" {
		return "", odd(value, "future", "none", "self")
	}
	p.attend(n).mask = value
	return details[value], nil
}

// kvShareSource reads the nearest earlier layer that stores keys and values, or
// the one that value names; "flat" reads its memory as if it had this layer's shape.
func kvShareSource(p *plan, n *graph.Node, value string) (string, error) {
	number, flat := strings.CutSuffix(value, "flat")
	number = strings.TrimSuffix(number, "/")
	var from *graph.KV
	for _, s := range p.nodes {
		if s.Op != graph.StoreKV || s.Layer >= n.Layer {
			continue
		}
		if number == "" || number == strconv.Itoa(s.Layer) {
			from = s.Attr.(*graph.KV)
		}
	}
	attr := n.Attr.(graph.AttentionAttr)
	switch {
	case from == nil:
		return "", fmt.Errorf("value %q: no earlier layer of that number stores keys and values", value)
	case from.Layer == attr.KV.Layer:
		return "", same(fmt.Sprintf("it reads those of layer %d", from.Layer))
	case flat && from.Heads*from.Dim == attr.KV.Heads*attr.KV.Dim:
		return "", errors.New("the layers' keys have the same size, so that there is no other way to read them")
	}
	a := p.attend(n)
	a.from, a.flat = from, flat
	p.keepAll = true
	return fmt.Sprintf("reads layer %d's for layer %d's", from.Layer, attr.KV.Layer), nil
}

func kvCachePosition(p *plan, n *graph.Node, value string) (string, error) {
	if value == "fresh" {
		p.attend(n).fresh, p.decode = true, true
		return "the cache is new in every step", nil
	}
	by, err := number(value, 1)
	if err != nil || by == 0 || by != math.Trunc(by) || math.Abs(by) > 1<<20 {
		return "", fmt.Errorf("value %q: want how many positions it is off, or fresh", value)
	}
	p.attend(n).shift += int(by)
	p.keepAll = true
	return fmt.Sprintf("position p is read from p-%g", by), nil
}

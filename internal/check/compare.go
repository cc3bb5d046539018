package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/karat-run/karat/internal/tokenizer"
)

// cost is the loss of a type: the error of a tensor relative to its source, in root mean square. usual is the mean over
// all tensors of the type in the files that llama-quantize made of the tiny models (docs/checking.md has the table);
// limit is twice the largest, group three times the largest of any 32 values. The types
// from NVFP4 on were measured on normal weights with outliers, and limits stay below 1, the error of a tensor of zeros.
type cost struct{ usual, limit, group float64 }

var costs = map[tensor.DType]cost{
	tensor.F32: {0, 1e-6, 1e-4}, tensor.BF16: {0.0017, 0.004, 0.03}, tensor.F16: {0.0002, 0.001, 0.01},
	tensor.Q8_0: {0.0058, 0.019, 0.045}, tensor.Q6_K: {0.018, 0.058, 0.13},
	tensor.Q5_0: {0.043, 0.09, 0.28}, tensor.Q5_1: {0.038, 0.08, 0.2}, tensor.Q5_K: {0.036, 0.075, 0.18},
	tensor.Q4_0: {0.086, 0.18, 0.56}, tensor.Q4_1: {0.078, 0.17, 0.4}, tensor.Q4_K: {0.077, 0.21, 0.45},
	tensor.IQ4_NL: {0.076, 0.16, 0.45}, tensor.IQ4_XS: {0.077, 0.16, 0.45}, tensor.MXFP4: {0.115, 0.24, 0.57},
	tensor.Q3_K: {0.15, 0.32, 0.8}, tensor.Q2_K: {0.3, 0.61, 0.95},
	tensor.NVFP4: {0.096, 0.2, 0.41}, tensor.IQ3_S: {0.137, 0.36, 0.91}, tensor.IQ3_XXS: {0.182, 0.44, 0.95},
	tensor.IQ2_S: {0.25, 0.7, 1.1}, tensor.IQ2_XS: {0.3, 0.77, 1.1}, tensor.IQ2_XXS: {0.345, 0.95, 1.2},
	tensor.IQ1_M: {0.45, 0.95, 1.1}, tensor.IQ1_S: {0.48, 0.95, 1.2}, tensor.Q1_0: {0.7, 0.95, 1.3},
	tensor.Q2_0: {0.72, 0.95, 1.3}, tensor.TQ1_0: {0.81, 0.97, 1.3}, tensor.TQ2_0: {0.81, 0.97, 1.3},
}

// packedCosts are the losses of packed weights, by the bits of a number in files: of 8 bits E4M3's, and of fewer
// bits the losses of groups up to whole rows, which lose more than a type's blocks.
var packedCosts = [9]cost{2: {0.35, 0.9, 1.3}, 3: {0.17, 0.55, 0.95}, 4: {0.09, 0.3, 0.8}, 5: {0.043, 0.15, 0.4},
	6: {0.021, 0.08, 0.2}, 7: {0.01, 0.06, 0.15}, 8: {0.026, 0.06, 0.15}}

// packedBits returns the bits of a number of a packed weight in files, rounded down, or the fewest of a mixture's
// parts; 0 for other tensors.
func packedBits(t *tensor.Tensor) (least int) {
	if parts, ok := t.Source.(tensor.Joined); ok {
		for i := range parts {
			if n := packedBits(&parts[i]); n > 0 && (n < least || least == 0) {
				least = n
			}
		}
		return least
	}
	if _, ok := costs[t.DType]; ok && t.Stored() == t.Size() || t.Source == nil {
		return 0
	}
	return max(2, min(8*t.Stored()/t.Shape.Size(), 8))
}

// pair is a weight in the model and in its source: as in the files, or as in the architecture, without the permutations
// and offsets of containers.
type pair struct {
	gguf, hf string
	model    tensor.Tensor
	source   tensor.Tensor
	plain    bool // both are alike in the files and in the architecture, or are compared as in the files
}

func (p *pair) name() string { return p.model.Name }

// restorePair returns the pair as the architecture has it, perhaps a copy.
func restorePair(c *checker, p *pair) *pair {
	if p.plain {
		return p
	}
	r := *p
	r.model, _ = c.model.Tensor(p.gguf, p.hf)
	r.source, _ = c.source.Tensor(p.gguf, p.hf)
	r.source = filled(c, p.gguf, r.source)
	return &r
}

// compareSource sets the model against the source: weights, equations, text.
func compareSource(c *checker) error {
	source, err := checkpoint.Open(c.Against)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	defer source.Close()
	c.source = source
	g, _, err := arch.Stored(source)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if c.model == nil || source.Arch != c.model.Arch {
		if c.model != nil {
			c.add("source-settings", []string{"general.architecture"},
				"the model is a %s, its source a %s: nothing was compared", c.model.Arch, source.Arch)
		}
		c.report.Unproven = append(c.report.Unproven,
			"the model was not compared with its source, since it does not load as the same architecture")
		return nil
	}
	if err := compareWeights(c, g); err != nil {
		return err
	}
	if own, _, err := arch.Stored(c.model); err == nil && !c.unfit {
		compareEquations(c, own, g)
	}
	return c.guard(func() { compareText(c, source) })
}

// pairsOf lists the weights of the source's graph with the model's.
func pairsOf(c *checker, g *graph.Graph) (pairs []pair) {
	model := checkpoint.Stored{Checkpoint: c.model}
	seen := map[string]bool{}
	for _, n := range g.Nodes {
		for _, w := range n.W {
			if !w.There() || seen[w.GGUF] {
				continue
			}
			seen[w.GGUF] = true
			p := pair{gguf: w.GGUF, hf: w.HF, source: filled(c, w.GGUF, wholeSource(c, w))}
			t, ok := model.Tensor(w.GGUF, w.HF)
			switch {
			case ok:
				p.model = t
				pairs = append(pairs, p)
			case w.GGUF == "output":
				c.add("tied-head", []string{w.Name},
					"the source has a head of its own, %s, and the model takes its embedding instead", w.Name)
			case !c.hasFinding("tensor-missing", "kv-sharing"):
				c.add("source-missing", []string{w.Name}, "the source's %s is not in the model", w.Name)
			}
		}
	}
	weights, _, _ := arch.Weights(c.source)
	for _, w := range weights { // behind the graph
		if t, ok := model.Tensor(w.GGUF, w.HF); ok && !seen[w.GGUF] {
			pairs = append(pairs, pair{gguf: w.GGUF, hf: w.HF, source: w.Tensor, model: t})
		}
	}
	if _, ok := model.Tensor("output", "lm_head"); ok && !seen["output"] {
		c.add("tied-head", []string{"output"},
			"the model has a head of its own, and the source takes its embedding instead")
	}
	return pairs
}

// filled returns a tensor of the source with the rows that GGUF has behind.
func filled(c *checker, name string, t tensor.Tensor) tensor.Tensor {
	if c.model.Format == checkpoint.GGUF {
		t = c.source.Habit(name).Fill(t)
	}
	return t
}

// wholeSource returns the source's tensor of a weight of which a node may read only a row.
func wholeSource(c *checker, w *graph.Weight) tensor.Tensor {
	stored := checkpoint.Stored{Checkpoint: c.source}
	if t, ok := stored.Tensor(w.GGUF, w.HF); ok {
		return t
	}
	return w.Tensor
}

// compareWeights compares all tensors, and finds the kinds of differences.
func compareWeights(c *checker, g *graph.Graph) error {
	if err := comparePairs(c, pairsOf(c, g)); err != nil {
		return err
	}
	return compareTowers(c)
}

// comparePairs compares tensors, and finds the kinds of differences.
func comparePairs(c *checker, pairs []pair) error {
	c.report.Compared += len(pairs)
	results := make([]difference, len(pairs))
	err := c.forEach(len(pairs), func(i int) error {
		p := &pairs[i]
		if !slices.Equal(p.model.Shape, p.source.Shape) {
			return nil
		}
		return mmap.Guard(func() (err error) {
			results[i], err = differ(c, restorePair(c, p))
			return err
		})
	})
	if err != nil {
		return err
	}
	for i := range pairs {
		if err := c.guard(func() { nameDifference(c, &pairs[i], &results[i], pairs) }); err != nil {
			return err
		}
	}
	return nil
}

// difference measures the distance of a tensor from its source.
type difference struct {
	relative float64 // ‖a−b‖/‖b‖
	factor   float64 // ⟨a,b⟩/⟨b,b⟩
	cosine   float64
	groups   int
	far      spots // groups of 32 values farther away than the type allows
	worst    float64
	rows     []int // rows with such groups
}

// groupSize is the number of values compared together.
const groupSize = 32

// differ compares a tensor with its source, row by row.
func differ(c *checker, p *pair) (difference, error) {
	var d difference
	cols := p.source.Shape.Last()
	a, b := make([]float32, cols), make([]float32, cols)
	done := 0
	var aa, bb, ab, ee float64
	limit := costOf(c, p).group
	for i := range p.source.Rows() {
		if i%64 == 0 && c.ctx.Err() != nil {
			return d, c.ctx.Err()
		}
		if err := rows(p, i, a, b); err != nil {
			return d, err
		}
		size := 0.
		for j := range b {
			x, y := float64(a[j]), float64(b[j])
			aa += x * x
			size += y * y
			ab += x * y
			ee += (x - y) * (x - y)
		}
		bb += size
		before := d.far.n
		d.row(a, b, math.Sqrt(size/float64(cols)), limit)
		if d.far.n > before {
			d.rows = append(d.rows, i)
		}
		if end := (i + 1) * p.model.DType.RowBytes(cols); end-done > keep || i == p.source.Rows()-1 {
			size := p.source.DType.RowBytes(cols)
			if p.source.Data != nil {
				mmap.Drop(p.source.Data[:(i+1)*size])
			}
			c.advance(p.model.Data[min(done, len(p.model.Data)):min(end, len(p.model.Data))], end-done)
			done = end
		}
	}
	if d.factor, d.cosine = 1, 1; ee > 0 { // else all values may be zeros
		d.relative, d.factor, d.cosine = math.Sqrt(ee/bb), ab/bb, ab/math.Sqrt(aa*bb)
	}
	return d, nil
}

// rows decodes row i of both.
func rows(p *pair, i int, a, b []float32) error {
	if err := quant.Dequantize(p.model.DType, a, p.model.Row(i)); err != nil {
		return fmt.Errorf("tensor %s: %w", p.model.Name, err)
	}
	if err := quant.Dequantize(p.source.DType, b, p.source.Row(i)); err != nil {
		return fmt.Errorf("tensor %s of the source: %w", p.source.Name, err)
	}
	return nil
}

// row compares groups of values with the source's, relative to their own size or to rms, the row's size, whichever is
// larger.
func (d *difference) row(a, b []float32, rms, limit float64) {
	for at := 0; at < len(a); at += groupSize {
		n := min(groupSize, len(a)-at)
		var ee, bb float64
		for j := at; j < at+n; j++ {
			e, y := float64(a[j])-float64(b[j]), float64(b[j])
			ee += e * e
			bb += y * y
		}
		e := math.Sqrt(ee/float64(n)) / max(math.Sqrt(bb/float64(n)), rms, 1e-30)
		d.worst = max(d.worst, e)
		if !(e <= limit) {
			d.far.add(d.groups)
		}
		d.groups++
	}
}

// costOf returns the loss allowed for the model's packing or type. A float type shared with the source loses nothing.
func costOf(c *checker, p *pair) cost {
	switch restored := c.normOffset() != 0 && len(p.model.Shape) == 1; {
	case packedBits(&p.model) > 0 && (p.model.DType != p.source.DType || p.source.Stored() == p.source.Size()):
		return packedCosts[packedBits(&p.model)]
	case p.model.DType == tensor.F32 && restored, p.model.DType == p.source.DType && restored: // 1 added and taken off
		return costs[tensor.F32]
	case p.model.DType == tensor.F32, p.model.DType == p.source.DType:
		return cost{}
	}
	return costs[p.model.DType]
}

// fact is a number of a node that follows from settings.
type fact struct {
	what string // of the node
	key  string // canonical setting
	v    []float64
}

// facts returns the numbers of a node.
func facts(n *graph.Node) []fact {
	switch a := n.Attr.(type) {
	case graph.EmbedAttr:
		return []fact{{"the factor of the embedding", "hidden_size", []float64{float64(a.Scale)}}}
	case graph.NormAttr:
		return []fact{{"the norms' epsilon", "rms_norm_eps", []float64{float64(a.Eps)}}}
	case graph.RoPEAttr:
		return []fact{{"the rotary frequencies", "rope_parameters.full_attention.rope_theta", a.Freqs},
			{"the number of a head's features that turn", "partial_rotary_factor", []float64{float64(a.Dim)}},
			{"the magnitude of rotary turns", "rope_parameters.attention_factor", []float64{a.Magnitude}}}
	case graph.ScaleAttr:
		if n.Op == graph.Softcap {
			return []fact{{"the cap of the logits", "final_logit_softcapping", []float64{a.By}}}
		}
		return []fact{{"a factor", "hidden_size", []float64{a.By}}}
	case graph.ActAttr, graph.ExpertsAttr:
		act, _ := n.Activates()
		return []fact{{"the activation", "hidden_activation", []float64{float64(act.Act)}},
			{"the limits of gate and up", "swiglu_limit", []float64{act.Limit, act.Alpha, act.Plus}}}
	case graph.RouteAttr:
		normalize := 0.0
		if a.Normalize || a.Weigh == graph.SoftmaxChosen {
			normalize = 1
		}
		return []fact{
			{"the number of experts that are used", "top_k_experts", []float64{float64(n.Shape[0])}},
			{"the function of the router's scores", "scoring_func", []float64{float64(a.Weigh)}},
			{"whether experts' weights are divided by their sum", "norm_topk_prob", []float64{normalize}},
			{"the factor of experts' weights", "routed_scaling_factor", []float64{a.Factor}},
			{"the groups of experts", "n_group", []float64{float64(a.Groups), float64(a.Kept)}},
		}
	case graph.AttentionAttr:
		return []fact{
			{"the attention scale", "query_pre_attn_scalar", []float64{a.Scale}},
			{"the cap of attention's scores", "attn_logit_softcapping", []float64{a.Cap}},
			{"the window", "sliding_window", []float64{float64(a.KV.Window)}},
			{"the layer whose keys and values are read", "num_kv_shared_layers", []float64{float64(a.KV.Layer)}},
			{"the number of key and value heads", "num_key_value_heads", []float64{float64(a.KV.Heads)}},
			{"the size of a head", "head_dim", []float64{float64(a.KV.Dim)}},
		}
	}
	return nil
}

// equalNumbers compares numbers to the precision of GGUF's float32.
func equalNumbers(a, b []float64) bool {
	return slices.EqualFunc(a, b,
		func(x, y float64) bool { return math.Abs(x-y) <= 2e-6*max(math.Abs(x), math.Abs(y)) })
}

// compareEquations compares the two recorded passes, node by node.
func compareEquations(c *checker, own, source *graph.Graph) {
	if !slices.EqualFunc(own.Nodes, source.Nodes, func(a, b *graph.Node) bool {
		return a.Op == b.Op && a.Layer == b.Layer && a.Name == b.Name
	}) {
		if !c.hasFinding("source-missing") { // source-missing explains the fault
			c.add("source-settings", []string{"layers"},
				"the model's pass has %d operations, the source's %d, or they are others", len(own.Nodes),
				len(source.Nodes))
		}
		return
	}
	type change struct {
		fact
		layers []int
		was    []float64
	}
	var changes []*change
	for i, n := range own.Nodes {
		theirs := facts(source.Nodes[i])
		for j, f := range facts(n) {
			if j >= len(theirs) || equalNumbers(f.v, theirs[j].v) {
				continue
			}
			at := slices.IndexFunc(changes, func(x *change) bool {
				return x.what == f.what && equalNumbers(x.v, f.v) && equalNumbers(x.was, theirs[j].v)
			})
			if at < 0 {
				at = len(changes)
				changes = append(changes, &change{fact: f, was: theirs[j].v})
			}
			if l := n.Layer; !slices.Contains(changes[at].layers, l) {
				changes[at].layers = append(changes[at].layers, l)
			}
		}
	}
	if len(changes) == 0 {
		confirmText(c)
	}
	if a, b := c.model.ContextLength(), c.source.ContextLength(); a != b && !c.hasFinding("context") {
		c.addKey("source-settings", "max_position_embeddings", "the context length is %d, in the source %d", a, b)
	}
	for _, x := range changes {
		in := ""
		if x.layers[0] >= 0 {
			in = " in layers " + numbers(x.layers)
			if len(x.layers) == 1 {
				in = " in layer " + numbers(x.layers)
			}
		}
		c.addKey("source-settings", x.key, "%s: %s%s, in the source %s", x.what, show(x.v), in, show(x.was))
	}
}

// confirmText makes notes of assumptions confirmed by the source.
func confirmText(c *checker) {
	for i := range c.report.Findings {
		if f := &c.report.Findings[i]; slices.ContainsFunc(c.family().Expect.Assumed, func(a family.Assumed) bool {
			return a.ID == f.ID
		}) {
			f.Severity = Note
			f.What += "; the source has the same"
		}
	}
}

// show returns a single number, or the first of many.
func show(v []float64) string {
	switch n := len(v); {
	case n == 0:
		return "none"
	case n > 1:
		return fmt.Sprintf("%.4g … %.4g", v[0], v[n-1])
	}
	return fmt.Sprintf("%.6g", v[0])
}

// probes lists texts whose ids must be the source's: tokenizers differ in spaces, digits, case, accents, scripts, bytes
// and special tokens.
var probes = []string{
	"Hello world", " leading and  double   spaces ", "The year 2024, 1234567890 and 3.14159!", "don't, we'll, I'M",
	"func main() {\n\tfmt.Println(\"x != y\")\n}\n\n\n", "naïve café ÅNGSTRÖM ﬁ e\u0301", "Привет, мир! 你好，世界。こんにちは",
	"مرحبا नमस्ते 👩‍👩‍👧‍👦🇩🇪",
	"\u0000\u0001\u007f\u00a0\u200b\ufeff", "<s></s><bos><eos><|im_start|><start_of_turn>",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\r\n \t\r\n",
}

// compareText compares the results of tokenizers and templates.
func compareText(c *checker, source *checkpoint.Checkpoint) {
	a, err := c.model.Tokenizer()
	if err != nil {
		return // was told of
	}
	b, err := source.Tokenizer()
	if err != nil {
		c.report.Unproven = append(c.report.Unproven, "the source's tokenizer cannot be made: "+stripPrefix(err))
		return
	}
	where := []string{c.textKey("tokenizer.ggml.tokens")}
	for _, special := range []bool{false, true} {
		o := tokenizer.Options{AddSpecial: true, ParseSpecial: special}
		for _, text := range probes {
			if x, y := a.Encode(text, o), b.Encode(text, o); !slices.Equal(x, y) && !c.hasFinding("source-tokens") {
				c.add("source-tokens", where, "%q becomes %v, in the source %v", text, x, y)
			}
		}
	}
	if isEncoder(c) {
		return
	}
	if x, y := c.model.EndOfTurn(a), source.EndOfTurn(b); !slices.ContainsFunc(y, func(id int) bool {
		return slices.Contains(x, id)
	}) && !c.hasFinding("eos-id") {
		c.addText("eos-id", "tokenizer.ggml.eos_token_id", "texts end with %v, in the source with %v", x, y)
	}
	compareTemplates(c, a, source)
}

// compareTemplates compares the prompts, and the templates' sources only if neither template runs.
func compareTemplates(c *checker, t *tokenizer.Tokenizer, source *checkpoint.Checkpoint) {
	mine, theirs := c.model.Template(), source.Template()
	if mine == theirs || c.hasFinding("template-missing", "template-broken") || theirs == "" {
		return
	}
	text := func(template string) string {
		p, err := chat.Parse(template, chat.Limits{})
		if err != nil {
			return err.Error()
		}
		s, err := renderChat(c, p, t, "First.", "Second.", "Third.")
		return cmp.Or(s, fmt.Sprint(err))
	}
	severity, what := Note, "what both write of three turns is the same"
	if text(mine) != text(theirs) {
		severity, what = Warning, "a conversation of three turns comes out otherwise"
	}
	c.addAs(severity, "source-template", []string{"tokenizer.chat_template"},
		"the chat template is not the source's: %s",
		what)
}

package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tokenizer"
)

// fact is a number of a node that settings decide.
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

// same compares numbers to the precision of GGUF's float32.
func same(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= 2e-6*max(math.Abs(x), math.Abs(y)) })
}

// compareEquations compares the two recorded passes, node by node.
func compareEquations(c *checker, own, source *graph.Graph) {
	ops := func(g *graph.Graph) (names []string) {
		for _, n := range g.Nodes {
			names = append(names, fmt.Sprint(n.Op, n.Layer, n.Name))
		}
		return names
	}
	if !slices.Equal(ops(own), ops(source)) {
		if c.found("source-missing") { // which explains it
			return
		}
		c.add("source-settings", []string{"layers"},
			"the model's pass has %d operations, the source's %d, or they are others", len(own.Nodes), len(source.Nodes))
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
			if j >= len(theirs) || same(f.v, theirs[j].v) {
				continue
			}
			at := slices.IndexFunc(changes, func(x *change) bool {
				return x.what == f.what && same(x.v, f.v) && same(x.was, theirs[j].v)
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
	if a, b := c.model.ContextLength(), c.source.ContextLength(); a != b && !c.found("context") {
		c.add("source-settings", []string{c.model.Key("max_position_embeddings")},
			"the context length is %d, in the source %d", a, b)
	}
	for _, x := range changes {
		in := ""
		if x.layers[0] >= 0 {
			in = " in layers " + numbers(x.layers)
			if len(x.layers) == 1 {
				in = " in layer " + numbers(x.layers)
			}
		}
		c.add("source-settings", []string{c.model.Key(x.key)}, "%s: %s%s, in the source %s", x.what, show(x.v), in,
			show(x.was))
	}
}

// confirmText makes notes of what had to be assumed and is so in the source.
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

// show returns one number, or what many begin with.
func show(v []float64) string {
	switch n := len(v); {
	case n == 0:
		return "none"
	case n > 1:
		return fmt.Sprintf("%.4g … %.4g", v[0], v[n-1])
	}
	return fmt.Sprintf("%.6g", v[0])
}

// probes are texts whose ids must be the source's: what tokenizers differ in is spaces, digits, case, accents, scripts,
// bytes and special tokens.
var probes = []string{
	"Hello world", " leading and  double   spaces ", "The year 2024, 1234567890 and 3.14159!", "don't, we'll, I'M",
	"func main() {\n\tfmt.Println(\"x != y\")\n}\n\n\n", "naïve café ÅNGSTRÖM ﬁ e\u0301", "Привет, мир! 你好，世界。こんにちは",
	"مرحبا नमस्ते 👩‍👩‍👧‍👦🇩🇪",
	"\u0000\u0001\u007f\u00a0\u200b\ufeff", "<s></s><bos><eos><|im_start|><start_of_turn>",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\r\n \t\r\n",
}

// compareText compares tokenizers and templates by what they do.
func compareText(c *checker, source *checkpoint.Checkpoint) {
	a, err := c.model.Tokenizer()
	if err != nil {
		return // was told of
	}
	b, err := source.Tokenizer()
	if err != nil {
		c.report.Unproven = append(c.report.Unproven, "the source's tokenizer cannot be made: "+plain(err))
		return
	}
	where := []string{c.textKey("tokenizer.ggml.tokens")}
	for _, special := range []bool{false, true} {
		o := tokenizer.Options{AddSpecial: true, ParseSpecial: special}
		for _, text := range probes {
			if x, y := a.Encode(text, o), b.Encode(text, o); !slices.Equal(x, y) && !c.found("source-tokens") {
				c.add("source-tokens", where, "%q becomes %v, in the source %v", text, x, y)
			}
		}
	}
	if encodes(c) {
		return
	}
	if x, y := c.model.EndOfTurn(a), source.EndOfTurn(b); !slices.ContainsFunc(y, func(id int) bool {
		return slices.Contains(x, id)
	}) && !c.found("eos-id") {
		c.add("eos-id", []string{c.textKey("tokenizer.ggml.eos_token_id")}, "texts end with %v, in the source with %v", x, y)
	}
	compareTemplates(c, a, source)
}

// compareTemplates compares what both write, and the sources only where neither can be run.
func compareTemplates(c *checker, t *tokenizer.Tokenizer, source *checkpoint.Checkpoint) {
	mine, theirs := c.model.Template(), source.Template()
	if mine == theirs || c.found("template-missing", "template-broken") || theirs == "" {
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
	id := "what both write of three turns is the same"
	severity := Note
	if text(mine) != text(theirs) {
		severity, id = Warning, "a conversation of three turns comes out otherwise"
	}
	c.addAs(severity, "source-template", []string{"tokenizer.chat_template"}, "the chat template is not the source's: %s",
		id)
}

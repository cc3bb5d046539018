package check

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/rope"
)

// judgeStructure judges the set of tensors and settings, as the loader does, after finding out whether the architecture
// is the right question.
func judgeStructure(c *checker) {
	judgeStale(c)
	if own := evidence(c); own != "" && own != c.arch {
		c.unfit = true
		key := "general.architecture"
		if c.files.dir != "" {
			key = "model_type"
		}
		c.add("arch-key", []string{key}, "the file says %s is %q, but %s", key, c.files.arch, sayEvidence(c, own))
		c.arch = own
		return
	}
	err := c.refused
	if c.model != nil {
		_, _, err = arch.Stored(c.model)
	}
	c.unfit = err != nil
	judgeRefusal(c, err)
}

// evidence returns the architecture that a file must have, whatever its key says; "" if nothing contradicts the key.
// Missing tensors are no evidence: only tensors without a use in the key's architecture are.
func evidence(c *checker) string {
	if own := foreignKeys(c); own != "" {
		return own
	}
	has := map[family.Part]bool{}
	for _, t := range c.files.tensors {
		has[partOf(t.Name)] = true
	}
	holds := func(p family.Part) bool { return has[p] }
	own := ""
	for _, f := range registry.Families {
		if e := f.Expect; len(e.Parts) > 0 && !slices.ContainsFunc(e.Lacks, holds) &&
			!slices.ContainsFunc(e.Parts, func(p family.Part) bool { return !has[p] }) {
			own = f.Name
		}
	}
	if own == "" || own == c.arch {
		return ""
	}
	if !slices.Contains(registry.Names(), c.arch) { // an unknown key over tensors of a known architecture
		return own
	}
	for _, name := range unplacedTensors(c) {
		if partOf(name) != (family.Part{}) {
			return own
		}
	}
	return ""
}

// partOf returns the part to which a tensor belongs, if the part tells families apart; else the zero Part.
func partOf(name string) family.Part {
	name = strings.TrimSuffix(name, ".weight")
	for _, f := range registry.Families {
		for _, p := range slices.Concat(f.Expect.Parts, f.Expect.Lacks) {
			if strings.HasSuffix(name, "."+p.GGUF) || strings.HasSuffix(name, "."+p.HF) {
				return p
			}
		}
	}
	return family.Part{}
}

// unplacedTensors returns the tensors without a place in the key's architecture, by the loader's judgement: a family
// may have norms of queries and keys, or biases, whichever others also have them.
func unplacedTensors(c *checker) (names []string) {
	if c.model == nil {
		return nil
	}
	_, _, err := arch.Stored(c.model)
	for _, e := range problems(err) {
		t, is := errors.AsType[*graph.TensorError](e)
		if is && (t.Fault == graph.Unclaimed || t.Fault == graph.Refused) {
			names = append(names, t.Tensor)
		}
	}
	return names
}

// foreignKeys returns the architecture whose prefix the settings have, or whose class config.json names, if it differs
// from the key's.
func foreignKeys(c *checker) string {
	if c.files.gguf != nil {
		count := map[string]int{}
		for _, k := range c.files.gguf.Metadata.Keys() {
			prefix, _, _ := strings.Cut(k, ".")
			count[prefix]++
		}
		for _, name := range registry.Names() {
			if count[c.arch] == 0 && count[name] > 0 {
				return name
			}
		}
		return ""
	}
	classes, _ := c.files.config["architectures"].([]any)
	for _, x := range classes {
		class, _ := x.(string)
		stem, _, _ := strings.Cut(strings.ToLower(class), "for")
		if f, _ := registry.OfType(stem); f != nil && f.Name != c.arch {
			return f.Name
		}
	}
	return ""
}

// sayEvidence describes how a file shows another architecture.
func sayEvidence(c *checker, own string) string {
	if foreignKeys(c) == own {
		if c.files.dir != "" {
			return "its class in architectures is " + own + "'s"
		}
		return "its settings have the prefix " + own
	}
	return "its tensors are " + own + "'s"
}

// problems takes joined errors apart.
func problems(err error) (all []error) {
	for _, e := range []error{err, errors.Unwrap(err)} {
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				all = append(all, problems(e)...)
			}
			return all
		}
	}
	if err != nil {
		all = []error{err}
	}
	return all
}

// group is a fault shared by many tensors.
type group struct {
	id, what string
	tensors  []string
}

// judgeRefusal turns a loader's error into findings, a finding for each kind of tensor. All are errors, whatever is
// usual for their kind.
func judgeRefusal(c *checker, err error) {
	var order []*group
	groups := map[string]*group{}
	for _, e := range problems(err) {
		var t *graph.TensorError
		var k *settings.KeyError
		switch {
		case errors.As(e, &t):
			id, name := faultID(t), strings.TrimSuffix(t.Tensor, ".weight")
			kind, _ := kindOf(name)
			g := groups[id+kind]
			if g == nil {
				g = &group{id: id, what: t.What}
				groups[id+kind] = g
				order = append(order, g)
			}
			if !slices.Contains(g.tensors, name) {
				g.tensors = append(g.tensors, name)
			}
		case errors.As(e, &k):
			if id := keyID(k.Key); id != "rope-freqs" || !c.hasFinding("heads") { // a head's pairs have values
				c.addAs(Error, id, []string{k.Key}, "%s", stripPrefix(e))
			}
		case errors.Is(e, graph.ErrNoStore):
			if !c.hasFinding("kv-sharing") {
				c.addAs(Error, "kv-sharing", []string{c.model.Key("num_kv_shared_layers")}, "%s: with %v shared layers",
					stripPrefix(e),
					c.setting("num_kv_shared_layers"))
			}
		case errors.As(e, new(rope.Error)):
			c.addAs(Error, "rope-settings", []string{c.model.Key("rope_parameters.full_attention.rope_type")}, "%s",
				stripPrefix(e))
		default:
			order = append(order, &group{id: "not-loaded", what: stripPrefix(e)})
		}
	}
	order = explainFaults(c, order)
	for _, g := range order {
		switch n := len(g.tensors); {
		case n == 0:
			c.add(g.id, nil, "%s", g.what)
		case n == 1:
			c.add(g.id, g.tensors, "%s: %s", g.tensors[0], g.what)
		default:
			kind, _ := kindOf(g.tensors[0])
			c.add(g.id, g.tensors, "%s, in %d layers: %s", kind, n, g.what)
		}
	}
}

// faultID returns the finding for a tensor that disagrees.
func faultID(t *graph.TensorError) string {
	if t.Fault == graph.Refused && strings.Contains(t.What, "num_kv_shared_layers") {
		return "kv-sharing"
	}
	if t.Fault != graph.Misshapen && head(strings.TrimSuffix(t.Tensor, ".weight")+".weight") {
		return "tied-head"
	}
	return [...]string{graph.Missing: "tensor-missing", graph.Unclaimed: "tensor-unused",
		graph.Refused: "tensor-contradicts", graph.Misshapen: "tensor-shape"}[t.Fault]
}

// keyIDs are the findings for bad settings, by canonical key.
var keyIDs = map[string]string{
	"num_attention_heads": "heads", "num_key_value_heads": "heads", "head_dim": "heads",
	"attention.value_length": "heads", "attention.value_length_swa": "heads",
	"rope.dimension_count": "heads", "rope.dimension_count_swa": "heads",
	"layer_types": "layer-pattern", "sliding_window_pattern": "layer-pattern", "num_kv_shared_layers": "kv-sharing",
	"rms_norm_eps": "norm-eps", "final_logit_softcapping": "softcap", "query_pre_attn_scalar": "attention-scale",
	"max_position_embeddings": "context", "eos_token_id": "eos-id", "vocab_size": "vocab-size",
	"rope_freqs": "rope-freqs", "rope_scaling": "rope-settings", "rope_parameters": "rope-settings",
}

func keyID(key string) string {
	if id, ok := keyIDs[key]; ok {
		return id
	}
	if strings.HasPrefix(key, "rope_") || strings.HasPrefix(key, "rope.") {
		return "rope-settings"
	}
	return "config-invalid"
}

// stripPrefix returns an error's text without the package and the path.
func stripPrefix(err error) string {
	text := err.Error()
	for _, prefix := range []string{"checkpoint: ", "arch: "} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			text = rest
			if _, what, ok := strings.Cut(rest, ": "); ok {
				text = what
			}
		}
	}
	return text
}

// explainFaults replaces faults of tensors by a setting that explains all of them: layers lacking just keys and values
// point to another number of shared layers; layers whose attention alone has another shape are of the other kind.
func explainFaults(c *checker, groups []*group) []*group {
	missing, shape := map[int]map[string]bool{}, map[int]map[string]bool{}
	for _, g := range groups {
		for _, name := range g.tensors {
			to := map[string]map[int]map[string]bool{"tensor-missing": missing, "tensor-shape": shape}[g.id]
			kind, layer := kindOf(name)
			if to == nil || layer < 0 {
				return groups
			}
			if to[layer] == nil {
				to[layer] = map[string]bool{}
			}
			to[layer][kind[strings.LastIndex(kind, "*.")+2:]] = true
		}
	}
	stored := [][]string{{"attn_k", "attn_v", "attn_k_norm"},
		{"self_attn.k_proj", "self_attn.v_proj", "self_attn.k_norm"}}
	if len(missing) > 0 && len(shape) == 0 && c.family().Uses("num_kv_shared_layers") && allAre(missing, stored) {
		layers := slices.Sorted(maps.Keys(missing))
		c.add("kv-sharing", tensorsOf(groups),
			"layers %s lack keys and values, but the settings say that only the last %v layers share those of others",
			numbers(layers), c.setting("num_kv_shared_layers"))
		return nil
	}
	heads := [][]string{
		{"attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm"},
		{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
			"self_attn.k_norm"},
	}
	if len(shape) == 0 || len(missing) > len(shape) || !allAre(shape, heads) || !allAre(missing, stored) {
		return groups
	}
	layers := slices.Sorted(maps.Keys(shape))
	if n, _ := c.setting("num_hidden_layers").(float64); len(layers) == int(n) && len(missing) == 0 {
		c.add("heads", tensorsOf(groups),
			"the attention's tensors have other shapes in all layers than %v heads of %v make: %s: %s",
			c.setting("num_attention_heads"), c.setting("head_dim"), groups[0].tensors[0], groups[0].what)
		return nil
	}
	if c.family().KeyOf(family.SlidingDim).GGUF == "" {
		return groups
	}
	c.add("layer-pattern", tensorsOf(groups), "the attention of layers %s has the shapes of the other kind of layer",
		numbers(layers))
	return nil
}

// allAre reports whether the names in each layer are among the names of a single format.
func allAre(layers map[int]map[string]bool, formats [][]string) bool {
	for _, names := range layers {
		for name := range names {
			if !slices.ContainsFunc(formats, func(f []string) bool { return slices.Contains(f, name) }) {
				return false
			}
		}
	}
	return true
}

func tensorsOf(groups []*group) (names []string) {
	for _, g := range groups {
		names = append(names, g.tensors...)
	}
	return names
}

// numbers lists layers for people.
func numbers(layers []int) string {
	names := make([]string, len(layers))
	for i, n := range layers {
		names[i] = fmt.Sprint(n)
	}
	return list(names)
}

// setting returns a canonical setting, "unknown" where there is none.
func (c *checker) setting(key string) any {
	if c.model == nil {
		return "unknown"
	}
	if v := c.model.Setting(key); v != nil {
		return v
	}
	return "unknown"
}

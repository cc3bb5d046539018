package check

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// judgeSettings judges a configuration accepted by the loader.
func judgeSettings(c *checker) {
	judgeUnread(c)
	judgeAssumed(c)
	judgePattern(c)
	judgeSharing(c)
	judgeRotation(c)
	judgeUsual(c)
	if n := c.model.ContextLength(); n == 0 && !slices.Contains(c.family().Idle, "max_position_embeddings") {
		c.addKey("context", "max_position_embeddings", "the context length is missing")
	} else if n > 0 && n < 256 || n > 1<<24 {
		c.addKey("context", "max_position_embeddings", "the context length is %d", n)
	}
	if head, embed := c.tensor("output.weight"), c.tensor("token_embd.weight"); head >= 0 && embed >= 0 &&
		c.family().Expect.Tied {
		c.add("tied-head", []string{"output.weight"},
			"the file has a head of its own, but every %s model is tied to its embedding", c.arch)
	}
}

// judgeUnread lists the settings that the loader did not consume. The list of harmless settings is an allow-list, so
// unknown settings are reported.
func judgeUnread(c *checker) {
	_, notes, _ := arch.Stored(c.model)
	for _, n := range notes {
		_, rest, _ := strings.Cut(n, "key ")
		if rest == "" {
			_, rest, _ = strings.Cut(n, "setting ")
		}
		key, _, _ := strings.Cut(rest, " ")
		c.add("config-unread", []string{key}, "%s", n)
	}
	for _, e := range arch.Unread(c.model) {
		about := func(note string) bool { return strings.Contains(note, " "+e.Key+" = ") }
		if c.model.Idle(e.Key) || strings.HasPrefix(e.Key, "_") || strings.HasSuffix(e.Key, ".tensor_data_layout") ||
			strings.HasSuffix(e.Key, ".vocab_size") || slices.ContainsFunc(notes, about) {
			continue
		}
		c.addAs(Note, "config-unread", []string{e.Key},
			"the setting %s = %s is read by nothing, and not known to be harmless", e.Key, e.Value)
	}
}

// published returns the published model of the same shape, nil if none is known.
func published(c *checker) *family.Published {
	for _, p := range c.family().Expect.Published {
		if p.Layers == c.number("num_hidden_layers") && p.Hidden == c.number("hidden_size") {
			return &p
		}
	}
	return nil
}

// judgeAssumed reports silent defaults.
func judgeAssumed(c *checker) {
	var keys, what []string
	for _, e := range c.model.Assumed {
		switch {
		case e.Key == "global_head_dim" && c.files.text()["per_layer_config"] != nil: // per_layer_config says more
		case (e.Key == "sliding_window" || e.Key == "max_window_layers") && c.model.Setting("sliding_window") == nil:
			// no layer slides
		case strings.HasSuffix(e.Key, "rope.freq_base") && !c.family().Expect.Theta:
			c.add("rope-settings", []string{e.Key}, "%s is missing: %s is assumed, which no %s model has", e.Key,
				e.Value,
				c.arch)
		default:
			keys, what = append(keys, e.Key), append(what, e.Key+" = "+e.Value)
		}
	}
	if len(keys) > 0 {
		c.add("config-default", keys, "not in the file, so that defaults hold: %s", list(what))
	}
	for _, n := range c.model.Notes {
		if strings.Contains(n, "lets the last layer slide") {
			c.addAs(Warning, "layer-pattern", []string{"layer_types"}, "%s", n)
		}
		for _, a := range c.family().Expect.Assumed {
			key := c.arch + "." + a.Key
			if !strings.Contains(n, key+":") {
				continue
			}
			severity := Warning
			if published(c) != nil {
				severity = Note
				n += ", which is right for the published model of this shape"
			}
			c.addAs(severity, a.ID, []string{key + ":"}, "%s", n)
		}
	}
}

// judgePattern judges which layers are full: the last of each period, or the first, in families with both kinds of
// layers.
func judgePattern(c *checker) {
	types, _ := c.model.Setting("layer_types").([]any)
	if !c.family().Periodic() || len(types) < 2 {
		return
	}
	var full []int
	for i, t := range types {
		if t == "full_attention" {
			full = append(full, i)
		}
	}
	key := []string{c.model.Key("layer_types")}
	isPlain := func(t family.Type) bool { return t.Window == family.NoWindow }
	if len(full) == len(types) && (c.family().Expect.Unwindowed && c.model.Setting("sliding_window") == nil ||
		slices.ContainsFunc(c.family().Types, isPlain)) {
		return
	}
	if len(full) == 0 || len(full) == len(types) {
		c.addAs(Warning, "layer-pattern", key, "all %d layers are of one kind (%v); %s has both", len(types), types[0],
			c.arch)
		return
	}
	first := c.family().Types[0].FirstFull && full[0] == 0 && len(full) > 1
	period, place := full[0]+1, "last"
	if first {
		period = full[1] + 1
	}
	if c.family().Windows() == family.PeriodicFirst {
		if period, place = len(types), "first"; len(full) > 1 {
			period = full[1]
		}
	}
	for i, t := range types {
		last := c.family().Types[0].LastFull && i == len(types)-1
		if slides := c.family().Slides(i, period); !last && !(first && i == 0) && slides == (t == "full_attention") {
			c.addAs(Warning, "layer-pattern", key, "layers %s of %d are full: not the %s of each period of %d",
				numbers(full),
				len(types), place, period)
			return
		}
	}
}

// judgeSharing judges files that hold keys and values in layers that share another layer's: published files have such
// tensors, so the loader accepts them, but a wrong number of layers looks the same.
func judgeSharing(c *checker) {
	shared, layers := c.number("num_kv_shared_layers"), c.number("num_hidden_layers")
	if !c.family().Uses("num_kv_shared_layers") {
		return
	}
	first, wide := int(layers-shared), firstWide(c, int(layers))
	const key = "num_kv_shared_layers"
	published := published(c)
	_, holds := c.model.Tensor(fmt.Sprintf("blk.%d.attn_k", first),
		fmt.Sprintf("model.layers.%d.self_attn.k_proj", first))
	switch ignored := fmt.Sprintf(
		"layers from %d on hold keys and values, which are ignored since they share those of others", first); {
	case published != nil && published.Shared != shared:
		c.addKey("kv-sharing", key,
			"the last %v layers share keys and values; in the published model of this shape the last %v do", shared,
			published.Shared)
	case wide > 0 && wide != first:
		c.addKey("kv-sharing", key,
			"the last %v layers share keys and values, but those from %d on have the wide feed-forward that "+
				"goes with it",
			shared, wide)
	case !holds || published != nil || shared == 0:
	case c.number("hidden_size_per_layer_input") == 0 || c.model.Setting("attention_k_eq_v") == true:
		c.addKey("kv-sharing", key,
			"%s; no model without per-layer embeddings, or whose keys serve as values, shares any",
			ignored)
	default:
		c.addAs(Warning, "kv-sharing", []string{c.model.Key(key)},
			"%s; no published model has this shape (%v layers of %v), so nothing tells whether that is right", ignored,
			layers,
			c.number("hidden_size"))
	}
}

// firstWide returns the first layer from which all feed-forwards are twice as wide; 0 if there is none.
func firstWide(c *checker, layers int) int {
	rows := func(i int) int {
		t, ok := c.model.Tensor(fmt.Sprintf("blk.%d.ffn_gate", i), fmt.Sprintf("model.layers.%d.mlp.gate_proj", i))
		if !ok || len(t.Shape) != 2 {
			return 0
		}
		return t.Shape[0]
	}
	at := 0
	for i := 1; i < layers; i++ {
		switch before, now := rows(i-1), rows(i); {
		case before > 0 && now == 2*before && at == 0:
			at = i
		case now != before:
			return 0
		}
	}
	return at
}

// judgeRotation judges the rotary settings.
func judgeRotation(c *checker) {
	if c.family().Lacks("rope_parameters") {
		return
	}
	const full = "rope_parameters.full_attention."
	theta := c.model.Rope("full_attention", "rope_theta")
	if theta < 1e3 || theta > 1e12 { // Falcon-H1's is 1e11
		c.addKey("rope-settings", full+"rope_theta", "the rotary base is %v", theta)
	}
	local := c.model.Rope("sliding_attention", "rope_theta")
	if c.family().Rope.Sliding != nil && local > theta {
		c.addKey("rope-settings", "rope_parameters.sliding_attention.rope_theta",
			"the rotary base of sliding layers, %v, is larger than that of full ones, %v: they look exchanged", local,
			theta)
	}
	if f := c.model.Rope("full_attention", "factor"); f != 0 && f < 1 {
		c.addKey("rope-settings", full+
			"factor", "the rotary scaling divides by %v: a factor below 1 looks like its inverse",
			f)
	}
	context, old := c.model.ContextLength(), c.model.Rope("full_attention", "original_max_position_embeddings")
	if context > 0 && old > float64(context) {
		c.addKey("rope-settings", full+"original_max_position_embeddings",
			"the context before scaling, %v, is longer than the one after it, %d", old, context)
	}
	scales := c.model.Rope("full_attention", "factor") > 0 || c.tensor("rope_freqs.weight") >= 0
	if s := c.family().Expect.Scaled; s != nil && theta == s.Theta && context > s.Context && !scales {
		c.add("rope-freqs", []string{"rope_freqs.weight"},
			"the base of %.0f and a context of %d are %s, but there is no scaling of the frequencies", s.Theta, context,
			s.Whose)
	}
	judgeDivisors(c)
}

// judgeDivisors judges the values of rope_freqs.
func judgeDivisors(c *checker) {
	i := c.tensor("rope_freqs.weight")
	if i < 0 {
		return
	}
	t := c.files.tensors[i]
	v := make([]float32, min(t.Shape.Size(), maxVector))
	if t.Shape.Size() > maxVector || mmap.Guard(func() error { return quant.Dequantize(t.DType, v, t.Data) }) != nil {
		return
	}
	below, falls := 0, 0
	for i, x := range v {
		if x < 1 {
			below++
		}
		if i > 0 && x < v[i-1] {
			falls++
		}
	}
	switch {
	case below > 0:
		c.add("rope-freqs", []string{"rope_freqs.weight"}, "%d of %d divisors are below 1: they look like multipliers",
			below,
			len(v))
	case falls > 0:
		c.add("rope-freqs", []string{"rope_freqs.weight"},
			"the divisors fall %d times: low frequencies must be divided by more", falls)
	}
}

// judgeUsual compares settings with the usual values of a family.
func judgeUsual(c *checker) {
	f := c.family()
	setting := "rms_norm_eps"
	if f.Lacks(setting) {
		setting = "layer_norm_eps"
	}
	eps := c.number(setting)
	near := func(v float64) bool { return math.Abs(eps-v) < 1e-3*v }
	if !near(1e-6) && !slices.ContainsFunc(f.Expect.Eps, near) {
		c.addKey("norm-eps", setting, "the norms' epsilon is %v; %s has 1e-06", eps, c.arch)
	}
	limit := c.number("final_logit_softcapping")
	if want := f.Expect.Softcap; f.Uses("final_logit_softcapping") && limit != want &&
		!(f.Expect.CapsVary && published(c) == nil) {
		theirs := "not"
		if want != 0 {
			theirs = fmt.Sprintf("at %v", want)
		}
		c.addKey("softcap", "final_logit_softcapping", "logits are capped at %v; %s's are %s", limit, f.Title, theirs)
	}
	for _, key := range []string{"hidden_act", "hidden_activation"} {
		if act, want := c.model.Setting(key), f.Fixed[key]; want != nil && act != want && act != nil {
			c.add("activation", []string{key}, "the activation is %v; %s has %s", act, c.arch, want)
		}
	}
	dim := c.number("head_dim")
	if q := c.number("query_pre_attn_scalar"); f.Uses("query_pre_attn_scalar") &&
		(q < dim/4 || q > 4*dim) {
		c.addKey("attention-scale", "query_pre_attn_scalar", "attention is scaled by 1/sqrt(%v) with heads of %v", q,
			dim)
	}
}

// tensor returns the index of a tensor, -1 if there is none.
func (c *checker) tensor(name string) int {
	return slices.IndexFunc(c.files.tensors, func(t tensor.Tensor) bool { return t.Name == name })
}

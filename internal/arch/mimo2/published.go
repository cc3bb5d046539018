package mimo2

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/family"
)

// sinks are the settings of layers' sinks, by kind.
var sinks = map[any]string{family.SlidingAttention: "add_swa_attention_sink_bias",
	family.FullAttention: "add_full_attention_sink_bias"}

// published reads the publisher's settings of layers, which transformers' say otherwise.
func published(s family.Settings, f *family.File) {
	delete(s, hybrid)
	if list := s.Take("moe_layer_freq"); list != nil {
		s.Fill("mlp_layer_types", named(list, "dense", "sparse"))
		f.Follows(s, "mlp_layer_types", named(list, "dense", "sparse"))
	}
	family.LeadingDense(s, f, 1)
	for _, key := range []string{"num_attention_heads", "head_dim", "v_head_dim"} {
		f.Follows(s, "swa_"+key, s[key])
		delete(s, "swa_"+key)
	}
	s.Say(map[string]any{sinks[family.SlidingAttention]: true, sinks[family.FullAttention]: false,
		"swa_num_key_value_heads": 2 * s.Number("num_key_value_heads"), "routed_scaling_factor": 1.})
	per, own := map[string]any{}, s.Take("swa_num_key_value_heads")
	for i, kind := range s.List("layer_types") {
		if kind == family.SlidingAttention && own != s["num_key_value_heads"] {
			per[strconv.Itoa(i)] = map[string]any{"num_key_value_heads": own}
			f.Spelling["per_layer_config."+strconv.Itoa(i)+".num_key_value_heads"] = "swa_num_key_value_heads"
		}
	}
	s.Fill("per_layer_config", per)
}

// hybrid is the publisher's setting of layers' kinds.
const hybrid = "hybrid_layer_pattern"

// kinds reads hybrid.
func kinds(s family.Settings, f *family.File) ([]any, string) {
	list, ok := named(s[hybrid], family.FullAttention, family.SlidingAttention).([]any)
	if s[hybrid] != nil && !ok {
		f.Report(hybrid, "is %s, expected 0 or 1 for each layer", family.Show(s[hybrid]))
	}
	return list, hybrid
}

// named has a name for each 0 and 1 of a list; others stay, and are refused later.
func named(v any, zero, one string) any {
	list, _ := v.([]any)
	out := slices.Clone(list)
	for i, v := range list {
		if name, ok := map[any]string{0.: zero, 1.: one}[v]; ok {
			out[i] = name
		}
	}
	if list == nil {
		return v
	}
	return out
}

// spell is the inverse of published.
func spell(s family.Settings) {
	per, _ := family.Object(s.Take("per_layer_config"))
	slides, freq, dense, own := []any{}, []any{}, s.Int("first_k_dense_replace"), s["num_key_value_heads"]
	delete(s, "first_k_dense_replace")
	for i, kind := range s.List("layer_types") {
		layer, _ := family.Object(per[strconv.Itoa(i)])
		own = cmp.Or(layer["num_key_value_heads"], own)
		slides = append(slides, map[bool]any{true: 1., false: 0.}[kind == family.SlidingAttention])
		freq = append(freq, map[bool]any{true: 1., false: 0.}[i >= dense])
	}
	for _, key := range []string{"num_attention_heads", "head_dim", "v_head_dim"} {
		s["swa_"+key] = s[key]
	}
	s.Say(map[string]any{"topk_method": "noaux_tc", "norm_topk_prob": true, "swa_num_key_value_heads": own,
		hybrid: slides, "moe_layer_freq": freq})
}

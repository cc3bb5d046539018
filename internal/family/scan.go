package family

import "math"

// ScanLimits returns the limits of the sizes of scans, under a family's names.
func ScanLimits(heads, dim, groups, state, kernel string) []Limit {
	whole := Required | Whole
	return []Limit{{heads, 1, 1 << 16, whole}, {dim, 1, 1 << 14, whole}, {groups, 1, 1 << 16, whole},
		{state, 1, 1 << 14, whole}, {kernel, 2, 1 << 10, whole}}
}

// DeltaLimits and DeltaKeys describe the sizes of gated DeltaNets.
var (
	DeltaLimits = ScanLimits("linear_num_value_heads", "linear_value_head_dim", "linear_num_key_heads",
		"linear_key_head_dim", "linear_conv_kernel_dim")
	DeltaKeys = []Key{
		{GGUF: "ssm.conv_kernel", Setting: "linear_conv_kernel_dim"},
		{GGUF: "ssm.state_size", Setting: "linear_key_head_dim"},
		{GGUF: "ssm.group_count", Setting: "linear_num_key_heads"},
		{GGUF: "ssm.time_step_rank", Setting: "linear_num_value_heads"},
		{GGUF: "ssm.inner_size", Setting: "linear_value_head_dim", Kind: Product, Of: "linear_num_value_heads"},
	}
)

// ScanHabits returns converters' changes to the weights of Mamba 2's scans.
func ScanHabits(groups string) []Habit {
	return []Habit{
		{Ends: []string{".ssm_a"}, NegExp: true, Form: Column},
		{Ends: []string{".ssm_d"}, Form: Column},
		{Ends: []string{".ssm_conv1d"}, Form: Depthwise},
		{Ends: []string{".ssm_norm"}, Form: Grouped, Groups: groups},
	}
}

// Unlimited serves as FromConfig of families whose steps of scans have a time_step_limit, and drops limits without
// effect, since steps are positive: from infinity, or from the largest float32 on (Nemotron 3 Ultra has 1e308).
func Unlimited(s Settings, _ *File) {
	limits, _ := s["time_step_limit"].([]any)
	if len(limits) != 2 || limits[0] != 0. {
		return
	}
	most, _ := limits[1].(map[string]any)
	if n, ok := limits[1].(float64); ok && n >= math.MaxFloat32 || most["__float__"] == "Infinity" {
		delete(s, "time_step_limit")
	}
}

// Epsilon serves as FromGGUF of families whose files have the epsilon of norms under either of GGUF's keys.
func Epsilon(s Settings, _ *File) {
	if s["rms_norm_eps"] == nil {
		s["rms_norm_eps"] = s["layer_norm_eps"]
	}
	delete(s, "layer_norm_eps")
}

// PlainScale serves as FromGGUF of families whose files may leave the attention's usual scale out.
func PlainScale(s Settings, _ *File) {
	if dim, _ := s["head_dim"].(float64); s["attention_multiplier"] == nil && dim > 0 {
		s["attention_multiplier"] = 1 / math.Sqrt(dim)
	}
}

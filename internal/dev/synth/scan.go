package synth

import (
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/tensor"
)

// What a layer is, as family.Shape.Pattern has it.
const (
	scans   = 'M'
	attends = '*'
	experts = 'E'
	both    = 'B'
)

// is is what a layer is: one that attends where the shape has no pattern.
func (s *shape) is(layer int) byte {
	if s.Pattern == "" {
		return attends
	}
	return s.Pattern[layer%len(s.Pattern)]
}

// sizes are keys of scans, and of the MLP beside experts.
func (s *shape) sizes() map[string]int {
	return map[string]int{"expert_shared_feed_forward_length": s.CommonFF, "ssm.conv_kernel": s.Kernel, "ssm.inner_size": s.ScanHeads * s.ScanDim, "ssm.state_size": s.State,
		"ssm.time_step_rank": s.ScanHeads, "ssm.group_count": s.Groups, "shortconv.l_cache": s.Kernel}
}

// scan adds a layer's convolution and scan.
func (l *list) scan(p string) {
	s, inner := l.s, l.s.ScanHeads*l.s.ScanDim
	switch {
	case s.Synth.Short:
		l.weight(p, "shortconv.in_proj", 3*s.Hidden, s.Hidden)
		l.add(p+"shortconv.conv.weight", tensor.F32, s.Hidden, s.Kernel)
		l.weight(p, "shortconv.out_proj", s.Hidden, s.Hidden)
		return
	case s.Synth.Delta:
		l.delta(p)
		return
	}
	channels := inner + 2*s.Groups*s.State
	l.weight(p, "ssm_in", inner+channels+s.ScanHeads, s.Hidden)
	l.add(p+"ssm_conv1d.weight", tensor.F32, channels, s.Kernel)
	l.biases(p, channels, "ssm_conv1d")
	l.biases(p, s.ScanHeads, "ssm_dt")
	l.add(p+"ssm_a", tensor.F32, s.ScanHeads, 1)
	l.add(p+"ssm_d", tensor.F32, s.ScanHeads, 1)
	if !s.Synth.Unnormed {
		l.add(p+"ssm_norm.weight", tensor.F32, s.Groups, inner/s.Groups)
	}
	l.weight(p, "ssm_out", s.Hidden, inner)
}

// delta adds a layer's convolution and gated delta rule: Groups heads of keys and ScanHeads of values.
func (l *list) delta(p string) {
	s, inner := l.s, l.s.ScanHeads*l.s.ScanDim
	channels := inner + 2*s.Groups*s.State
	l.weight(p, "attn_qkv", channels, s.Hidden)
	l.weight(p, "attn_gate", inner, s.Hidden)
	l.weight(p, "ssm_alpha", s.ScanHeads, s.Hidden)
	l.weight(p, "ssm_beta", s.ScanHeads, s.Hidden)
	l.add(p+"ssm_conv1d.weight", tensor.F32, channels, s.Kernel)
	l.biases(p, s.ScanHeads, "ssm_dt")
	l.add(p+"ssm_a", tensor.F32, s.ScanHeads)
	l.ones(p, s.ScanDim, "ssm_norm")
	l.weight(p, "ssm_out", s.Hidden, inner)
}

// plainExperts adds a layer's experts without gates, and the MLP beside them.
func (l *list) plainExperts(p string) {
	s := l.s
	l.add(p+"ffn_gate_inp.weight", unmixed, s.Experts, s.Hidden)
	l.biases(p, s.Experts, "exp_probs_b")
	l.weight(p, "ffn_up_exps", s.Experts, s.ExpertFF, s.Hidden)
	l.weight(p, "ffn_down_exps", s.Experts, s.Hidden, s.ExpertFF)
	l.weight(p, "ffn_up_shexp", s.CommonFF, s.Hidden)
	l.weight(p, "ffn_down_shexp", s.Hidden, s.CommonFF)
}

// widths is the width of MLPs, of a shape with layers of experts alone by layer.
func (s *shape) widths() any {
	if strings.IndexByte(s.Pattern, experts) < 0 {
		return uint32(s.FF)
	}
	return s.patterned(experts, s.FF)
}

// keyHeads is the number of heads of keys, of a shape with a pattern by layer.
func (s *shape) keyHeads() any {
	if s.Pattern == "" || s.KeyOf(family.Interval) != "" {
		return uint32(s.KVHeads)
	}
	return s.patterned(attends, s.KVHeads)
}

// patterned is a number for each layer, that of other kinds being 0.
func (s *shape) patterned(kind byte, n int) []int32 {
	all := make([]int32, s.Layers)
	for i := range all {
		if is := s.is(i); is == kind || is == both && kind == attends {
			all[i] = int32(n)
		}
	}
	return all
}

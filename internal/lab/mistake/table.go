package mistake

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/checkpoint/packing"
	"github.com/karat-run/karat/internal/graph"
)

// places are the forms of other places.
var places = wordings{"": {{"places": "swapped"}}, "other": {{"places": "other"}}, "nearest": {{"places": "nearest"}},
	"centers": {{"places": "centers"}}, "table": {{"places": "table"}}}

// table is all mistakes, in the order of accusation.
var table = slices.Concat(listed, strange, equals)

// listed is the mistakes that a search names.
var listed = []*entry{
	{id: "weight_transposed", ops: isOp(graph.Linear, graph.Experts), forms: transposes, one: true, at: carries},
	{id: "weight_permuted", ops: isOp(graph.Linear), read: readOrder, forms: permutes, more: permutedRows,
		at:    named("attn_q", "attn_k"),
		words: wordings{"": {{"built": "pairs"}}, "heads": {{"built": "heads"}}}, values: []string{"heads"}, tokens: 2},
	{id: "weight_wrong_layer", ops: isOp(graph.RMSNorm, graph.LayerNorm, graph.Linear, graph.Experts, graph.Add),
		forms: otherLayers, one: true, at: carries, more: nextLayer, words: plainly(detail{"built": "layer"})},
	{id: "weight_layout", ops: isOp(graph.Linear), forms: layouts, one: true,
		at:   func(s *site, n *graph.Node) bool { return product(s, n) && n.W[0].Shape.Last()%superblock != 0 },
		more: pastTheEnd,
		words: wordings{"": {{"block": float64(superblock), "read": "row-wise"}},
			"packed": {{"block": float64(superblock), "read": "packed"}},
			"beyond": {{"built": "beyond"}}},
		values: []string{"packed", "beyond"}},
	{id: "weight_scale", ops: isOp(graph.RMSNorm, graph.Linear, graph.Experts), read: readBlocks, forms: otherScales,
		one: true,
		at:  carries, more: decodedWrongly,
		words: wordings{"packing": {{"built": "packing"}}, "min": {{"built": "min"}}}, usual: fixed(2),
		values: []string{"packing", "min"}},
	{id: "packed_scale", ops: isOp(graph.Linear), forms: misreads("decodes the packed weight %s", packing.Unscaled)},
	{id: "packed_one_scale", ops: isOp(graph.Linear),
		forms: misreads("decodes the packed weight with %s", packing.OneScale)},
	{id: "packed_turned", ops: isOp(graph.Linear),
		forms: misreads("decodes the packed weight with %s", packing.TurnedScales)},
	{id: "packed_zero", ops: isOp(graph.Linear),
		forms:  misreads("decodes the packed weight with the %s its own", packing.ZeroBelow, packing.ZeroAbove),
		values: []string{"above"}, words: wordings{"above": {{"read": packing.ZeroAbove}},
			"": {{"read": packing.ZeroBelow}, {"read": packing.ZeroAbove}}}},
	{id: "packed_order", ops: isOp(graph.Linear),
		forms: misreads("decodes the codes of the packed weight in %s", packing.OtherOrder)},
	{id: "weight_missing",
		ops:   isOp(graph.RMSNorm, graph.Linear, graph.Embed, graph.Experts, graph.Attention, graph.Route),
		forms: lostWeights, one: true, at: carries, words: plainly(detail{"weight": "zero"}, detail{"weight": "one"})},
	{id: "rows_missing", ops: isOp(graph.Linear, graph.Experts, graph.Attention, graph.GLU, graph.RMSNorm),
		forms: lostRows, one: true, at: func(s *site, n *graph.Node) bool { return n.Layer != outside },
		words: wordings{"": {{"rows": "rest", "tile": 4.0}}, "last": {{"rows": "last"}},
			"behind": {{"rows": "behind", "tile": 8.0}}}, values: []string{"last", "behind"}, tokens: 9},

	{id: "draft_state", ops: isOp(graph.Conv), forms: otherStates, tokens: 3,
		words: wordings{"": {{"state": "before the norm"}}, "twice": {{"state": "normed twice"}},
			"own": {{"recycled": "before the norm"}}, "both": {{"state": "before the norm", "recycled": nil}},
			"kept": {{"state": "the draft's"}}, "shift": {{"state": "the row's own"}}},
		values: []string{"twice", "own", "kept", "shift"}},
	{id: "norm_offset", ops: isOp(graph.RMSNorm), forms: otherOffsets,
		words: plainly(detail{"offset": 0.0}, detail{"offset": 1.0})},
	{id: "norm_eps", ops: isOp(graph.RMSNorm, graph.LayerNorm), forms: otherEpsilons,
		usual: func(_ *site, _ *graph.Node, f *Fit) float64 {
			if f.Right > 5e-6 {
				return 1e-6
			}
			return 1e-5
		},
		values: []string{"1e-3"}, faint: "output_norm"},
	{id: "norm_missing", forms: lostNorms("norm_missing"), one: true, at: func(_ *site, n *graph.Node) bool {
		return (n.Op == graph.RMSNorm || n.Op == graph.LayerNorm) && len(n.W) > 0
	},
		values: []string{untapped}},
	{id: "norm_extra", forms: extraNorms, one: true, words: plainly(detail{"of": nil})},
	{id: "norm_wrong_weight", ops: isOp(graph.RMSNorm, graph.LayerNorm), forms: otherNorms, one: true,
		at: func(_ *site, n *graph.Node) bool { return n.Layer != outside }},
	{id: "norm_order", ops: isOp(graph.RMSNorm, graph.LayerNorm), forms: normsBehind, one: true,
		at:    named("attn_norm", "ffn_norm", "ln1", "ln2", "post_attention_norm", "post_ffw_norm"),
		more:  lastOf(normsBehind),
		words: plainly(detail{"built": "last"})},
	{id: "qk_norm_missing", forms: lostNorms("qk_norm_missing"), values: []string{untapped}},
	{id: "qk_norm_after_rope", ops: isOp(graph.RMSNorm), forms: normsAfterRope, at: named("attn_q_norm", "attn_k_norm"),
		more: lastOf(normsAfterRope), words: plainly(detail{"built": "last"}), tokens: 2},
	{id: "v_norm_missing", forms: lostNorms("v_norm_missing"), values: []string{untapped}},
	{id: "final_norm_missing", forms: lostNorms("final_norm_missing"), outer: true, at: named("output_norm")},

	{id: "rope_style", ops: isOp(graph.RoPE), forms: turned(otherStyles), at: turns, tokens: 2},
	{id: "rope_theta", ops: isOp(graph.RoPE), forms: turned(otherBases), at: turns, tokens: 2, more: turned(rootOfBase),
		words: wordings{"root": {{"built": "root"}}}, usual: func(_ *site, _ *graph.Node, f *Fit) float64 {
			if f.Right < 2e4 {
				return 1e6
			}
			return 1e4
		},
		values: []string{"5e5", "root"}},
	{id: "rope_scaling", ops: isOp(graph.RoPE), forms: turned(otherScalings), at: turns, tokens: 2,
		words: plainly(detail{"scaling": "none"}), number: "slowed", more: turned(slowed), values: []string{"4"}},
	{id: "rope_factors", ops: isOp(graph.RoPE), forms: turned(otherFactors), at: turns, tokens: 2,
		words: wordings{"": {{"factors": "inverse"}, {"factors": AnotherKind}},
			"multiplied": {{"factors": "inverse"}, {"factors": "multiplied"}, {"factors": "inverse of another kind"}},
			"chained":    {{"rounding": "chained"}}, "vanish": {{"rounding": failed}},
			"overflow": {{"rounding": "overflow"}}}, values: []string{"multiplied", "chained", "vanish", "overflow"}},
	{id: "rope_direction", ops: isOp(graph.RoPE), forms: turned(backwards), at: turns, tokens: 2},
	{id: "rope_partial", ops: isOp(graph.RoPE), forms: turned(otherParts), at: turns, tokens: 2,
		words: plainly(detail{"part": 1.0}, detail{"pairs": "all"}, detail{"pairs": 0.25}), number: "pairs"},
	{id: "rope_magnitude", ops: isOp(graph.RoPE), forms: turned(otherMagnitudes), at: turns, tokens: 1},
	{id: "rope_sections", ops: isOp(graph.RoPE), forms: turned(otherSections), at: turns, tokens: 2,
		values: []string{"order", "swapped", "text"}, words: wordings{"": {{"parts": "time alone"}},
			"order":   {{"order": "by turns"}, {"order": "one run after another"}},
			"swapped": {{"order": "width before height"}}, "text": {{"parts": "of text"}}}},
	{id: "rope_position", ops: isOp(graph.RoPE), forms: otherPositions, at: turns, one: true, tokens: 2, more: ringSlot,
		words: wordings{slot: {{"built": "slot"}},
			"bos": {{"position": "without the first", "side": nil}, {"position": "without the first"}}},
		usual: fixed(1), values: []string{"-1", slot, "bos"}},
	{id: "rope_missing", ops: isOp(graph.RoPE), forms: turnedBy("does not turn queries and keys", speed(nil)),
		at: turns, tokens: 2, values: []string{untapped}},

	{id: "attention_scale", ops: isOp(graph.Attention), forms: otherScalesOfScores, usual: otherScale, tokens: 2},
	{id: "window_size", ops: isOp(graph.Attention), byErrors: true, forms: otherWindows, at: hasSliding,
		usual: func(_ *site, _ *graph.Node, f *Fit) float64 { return f.Right - 1 }, values: []string{"+1"},
		windows: true},
	{id: "window_per_chunk", ops: isOp(graph.Attention), byErrors: true, forms: chunkedWindows, at: hasSliding,
		more: anyChunk, windows: true, number: "chunk", usual: func(_ *site, n *graph.Node, _ *Fit) float64 {
			usual := 32
			for usual > 2 && usual > window(n)/2 {
				usual /= 2
			}
			return float64(usual)
		}},
	{id: "window_missing", ops: isOp(graph.Attention), byErrors: true, forms: lostWindows, at: hasSliding,
		windows: true},
	{id: "layer_pattern", ops: isOp(graph.Attention), byErrors: true, forms: otherPatterns, tokens: 2, windows: true,
		words: plainly(detail{"kind": "another"})},
	{id: "mask", ops: isOp(graph.Attention), byErrors: true, forms: masks, more: unbounded,
		words: wordings{"": {{"mask": "causal"}, {"mask": "one ahead"}}, "future": {{"mask": "one ahead"}},
			"none": {{"mask": "none"}, {"built": "none"}}, "self": {{"mask": "not its own"}},
			"groups": {{"mask": "no groups"}}, "both": {{"mask": "groups"}}},
		values: []string{"none", "self"}, pictured: []string{"groups", "both"}, tokens: 3},
	{id: "gqa_map", ops: isOp(graph.Attention), forms: otherGroups, tokens: 1, words: plainly(detail{"map": "modulo"})},
	{id: "k_as_v", ops: isOp(graph.Attention), forms: keysAsValues,
		words: plainly(detail{"of": "one layer"}, detail{"values": nil})},
	{id: "kv_share_source", ops: isOp(graph.Attention), forms: otherStores, at: func(s *site, n *graph.Node) bool {
		return n.Op == graph.Attention && s.layers[n.Layer+1].first(graph.StoreKV) == nil
	},
		more: nearestStore, number: "layer", words: wordings{"": {{"built": "nearest"}}, "flat": {{"built": "flat"}}},
		values: []string{"flat"}},
	{id: "kv_cache_position", ops: isOp(graph.Attention), byErrors: true, forms: otherPlaces, number: "shift",
		usual: fixed(1), words: wordings{"fresh": {{"decode": "new in each step"}}}, values: []string{"2", "fresh"},
		tokens: 2},
	{id: "softmax_axis", ops: isOp(graph.Attention), forms: otherAxes, tokens: 2,
		at: func(_ *site, n *graph.Node) bool { return n.In[0].Shape[0] > 1 }, words: plainly(detail{"axis": "heads"})},

	{id: "embed_scale", ops: isOp(graph.Embed), forms: unless(isPLEScale, otherEmbeddingScales), outer: true,
		usual: unscaled},
	{id: "bias_missing", ops: isOp(graph.Add, graph.LayerNorm, graph.Conv, graph.Experts), forms: lostBiases,
		apart: true, at: hasBias, values: []string{untapped}},
	{id: "residual_order", ops: isOp(graph.RMSNorm), forms: normedSums, one: true},
	{id: "residual_missing", ops: isOp(graph.Add), forms: lostStreams, one: true,
		words: plainly(detail{"lost": "stream"}), at: residual},
	{id: "activation", ops: isOp(graph.GLU, graph.Act, graph.Experts), forms: otherActivations, one: true, apart: true,
		words: activationWords(), values: []string{"gelu_erf", "relu"}},
	{id: "gelu_constant", ops: isOp(graph.GLU, graph.Act, graph.Experts), forms: otherConstants, one: true,
		usual: fixed(0.047415)},
	{id: "gate_up_swapped", ops: isOp(graph.GLU, graph.Act, graph.Experts, graph.Linear), forms: swappedGates,
		one: true, apart: true, at: inOps(graph.GLU, graph.Experts)},
	{id: "ple_missing", ops: isOp(graph.Add), forms: lostPLE, words: plainly(detail{"lost": "branch"})},
	{id: "ple_scale", ops: isOp(graph.Embed, graph.Scale), forms: otherPLEScales, outer: true, one: true,
		at: func(_ *site, n *graph.Node) bool {
			return n.Op == graph.Embed || len(n.In) > 0 && n.In[0].Op == graph.Add
		},
		usual: func(s *site, n *graph.Node, f *Fit) float64 {
			if n.Op == graph.Embed {
				return unscaled(s, n, f)
			}
			return 1
		}},
	{id: "ple_position", forms: placesOfPLE, elsewhere: true,
		words:  wordings{"": {{"place": "before the MLP"}}, "after": {{"place": "after the scalar", "gate": nil}}},
		values: []string{"after"}},
	{id: "layer_scalar", ops: isOp(graph.Mul), forms: otherScalars,
		words:  wordings{"": {{"scalar": "on what the layer adds"}}, "missing": {{"scalar": "one"}}},
		values: []string{"missing"}},
	{id: "softcap_missing", ops: isOp(graph.Softcap), forms: lostSoftcaps, outer: true},
	{id: "softcap_value", ops: isOp(graph.Softcap), forms: otherSoftcaps, outer: true, usual: halved,
		words: capWords(), values: []string{"outside", "plain", "steep"}}, // few logits reach the cap
	{id: "head_wrong", ops: isOp(graph.Linear), read: readHead, forms: otherHeads, outer: true, at: named("output"),
		more: displacedHead,
		words: wordings{"": {{"weight": "token_embd"}, {"built": "rows"}}, "embed": {{"weight": "token_embd"}},
			"rows": {{"built": "rows"}}, "tail": {{"built": "tail"}}},
		values: []string{"tail", "embed", "rows"}},
	{id: "logits_scale", ops: isOp(graph.Linear, graph.Softcap), forms: otherLogitScales, outer: true,
		at:    inOps(graph.Linear),
		usual: func(_ *site, n *graph.Node, _ *Fit) float64 { return 1 / math.Sqrt(float64(n.In[0].Shape.Size())) }},

	{id: "router_softmax", ops: isOp(graph.Route), forms: otherWeights,
		at: func(_ *site, n *graph.Node) bool { return n.In[0].Shape.Size() > 1 },
		words: wordings{"": {{"over": "probabilities"}},
			"sigmoid": {{"over": "sigmoids"}, {"over": graph.SigmoidEach.String(), "normalize": true},
				{"over": graph.SigmoidEach.String()}}},
		values: []string{"sigmoid"}},
	{id: "router_norm", forms: otherNormalizations, at: inOps(graph.Route)},
	{id: "router_topk", ops: isOp(graph.Route), forms: otherCounts, number: "k",
		usual: func(_ *site, n *graph.Node, _ *Fit) float64 {
			if k := n.Shape[0]; k > 1 {
				return float64(k - 1)
			}
			return 2
		}},
	{id: "expert_order", ops: isOp(graph.Experts), forms: otherExperts,
		words: wordings{"": {{"order": "+1"}}, "reverse": {{"order": "reversed"}}}, values: []string{"reverse"},
		at: func(_ *site, n *graph.Node) bool { return n.W[0].Shape[0] > 1 }},

	{id: "norm_mean", ops: isOp(graph.LayerNorm, graph.RMSNorm), forms: otherMeans},
	{id: "position_embedding", ops: isOp(graph.EmbedPos), forms: otherPositionEmbeddings,
		words: wordings{"": {{"shift": 2.0}}, "missing": {{}}}, values: []string{"missing"}},
	{id: "position_scale", ops: isOp(graph.ScalePos), forms: otherTemperatures,
		words: wordings{"": {{"shift": nil}}, "missing": {{}}}, values: []string{"missing"}, tokens: 2},
	{id: "parts_swapped", ops: isOp(graph.Concat), forms: swappedParts},
	{id: "slice_part", ops: isOp(graph.Slice), forms: otherSlices, one: true, more: neighbour,
		words: plainly(detail{"built": "neighbour"})},
	{id: "gate_missing", ops: isOp(graph.Mul), forms: lostGates, one: true,
		words: wordings{"": {{"lost": "second"}}, "gate": {{"lost": "first"}}}, values: []string{"gate"}},
	{id: "norm_length", ops: isOp(graph.L2Norm, graph.RMSNorm), forms: otherLengths, apart: true},
	{id: "norm_width", ops: isOp(graph.RMSNorm), forms: otherWidths, one: true,
		words:  wordings{"": {{"over": "all heads"}, {"over": nil}}, "half": {{"over": "the first half of a row"}}},
		values: []string{"half"}},
	{id: "heads_exchanged", ops: isOp(graph.HeadLinear), forms: exchangedHeads},
	{id: "pooling", ops: isOp(graph.Pool), forms: otherPoolings, outer: true, tokens: 2},
	{id: "place_interpolation", ops: isOp(graph.Interpolate), forms: otherTables, words: places,
		values: []string{"other", "nearest", "centers", "table"}},
	{id: "fold_order", ops: isOp(graph.Pool), forms: otherFolds, words: wordings{"": {{"order": "columns"}},
		"reverse": {{"order": "reverse"}}}, values: []string{"reverse"}},
	{id: "deepstack", ops: isOp(graph.Deepstack), forms: otherFeatures, pictured: []string{"", "layer", "rows"},
		words: wordings{"": {{"features": "none"}}, "layer": {{"features": "another layer's"}},
			"rows": {{"features": "rows"}}}},
	{id: "image_stale", ops: isOp(graph.Embed), forms: staleRows, pictured: []string{""}},
	{id: "image_scale", ops: isOp(graph.Embed), forms: otherScalesOfRows, usual: otherScaleOfRows, outer: true,
		pictured: []string{""}},
	{id: "norm_joined", ops: isOp(graph.RMSNorm, graph.LayerNorm), forms: normsBesideFolds},
	{id: "conv_order", ops: isOp(graph.Conv), forms: reversedKernels},
	{id: "scan_decay", ops: isOp(graph.SSMScan, graph.DeltaScan), forms: otherDecays, more: lastOf(otherDecays),
		words: wordings{"": {{"bias": 0.0}}, "log": {{"built": "last"}}}, values: []string{"log"}, tokens: 2},
	{id: "stream_mix", ops: isOp(graph.Mix), forms: otherMixes, words: wordings{"": {{"mix": "turned"}},
		"plain": {{"mix": "plain"}}}, values: []string{"plain"}},
	{id: "stream_size", ops: isOp(graph.Match), forms: lostMatches, outer: true},
	{id: "gate_bound", ops: isOp(graph.Above), forms: otherBounds, words: wordings{"": {{"bound": "none"}},
		"sample": {{"bound": "sample"}}}, values: []string{"sample"}},
	{id: "scan_elements", ops: isOp(graph.SSMScan, graph.DeltaScan), forms: sharedDecays, tokens: 2},
	{id: "scan_groups", ops: isOp(graph.SSMScan, graph.DeltaScan), forms: otherScanGroups},
	{id: "scan_skip", ops: isOp(graph.SSMScan), forms: lostSkips},
	{id: "scan_share", ops: isOp(graph.DeltaScan), forms: lesserShares, tokens: 2},
	{id: "state_lost", ops: isOp(graph.Conv, graph.SSMScan, graph.DeltaScan), forms: lostStates, apart: true,
		tokens: 2},

	{id: "attention_sink", ops: isOp(graph.Attention), forms: lostSinks},
	{id: "attention_cap", ops: isOp(graph.Attention), forms: otherCaps, tokens: 2,
		words: capWords(detail{"cap": "none"}), usual: halved, values: []string{"15", "outside", "plain", "steep"}},
	{id: "chunk_missing", ops: isOp(graph.Attention), forms: lostChunks,
		words: wordings{"": {{"chunk": "none"}}, "window": {{"chunk": "window"}}}, values: []string{"window"},
		windows: true},
	{id: "latent_part", ops: isOp(graph.Attention), forms: lastParts},
	{id: "index_missing", ops: isOp(graph.Attention), forms: lostChoices, windows: true},
	{id: "index_topk", ops: isOp(graph.Choose), forms: fewerPositions, number: "k", windows: true,
		usual: func(_ *site, n *graph.Node, _ *Fit) float64 { return float64((n.Shape[0] + 1) / 2) }},
	{id: "index_score", ops: isOp(graph.Choose), forms: otherScores, windows: true, values: []string{"even"},
		words: wordings{"": {{"score": "linear"}}, "even": {{"score": "even"}}}},
	{id: "activation_limit", ops: isOp(graph.GLU, graph.Act, graph.Experts), forms: lostLimits,
		words: wordings{"": {{"without": "all"}, {"without": nil}}, "limit": {{"without": "limit"}},
			"alpha": {{"without": "alpha"}}, "plus": {{"without": "plus"}}},
		values: []string{"limit", "alpha", "plus"}},
	{id: "gate_up_layout", ops: isOp(graph.Experts), forms: otherLayouts},
	{id: "expert_bias", ops: isOp(graph.Experts), forms: biasesApart},
	{id: "expert_input", ops: isOp(graph.Experts), forms: otherInputs},
	{id: "router_factor", ops: isOp(graph.Route), forms: lostFactors},
	{id: "router_eps", ops: isOp(graph.Route), forms: lostEpsilons, at: func(_ *site, n *graph.Node) bool {
		a, _ := n.Attr.(graph.RouteAttr)
		return a.Eps >= 1e-4 // the chosen scores add up to about 1: less is rounding
	}},
	{id: "router_groups", ops: isOp(graph.Route), forms: otherExpertGroups,
		words:  wordings{"": {{"groups": 1.0}}, "best": {{"best": 1.0}}, "zero": {{"groups": "zero"}}},
		values: []string{"best"}}, // nothing for positive scores
	{id: "scale_factor", ops: isOp(graph.Scale), forms: otherFactorsOfValues, more: scaledTwice,
		words: wordings{"": {{"built": "without"}}, "twice": {{"built": "twice"}}}, values: []string{"twice"}},
	{id: "router_bias", ops: isOp(graph.Route), forms: otherBiases,
		words: wordings{"": {{"bias": "in weights"}}, "none": {{"bias": "none"}}}, values: []string{"none"}},
}

package mistake

import (
	"cmp"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

// stable are the catalogue's, which are stable.
const stable = `input_ids input_bos input_template
weight_transposed weight_permuted weight_wrong_layer weight_layout weight_scale packed_scale packed_one_scale packed_turned packed_zero packed_order weight_missing rows_missing
embed_scale norm_offset norm_eps norm_missing norm_extra norm_wrong_weight norm_order bias_missing
qk_norm_missing qk_norm_after_rope v_norm_missing rope_style rope_theta rope_scaling rope_factors rope_direction rope_partial rope_magnitude
rope_sections rope_position rope_missing attention_scale attention_sink attention_cap softcap_missing softcap_value window_size window_missing window_per_chunk layer_pattern
mask chunk_missing gqa_map k_as_v kv_share_source kv_cache_position softmax_axis
deepstack residual_order residual_missing activation gelu_constant gate_up_swapped activation_limit gate_up_layout ple_missing ple_scale ple_position layer_scalar
router_softmax router_norm router_topk expert_order expert_bias expert_input router_factor router_eps router_groups router_bias final_norm_missing head_wrong scale_factor logits_scale
norm_mean position_embedding position_scale parts_swapped slice_part gate_missing norm_length norm_width
latent_part index_missing index_topk index_score heads_exchanged pooling conv_order scan_decay scan_elements scan_share scan_skip scan_groups stream_mix stream_size gate_bound state_lost draft_state
image_markers image_advance image_decoder image_channels image_size image_filter image_antialias image_fit image_tiles image_mean image_range patch_order place_interpolation fold_order image_stale image_scale norm_joined
numeric_activations numeric_kv numeric_gelu numeric_accumulation
probe_dtype probe_prefix probe_stale probe_duplicate probe_rows unknown`

func TestIDs(t *testing.T) {
	want := strings.Fields(stable)
	if len(All()) != len(want) {
		t.Errorf("%d causes, want %d", len(All()), len(want))
	}
	for i, c := range All() {
		if i < len(want) && c.ID != want[i] {
			t.Errorf("cause %d is %s, want %s", i, c.ID, want[i])
		}
	}
}

var ops = regexp.MustCompile(`^(Embed|Linear|RMSNorm|RoPE|StoreKV|Attention|Add|Mul|Scale|GLU|Act|Softcap|Rows|Route|Experts|LayerNorm|EmbedPos|ScalePos|Concat|Slice|L2Norm|HeadLinear|Pool|Conv|SSMScan|Decode|Size|Resize|Tiles|Normalize|Patches|Interpolate|Deepstack|Mix|Match|Above|Choose|)$`)

// TestEntries wants every entry whole, and every number of the list covered but
// 56, which accuses the reference and is a verdict, not a cause.
func TestEntries(t *testing.T) {
	covered := map[int]bool{}
	for _, c := range All() {
		if found, ok := Find(c.ID); !ok || found.ID != c.ID {
			t.Errorf("Find(%s) = %v, %v", c.ID, found, ok)
		}
		if !ops.MatchString(c.Op) {
			t.Errorf("%s: operation %q", c.ID, c.Op)
		}
		for _, s := range []string{c.Sentence, c.Fix} {
			if !strings.HasSuffix(s, ".") || strings.ContainsRune(s, '\n') {
				t.Errorf("%s: %q is no sentence", c.ID, s)
			}
		}
		for _, n := range c.Numbers {
			covered[n] = true
		}
	}
	for n := 1; n <= 55; n++ {
		if !covered[n] {
			t.Errorf("number %d is not covered", n)
		}
	}
	if _, ok := Find("x_none"); ok {
		t.Error("Find finds what there is not")
	}
}

var update = flag.Bool("update", false, "write the table of causes in docs/parity.md again")

// TestCausesPage: docs/parity.md lists the causes, an operation a row, in the catalogue's order.
func TestCausesPage(t *testing.T) {
	var ops []string
	names := map[string][]string{}
	for _, c := range All() {
		op := cmp.Or(c.Op, "any value")
		if names[op] == nil {
			ops = append(ops, op)
		}
		names[op] = append(names[op], c.ID)
	}
	want := "| operation | causes |\n|---|---|\n"
	for _, op := range ops {
		want += "| " + op + " | " + strings.Join(names[op], ", ") + " |\n"
	}
	const path, begin = "../../../docs/parity.md", "-run TestCausesPage -update -->\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	got, after, _ := strings.Cut(rest, "\n\n")
	switch {
	case !ok:
		t.Fatal("docs/parity.md has no place for the table")
	case got+"\n" == want:
	case !*update:
		t.Errorf("docs/parity.md: %q wants another table; go test ./internal/lab/mistake -run TestCausesPage -update writes it", got)
	default:
		if err := os.WriteFile(path, []byte(before+begin+want+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

package check

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tensor"
)

// seer returns the folder of a model that sees, and its two files.
func seer(t *testing.T, name string) (dir, text, projector string) {
	t.Helper()
	dir = golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name))
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "resized")), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	golden.Tokenizer(t, dir, map[int]string{514: "<|image_pad|>"}, "{{ messages[0].content }}")
	text = filepath.Join(t.TempDir(), "model.gguf")
	if _, err := convert.Convert(t.Context(), dir, text, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	return dir, text, filepath.Join(filepath.Dir(text), "mmproj-model.gguf")
}

// towerFindings lists what is found in a part for pictures.
func towerFindings(t *testing.T, path, against string) (ids []string, r *Report) {
	t.Helper()
	r, err := Run(t.Context(), path, Options{Against: against})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if f.Severity != Note && !slices.Contains(ids, f.ID) {
			ids = append(ids, f.ID)
		}
	}
	return ids, r
}

// TestTowers finds nothing in good parts for pictures, in files and folders, alone and against their source.
func TestTowers(t *testing.T) {
	for _, name := range []string{"qwen3vl", "qwen25vl", "gemma3", "gemma4-moe", "gemma4", "smolvlm", "mistral3", "lfm2vl"} {
		dir, _, file := seer(t, name)
		for _, against := range []string{"", dir} {
			if ids, r := towerFindings(t, file, against); len(ids) > 0 || against != "" && r.Compared < 30 {
				t.Errorf("%s, against %q: %d compared, %+v", name, against, r.Compared, r.Findings)
			}
		}
	}
}

// TestSpoiledTowers spoils the file of a part for pictures.
func TestSpoiledTowers(t *testing.T) {
	dir, _, file := seer(t, "qwen3vl")
	good := read(t, file)
	swap := func(a, b string) func(m *model) {
		return func(m *model) {
			x, y := m.tensor(a), m.tensor(b)
			x.Data, y.Data = y.Data, x.Data
		}
	}
	times := func(name string, by float32) func(m *model) {
		return func(m *model) { m.alter(name, func(_ int, v float32) float32 { return v * by }) }
	}
	for _, s := range []struct {
		name, want string
		against    bool
		edit       func(m *model)
	}{
		{"a tensor is missing", "tensor-missing", false, func(m *model) { m.remove("v.blk.1.ln2.bias") }},
		{"a tensor without a use", "tensor-unused", false, func(m *model) {
			m.tensors = append(m.tensors, tensor.Tensor{Name: "v.blk.0.attn_q.bias", DType: tensor.F32, Shape: tensor.Shape{32}, Data: make([]byte, 128)})
		}},
		{"another shape", "tensor-shape", false, func(m *model) {
			x := m.tensor("v.blk.1.ffn_up.weight")
			x.Shape = tensor.Shape{x.Shape[1], x.Shape[0]}
		}},
		{"zeros", "zero-tensor", false, func(m *model) { clear(m.tensor("v.blk.2.attn_out.weight").Data) }},
		{"far larger than in other layers", "layer-outlier", false, times("v.blk.2.ffn_up.weight", 64)},
		{"a single large value", "value-implausible", false, func(m *model) {
			m.alter("mm.2.weight", func(i int, v float32) float32 {
				if i == 77 {
					return 1e6
				}
				return v
			})
		}},
		{"not a number", "nan", false, func(m *model) {
			m.alter("v.blk.0.attn_qkv.weight", func(i int, v float32) float32 {
				if i == 5 {
					return float32(math.NaN())
				}
				return v
			})
		}},
		{"another layer's bytes", "tensor-duplicate", false, func(m *model) {
			copy(m.tensor("v.blk.1.attn_qkv.weight").Data, m.tensor("v.blk.0.attn_qkv.weight").Data)
		}},
		{"an unknown projector", "not-loaded", false, set("clip.projector_type", "ldp")},
		{"no heads", "heads", false, set("clip.vision.attention.head_count", uint32(0))},
		{"no layer for the text's first layers", "tensor-unused", false, set("clip.vision.is_deepstack_layers", []bool{true, false, false, false})},
		{"two layers exchanged", "source-swapped", true, swap("v.blk.0.ffn_up.weight", "v.blk.1.ffn_up.weight")},
		{"scaled", "source-scaled", true, times("mm.0.weight", 1.5)},
		{"the sign of a norm", "source-scaled", true, times("v.blk.3.ln1.weight", -1)},
		{"times exchanged", "source-swapped", true, swap("v.patch_embd.weight", "v.patch_embd.weight.1")},
		{"another mean", "source-settings", true, set("clip.vision.image_mean", []float32{0, 0, 0})},
		{"another epsilon", "source-settings", true, set("clip.vision.attention.layer_norm_epsilon", float32(1e-5))},
	} {
		t.Run(s.name, func(t *testing.T) {
			m := good.clone(t)
			s.edit(m)
			against := ""
			if s.against {
				against = dir
			}
			if ids, r := towerFindings(t, m.write(), against); !slices.Equal(ids, []string{s.want}) {
				t.Errorf("%q, want %s: %+v", ids, s.want, r.Findings)
			}
		})
	}
}

// TestSpoiledSeers spoils the part for pictures of a folder.
func TestSpoiledSeers(t *testing.T) {
	dir, _, _ := seer(t, "qwen3vl")
	good := read(t, dir)
	for _, s := range []struct {
		want string
		edit func(m *model)
	}{
		{"tensor-missing", func(m *model) { m.remove("model.visual.blocks.1.norm2.bias") }},
		{"tensor-shape", func(m *model) {
			x := m.tensor("model.visual.merger.linear_fc2.weight")
			x.Shape = tensor.Shape{x.Shape[1], x.Shape[0]}
		}},
		{"zero-tensor", func(m *model) { clear(m.tensor("model.visual.pos_embed.weight").Data) }},
		{"source-scaled", func(m *model) {
			m.alter("model.visual.blocks.0.attn.proj.weight", func(_ int, v float32) float32 { return 2 * v })
		}},
	} {
		m := good.clone(t)
		s.edit(m)
		if ids, r := towerFindings(t, m.write(), dir); !slices.Contains(ids, s.want) {
			t.Errorf("%q, want %s: %+v", ids, s.want, r.Findings)
		}
	}
}

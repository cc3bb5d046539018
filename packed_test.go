package karat_test

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPackedLogits runs folders with packed weights: in float64 and in float32 they have the bits of folders with the
// values in F32. A GGUF file converted of them has their bits in every precision, where its types are as exact; where
// codes are behind values of F32, products of integers are nearby.
func TestPackedLogits(t *testing.T) {
	families := map[string][]string{
		"tiny-llama": {"fp8-block-e8m0", "gptq"},
		"qwen3moe": {"fp8-block", "modelopt-fp8-rows", "modelopt-mxfp8", "ct-int4-group", "ct-int4-actorder", "ct-int8-bytes", "ct-nvfp4", "modelopt-nvfp4", "gptq", "awq",
			"mlx-4-bits", "mlx-nvfp4", "gptq-v2-3-bits"},
		"qwen35moe": {"ct-int4-asymmetric"}, "falcon": {"fp8-block", "modelopt-nvfp4", "gptq-act-order", "gptq"},
		"deepseek2": {"fp8-block", "gptq-act-order", "mlx-mxfp4", "mlx-3-bits"}, "phi3": {"fp8-small-block-bf16", "mlx-5-bits"}}
	for family, names := range families {
		for _, p := range packed.All {
			if !slices.Contains(names, p.Name) {
				continue
			}
			t.Run(family+"/"+p.Name, func(t *testing.T) {
				dir := t.TempDir()
				here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
				if err := packed.Folders(golden.Model(t, family), here, there, p, nil); err != nil {
					t.Fatal(err)
				}
				file, other := filepath.Join(dir, "packed.gguf"), filepath.Join(dir, "plain.gguf")
				for src, dst := range map[string]string{here: file, there: other} {
					if _, err := convert.Convert(t.Context(), src, dst, convert.Options{}); err != nil {
						t.Fatal(err)
					}
				}
				for _, o := range []karat.Options{{Precision: karat.Float64}, {Precision: karat.Float32, Threads: 2},
					{Threads: 1}} {
					got := packedLogits(t, here, o)
					if o.Precision != "" && !slices.Equal(got, packedLogits(t, there, o)) {
						t.Errorf("%v: the logits differ from those of values", o.Precision)
					}
					if family == "tiny-llama" { // whose frequencies are a quotient in GGUF
						if o.Precision == "" {
							continue
						}
						got = packedLogits(t, other, o)
					}
					want := packedLogits(t, file, o)
					if coded[p.Name] && o.Precision == "" {
						if d := distance(got, want); d == 0 || d > 1e-3 {
							t.Errorf("the logits are %.3g from those of the file", d)
						}
						if !slices.Equal(got, packedLogits(t, here, karat.Options{Threads: 2})) {
							t.Error("the logits differ with two threads")
						}
					} else if !slices.Equal(got, want) {
						t.Errorf("%v: the logits differ from those of the file", o.Precision)
					}
				}
			})
		}
	}
}

// coded has the packings of codes behind F32.
var coded = map[string]bool{"ct-nvfp4": true, "ct-int4-actorder": true, "gptq-act-order": true}

// distance returns the largest difference of bits of float32 numbers, relative to the largest number.
func distance(a, b []uint32) float64 {
	d, most := 0.0, 0.0
	for i, v := range a {
		x, y := float64(math.Float32frombits(v)), float64(math.Float32frombits(b[i]))
		d, most = max(d, math.Abs(x-y)), max(most, math.Abs(y))
	}
	return d / most
}

func packedLogits(t *testing.T, path string, o karat.Options) (all []uint32) {
	t.Helper()
	m, err := karat.Load(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, ids := range [][]int{{5, 17, 300, 42, 8, 99, 123}, {17}} { // many rows, and a few
		rows, err := m.Logits(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			for _, v := range row {
				all = append(all, math.Float32bits(v))
			}
		}
	}
	return all
}

// TestOrderedExpert runs folders in which one expert's columns are in order, and the others' are not.
func TestOrderedExpert(t *testing.T) {
	p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == "gptq-act-order" })]
	for _, expert := range []string{"3", "0"} {
		t.Run(expert, func(t *testing.T) {
			count := 0
			sort := func(parts map[string]tensor.Tensor) {
				for name, x := range parts {
					if strings.Contains(name, ".experts."+expert+".") && strings.HasSuffix(name, ".g_idx") {
						x.Data = nil
						for i := range x.Shape[0] {
							x.Data = binary.LittleEndian.AppendUint32(x.Data, uint32(i/32))
						}
						parts[name], count = x, count+1
					}
				}
			}
			here := filepath.Join(t.TempDir(), "packed")
			if err := packed.Folders(golden.Model(t, "qwen3moe"), here, here+"-plain", p, sort); err != nil || count == 0 {
				t.Fatalf("%d parts, %v", count, err)
			}
			file := here + ".gguf"
			if _, err := convert.Convert(t.Context(), here, file, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			for _, o := range []karat.Options{{Precision: karat.Float32, Threads: 2}, {Threads: 1}} {
				got, want := packedLogits(t, here, o), packedLogits(t, file, o)
				if d := distance(got, want); d > 1e-3 || (d == 0) != (o.Precision != "") {
					t.Errorf("%v: the logits are %.3g from those of the file", o.Precision, d)
				}
			}
		})
	}
}

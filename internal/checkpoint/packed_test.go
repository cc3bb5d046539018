package checkpoint

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPackings opens folders of each packing: their weights have the values of the format's definition, bit for bit.
func TestPackings(t *testing.T) {
	for _, family := range []string{"qwen3moe", "deepseek2", "phi3"} {
		for _, p := range packed.All {
			t.Run(family+"/"+p.Name, func(t *testing.T) {
				if testing.Short() && family != "qwen3moe" {
					t.Skip("short")
				}
				dir := t.TempDir()
				here, there := filepath.Join(dir, "packed"), filepath.Join(dir, "plain")
				if err := packed.Folders(golden.Model(t, family), here, there, p, nil); err != nil {
					t.Fatal(err)
				}
				a, b := opened(t, here), opened(t, there)
				if a.Packing == "" || b.Packing != "" {
					t.Errorf("packings %q and %q", a.Packing, b.Packing)
				}
				if len(a.Names()) != len(b.Names()) {
					t.Fatalf("%d tensors, want %d", len(a.Names()), len(b.Names()))
				}
				for _, name := range b.Names() {
					got, want := floatsOf(t, a.set.ByName[name]), floatsOf(t, b.set.ByName[name])
					if !slices.Equal(got, want) { // MXFP4 has one zero
						t.Fatalf("%s differs", name)
					}
				}
				if n := a.Bytes(); n >= b.Bytes() {
					t.Errorf("%d bytes, of values %d", n, b.Bytes())
				}
			})
		}
	}
}

// TestDamagedScale names the file, the tensor and the value.
func TestDamagedScale(t *testing.T) {
	p := packed.All[slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == "ct-nvfp4" })]
	dir, plain := filepath.Join(t.TempDir(), "packed"), filepath.Join(t.TempDir(), "plain")
	const module = "model.layers.0.self_attn.q_proj"
	damage := func(parts map[string]tensor.Tensor) {
		x := parts[module+".weight_global_scale"]
		x.Data = []byte{0, 0, 0xa0, 0xc0} // -5
		parts[x.Name] = x
	}
	if err := packed.Folders(golden.Model(t, "qwen3moe"), dir, plain, p, damage); err != nil {
		t.Fatal(err)
	}
	want := dir + ": model.safetensors: tensor " + module +
		": weight_global_scale is -5, want a finite number greater than 0"
	if _, err := Open(dir); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func opened(t *testing.T, dir string) *Checkpoint {
	t.Helper()
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// floatsOf returns a tensor's values.
func floatsOf(t *testing.T, x tensor.Tensor) []float32 {
	t.Helper()
	x, err := x.Whole()
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, x.Shape.Size())
	if err := quant.Dequantize(x.DType, v, x.Data); err != nil {
		t.Fatal(err)
	}
	return v
}

package check

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/tensor"
)

// TestPackedFolders finds no error in a folder of any packing, and finds each spoiled one.
func TestPackedFolders(t *testing.T) {
	src := golden.Model(t, "smollm3")
	clean := map[string]bool{}
	for _, f := range checked(t, src) {
		clean[f.ID] = true
	}
	for _, p := range packed.All {
		t.Run(p.Name, func(t *testing.T) {
			if p.Name != "fp8-block" && p.Name != "awq" && p.Name != "mlx-4-bits" {
				golden.SkipFast(t, "three formats are enough")
			}
			dir := t.TempDir()
			good := filepath.Join(dir, "good")
			if err := packed.Folders(src, good, filepath.Join(dir, "plain"), p, nil); err != nil {
				t.Fatal(err)
			}
			for _, f := range append(checked(t, good), checkedAgainst(t, good, src)...) {
				if f.Severity == Error && !clean[f.ID] || strings.HasPrefix(f.ID, "source-") {
					t.Errorf("intact: %s: %v", f.ID, f.What)
				}
			}
			other := filepath.Join(dir, "other")
			exchange := func(parts map[string]tensor.Tensor) {
				for name, x := range parts {
					if next := strings.Replace(name, ".0.mlp.up", ".1.mlp.up", 1); next != name {
						parts[name], parts[next] = parts[next], x
					}
				}
			}
			if err := packed.Folders(src, other, other+"-plain", p, exchange); err != nil {
				t.Fatal(err)
			}
			found := checkedAgainst(t, other, src)
			if !slices.ContainsFunc(found, func(f Finding) bool { return f.ID == "source-swapped" }) {
				t.Error("weights of another layer: nothing found")
			}
			for name, spoil := range spoils {
				bad := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
				applied := false
				edit := func(parts map[string]tensor.Tensor) { applied = spoil(parts) }
				err := packed.Folders(src, bad, bad+"-plain", p, edit)
				if err != nil {
					t.Fatal(err)
				}
				if !applied {
					continue
				}
				found := false
				for _, f := range checked(t, bad) {
					if f.ID == "zero-tensor" && name == "scale missing" {
						t.Errorf("codes that nothing decodes are judged: %v", f.What)
					}
					found = found || f.Severity == Error && !clean[f.ID] || f.ID == "packed-scales"
				}
				if !found {
					t.Errorf("%s: nothing found", name)
				}
			}
		})
	}
}

func checked(t *testing.T, dir string) []Finding { return checkedAgainst(t, dir, "") }

func checkedAgainst(t *testing.T, dir, source string) []Finding {
	t.Helper()
	r, err := Run(t.Context(), dir, Options{Against: source})
	if err != nil {
		t.Fatal(err)
	}
	return r.Findings
}

// module is spoiled.
const module = "model.layers.0.mlp.down_proj."

// spoils spoil parts of a module; false where it has no such part.
var spoils = map[string]func(parts map[string]tensor.Tensor) bool{
	"scale missing": func(parts map[string]tensor.Tensor) bool { return edit(parts, drop, scaleParts...) },
	"codes missing": func(parts map[string]tensor.Tensor) bool {
		return edit(parts, drop, "weight", "weight_packed", "qweight")
	},
	"zeros missing": func(parts map[string]tensor.Tensor) bool {
		return edit(parts, drop, "qzeros", "biases", "weight_zero_point")
	},
	"extra scale": func(parts map[string]tensor.Tensor) bool {
		name := module + "weight_scale_2"
		if _, ok := parts[name]; ok {
			return false
		}
		parts[name] = tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)}
		return true
	},
	"scale of another module": func(parts map[string]tensor.Tensor) bool {
		return edit(parts, func(parts map[string]tensor.Tensor, name string, x tensor.Tensor) {
			delete(parts, name)
			parts[strings.Replace(name, "down_proj", "d_proj", 1)] = x
		}, scaleParts...)
	},
	"codes turned": func(parts map[string]tensor.Tensor) bool {
		return edit(parts, turn, "weight", "weight_packed", "qweight")
	},
	"scale turned": func(parts map[string]tensor.Tensor) bool {
		return edit(parts, func(parts map[string]tensor.Tensor, name string, x tensor.Tensor) {
			if len(x.Shape) < 2 || x.Shape[0] == x.Shape[1] {
				x.Shape = tensor.Shape{1, 1, x.Shape.Size()}
				parts[name] = x
				return
			}
			turn(parts, name, x)
		}, scaleParts...)
	},
	"scale not a number": func(parts map[string]tensor.Tensor) bool {
		return edit(parts, func(parts map[string]tensor.Tensor, name string, x tensor.Tensor) {
			x.Data = append([]byte(nil), x.Data...)
			for i := range x.DType.BlockBytes() {
				x.Data[i] = 0xff
			}
			parts[name] = x
		}, scaleParts...)
	},
	"scales zero": func(parts map[string]tensor.Tensor) bool {
		return edit(parts, func(parts map[string]tensor.Tensor, name string, x tensor.Tensor) {
			x.Data = make([]byte, len(x.Data))
			parts[name] = x
		}, scaleParts...)
	},
	"a scale zero": func(parts map[string]tensor.Tensor) bool { return spoilScale(parts, 0) },
	"a scale negative": func(parts map[string]tensor.Tensor) bool { // of whole numbers sound
		return (parts[module+"weight"].DType == tensor.F8_E4M3 || parts[module+"weight_packed"].DType == tensor.U8) &&
			spoilScale(parts, 0x80)
	},
	"the last scale infinite": func(parts map[string]tensor.Tensor) bool { return spoilScale(parts, 0x7f) },
	"scale of wrong type": func(parts map[string]tensor.Tensor) bool {
		return edit(parts, func(parts map[string]tensor.Tensor, name string, x tensor.Tensor) {
			values := make([]byte, 8*x.Shape.Size())
			for i := range x.Shape.Size() {
				values[8*i+7], values[8*i+6] = 0x3f, 0xf0
			}
			x.DType, x.Data = tensor.F64, values
			parts[name] = x
		}, scaleParts...)
	},
}

var scaleParts = []string{"weight_scale_inv", "weight_scale", "scales"}

// spoilScale sets the last scale to 0, to its negative where with is a sign, or to no finite number. Powers of two are
// neither zero nor negative.
func spoilScale(parts map[string]tensor.Tensor, with byte) bool {
	return edit(parts, func(parts map[string]tensor.Tensor, name string, x tensor.Tensor) {
		size := x.DType.BlockBytes()
		x.Data = append([]byte(nil), x.Data...)
		last := x.Data[len(x.Data)-size:]
		switch {
		case with == 0x7f && (x.DType == tensor.U8 || x.DType == tensor.F8_E8M0):
			last[0] = 0xff
		case with == 0x7f:
			last[0], last[size-1] = 0, with
			if size > 1 {
				last[size-2] = 0xff
			}
		case x.DType == tensor.U8 || x.DType == tensor.F8_E8M0:
			clear(x.Data) // as another spoil
		case with == 0:
			clear(last)
		default:
			last[size-1] |= with
		}
		parts[name] = x
	}, scaleParts...)
}

// change changes a part.
type change func(parts map[string]tensor.Tensor, name string, x tensor.Tensor)

// edit edits the first of the parts that is there.
func edit(parts map[string]tensor.Tensor, change change, endings ...string) bool {
	for _, ending := range endings {
		if x, ok := parts[module+ending]; ok {
			change(parts, module+ending, x)
			return true
		}
	}
	return false
}

func drop(parts map[string]tensor.Tensor, name string, _ tensor.Tensor) { delete(parts, name) }

func turn(parts map[string]tensor.Tensor, name string, x tensor.Tensor) {
	x.Shape = tensor.Shape{x.Shape[1], x.Shape[0]}
	parts[name] = x
}

// TestNegativeScales takes negative scales of types that hold MLX's groups, which an own rule judges while packed.
func TestNegativeScales(t *testing.T) {
	for d, want := range map[tensor.DType]int{tensor.Q4_1: 0, tensor.Q5_1: 0, tensor.Grouped(4, 64, false): 0,
		tensor.Q8_0: 1, tensor.Q4_K: 1} {
		block := make([]byte, d.BlockBytes())
		block[1] = 0xbc
		r := reader{stats: &stats{}, t: tensor.Tensor{DType: d}}
		if r.readScales(block); r.scales.negative.n != want {
			t.Errorf("%v: %d negative scales are faults, want %d", d, r.scales.negative.n, want)
		}
	}
}

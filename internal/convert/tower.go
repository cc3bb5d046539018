package convert

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// tower is a model's part for pictures. On the way to GGUF it becomes a file beside the text's.
type tower struct {
	weights []*graph.Weight // of the source; none where the part is left out
	notes   []string

	keys []gguf.KeyValue // of the file, apart from general ones
	jobs []job           // of the file
	half string          // name of a tensor in F16 whatever the file's type
	lost []settings.Entry
}

// readTower reads the model's tower, if there is one, and notes why it is left out otherwise.
func (c *converter) readTower(m *checkpoint.Checkpoint) {
	if m.Tower == nil || len(m.Tower.Names()) == 0 {
		return
	}
	weights, err := arch.TowerWeights(m.Tower)
	if err == nil && m.Format == checkpoint.HuggingFace {
		err = c.tower.prepare(m.Tower, weights)
	}
	if err != nil {
		c.tower.notes = append(c.tower.notes, fmt.Sprintf("the part for pictures, %d tensors, is left out: %v",
			len(m.Tower.Names()), err))
		return
	}
	c.tower.weights = weights
}

// prepare makes the contents of llama.cpp's file of a folder's tower.
func (f *tower) prepare(t *checkpoint.Tower, weights []*graph.Weight) error {
	var jobs []job
	shapes := map[string]tensor.Shape{}
	for _, w := range weights {
		parts, err := t.PartsGGUF(w)
		if err != nil {
			return err
		}
		for _, p := range parts {
			j := job{in: p.Tensor, out: p.Tensor}
			j.out.Data, j.out.Source, j.out.At = nil, nil, 0
			if p.Habit.ChangesValues() {
				j.value = p.Habit.ToGGUF
			}
			if p.Habit.Permutes() {
				rows := p.Tensor.Shape[0]
				j.from = func(r int) int { return p.Habit.HFRow(r, rows) }
			}
			shapes[p.Name()] = p.Tensor.Shape
			jobs = append(jobs, j)
		}
	}
	keys, lost, notes, err := t.KeysGGUF(shapes)
	if err == nil {
		f.keys, f.jobs, f.half, f.lost, f.notes = keys, jobs, t.Kind.Projector.Half+".weight", lost, notes
	}
	return err
}

// finish returns the tower's file beside dst, of the type to; beside a quantized file, of the folder's type.
func (f *tower) finish(src, dst string, to quantmix.Mix) output {
	if to.Name == "" || to.Most.Quantized() {
		var all []tensor.Tensor
		for _, j := range f.jobs {
			all = append(all, j.in)
		}
		to, _ = quantmix.Find(commonType(all).String())
	}
	for i := range f.jobs {
		switch out := &f.jobs[i].out; {
		case out.Name == f.half:
			out.DType = tensor.F16
		case keepsTowerF32(out.Name, out.Shape, to.Most):
			out.DType = tensor.F32
		default:
			out.DType = to.Most
		}
	}
	keys := append(generalKeys("clip", "mmproj", src, f.jobs),
		gguf.KeyValue{Key: "general.file_type", Value: to.FileType})
	keys = append(append(keys, f.keys...), gguf.KeyValue{Key: "general.quantization_version", Value: uint32(2)})
	return output{filepath.Join(filepath.Dir(dst), "mmproj-"+filepath.Base(dst)), keys, f.jobs}
}

// keepsTowerF32 reports whether a tensor of a tower's file of type to is kept in F32: vectors, places, and without F16
// also the first product and the merger of patches (MmprojModel in llama.cpp's conversion/base.py).
func keepsTowerF32(name string, shape tensor.Shape, to tensor.DType) bool {
	if strings.Contains(name, ".patch_embd.weight") || strings.Contains(name, ".patch_merger.weight") {
		return to != tensor.F16
	}
	return len(shape) <= 1 || strings.Contains(name, ".position_embd.") || strings.HasSuffix(name, "_norm.weight")
}

// towerJobs returns a tower's tensors for a folder of type to.
func (c *converter) towerJobs(m *checkpoint.Checkpoint, to tensor.DType) (jobs []job, err error) {
	for _, w := range c.tower.weights {
		j := job{in: w.Tensor, out: m.Tower.FolderTensor(w)}
		j.out.Data, j.out.Source, j.out.At, j.out.DType = nil, nil, 0, to
		if !w.DType.Quantized() && w.DType != to && to != tensor.F32 && c.Type == "" {
			in, h := w.Tensor, checkpoint.Habit{}
			if w.GGUF == m.Tower.Kind.Projector.Plus {
				h.Plus = 1
				in = vector(in.Name, plusOne(in))
			}
			all, err := isLossless(to, in, h)
			if err != nil {
				return nil, err
			}
			if !all {
				j.out.DType = w.DType
				c.result.Notes = append(c.result.Notes,
					fmt.Sprintf("tensor %s stays %v: %v does not hold its values", j.out.Name, j.out.DType, to))
			}
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// plusOne returns the values of a tensor of F32 with 1 added.
func plusOne(t tensor.Tensor) []float32 {
	v := make([]float32, len(t.Data)/4)
	for i := range v {
		v[i] = value(tensor.F32, t.Data, i) + 1
	}
	return v
}

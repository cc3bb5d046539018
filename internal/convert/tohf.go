package convert

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/karat-run/karat/internal/tensor"
)

// ggufToHF converts a GGUF file into a folder.
func (c *converter) ggufToHF(ctx context.Context, m *checkpoint.Checkpoint, weights []*graph.Weight) error {
	to := c.to.Most
	if c.to.Name == "" {
		to = commonType(m.Tensors())
	}
	jobs, err := c.folderJobs(m, weights, to)
	if err == nil && len(c.tower.weights) > 0 {
		for i := range jobs {
			jobs[i].out.Name = m.Tower.FolderName(jobs[i].out.Name)
		}
		var seeing []job
		seeing, err = c.towerJobs(m, to)
		jobs = append(jobs, seeing...)
	} else {
		m.Tower = nil // left out
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var files map[string][]byte
	var text sync.WaitGroup
	text.Go(func() { // takes as long as the disk takes for a gigabyte
		var err error
		if files, err = m.FolderHF(dtypeNames[to]); err != nil {
			stop(err)
		}
	})
	defer text.Wait()
	defer stop(nil)
	c.count(checkpoint.HuggingFace, jobs)
	if err := sysinfo.CheckDisk(c.dst, c.result.Bytes); err != nil {
		return err
	}
	err = atomicfile.WriteFolder(c.dst, func(dir string) error {
		index, err := c.writeTensors(ctx, dir, m, jobs)
		text.Wait()
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return err
		}
		maps.Copy(files, index)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := writeSynced(filepath.Join(dir, filepath.FromSlash(name)), func(f *os.File) error {
				_, err := f.Write(files[name])
				return err
			}); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return nil
}

// folderJobs converts the tensors of a GGUF file to type to. A tensor of another float type stays if to does not hold
// its values, as routers, in GGUF of type F32.
func (c *converter) folderJobs(m *checkpoint.Checkpoint, weights []*graph.Weight, to tensor.DType) ([]job, error) {
	var jobs []job
	for _, w := range m.JoinLatents(weights) {
		h := m.Habit(w.GGUF)
		if w = m.Weave(weights, w); w == nil {
			continue
		}
		in, err := h.Pad(w.Tensor)
		if err != nil {
			return nil, err
		}
		if len(in.Shape) == 2 {
			in = h.Regroup(h.Transpose(in), true)
		}
		j := job{in: in, out: in}
		if n := len(in.Shape); h.Turned && (n == 3 || n == 2 && in.DType.Quantized()) {
			j.turn, j.out.Shape = true, slices.Clone(in.Shape)
			j.out.Shape[n-1], j.out.Shape[n-2] = in.Shape[n-2], in.Shape[n-1]
		}
		if h.Permutes() {
			rows := w.Shape[0]
			j.from = func(r int) int { return h.GGUFRow(r, rows) }
		}
		if h.ChangesValues() {
			j.value = h.FromGGUF
		}
		j.out.Shape = h.ToFile(checkpoint.HuggingFace, j.out.Shape)
		j.out.Data, j.out.Source, j.out.Name, j.out.DType = nil, nil, m.TensorName(checkpoint.HuggingFace, w.HF), to
		if w.DType != to && !w.DType.Quantized() && to != tensor.F32 && c.Type == "" {
			all, err := isLossless(to, w.Tensor, h)
			if err != nil {
				return nil, err
			}
			if !all {
				if j.out.DType = w.DType; h.Plus != 0 {
					j.out.DType = tensor.F32
				}
				c.result.Notes = append(c.result.Notes,
					fmt.Sprintf("tensor %s stays %v: %v does not hold its values", j.out.Name, j.out.DType, to))
			}
		}
		if h.Joined == "" || len(in.Shape) < 2 {
			jobs = append(jobs, j)
			continue
		}
		for i := range in.Shape[0] {
			part := j
			part.in = in.Matrix(i)
			part.out.Shape, part.out.Name = part.in.Shape, m.TensorName(checkpoint.HuggingFace, h.PartName(w.HF, i))
			jobs = append(jobs, part)
		}
	}
	for key, number := range m.Family.Numbers {
		for i, x := range m.Values.List(key) {
			v, _ := x.(float64)
			in := vector(fmt.Sprintf("model.layers.%d.%s", i, number.End), []float32{float32(v)})
			out := in
			out.Shape, out.DType, out.Data = number.Shape, to, nil
			if all, err := isLossless(to, in, checkpoint.Habit{}); err != nil || !all {
				out.DType = tensor.F32
			}
			jobs = append(jobs, job{in: in, out: out})
		}
	}
	return jobs, nil
}

// writeTensors writes model.safetensors, or several files whose index it returns, and the files of folders inside.
func (c *converter) writeTensors(ctx context.Context, dir string, m *checkpoint.Checkpoint,
	jobs []job) (map[string][]byte, error) {
	var own []job
	inside := map[string][]job{} // by folder
	for _, j := range jobs {
		folder, name := m.DenseFolder(j.out.Name)
		if folder == "" {
			own = append(own, j)
			continue
		}
		j.out.Name = name
		inside[folder] = append(inside[folder], j)
	}
	for _, folder := range slices.Sorted(maps.Keys(inside)) {
		name := filepath.Join(folder, "model.safetensors")
		c.result.Files = append(c.result.Files, filepath.Join(c.dst, name))
		if err := writeSynced(filepath.Join(dir, name),
			func(f *os.File) error { return c.writeShard(ctx, f, inside[folder]) }); err != nil {
			return nil, err
		}
	}
	parts := c.parts(own)
	where := map[string]string{}
	for i, part := range parts {
		name := "model.safetensors"
		if len(parts) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(parts))
		}
		c.result.Files = append(c.result.Files, filepath.Join(c.dst, name))
		for _, j := range part {
			where[j.out.Name] = name
		}
		if err := writeSynced(filepath.Join(dir, name),
			func(f *os.File) error { return c.writeShard(ctx, f, part) }); err != nil {
			return nil, err
		}
	}
	if len(parts) == 1 {
		return nil, nil
	}
	b, err := json.MarshalIndent(map[string]any{"metadata": map[string]any{"total_size": c.total}, "weight_map": where},
		"", "  ")
	return map[string][]byte{"model.safetensors.index.json": append(b, '\n')}, err
}

func (c *converter) writeShard(ctx context.Context, f *os.File, jobs []job) error {
	tensors, of := make([]tensor.Tensor, len(jobs)), make(map[string]job, len(jobs))
	for i, j := range jobs {
		tensors[i], of[j.out.Name] = j.out, j
	}
	w, err := safetensors.NewWriter(f, tensors, map[string]string{"format": "pt"})
	if err != nil {
		return fmt.Errorf("%s: %w", c.dst, err)
	}
	sorted := make([]job, len(jobs))
	for i, t := range w.Tensors {
		sorted[i] = of[t.Name]
	}
	if err := c.stream(ctx, w, sorted); err != nil {
		return err
	}
	return w.Close()
}

// writeSynced makes a new file, and its folder inside the model's, and returns when the file is on the disk.
func writeSynced(path string, write func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

package experiment

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/npy"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// ReadRows reads rows of numbers from a NumPy file or from a tensor of a safetensors file, of whose names name is one;
// "" is the only one. An array of one dimension is one row. The last dimensions of one with more, as of heads, are a
// row's, if it has more than two.
func ReadRows(path, name string) ([][]float32, error) {
	if strings.EqualFold(filepath.Ext(path), ".npy") {
		if name != "" {
			return nil, fmt.Errorf("%s: a NumPy file has one array, not %q", path, name)
		}
		return readNumPy(path)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	i := slices.IndexFunc(f.Tensors, func(t tensor.Tensor) bool { return t.Name == name })
	if name == "" && len(f.Tensors) == 1 {
		i = 0
	}
	if i < 0 {
		var names []string
		for _, t := range f.Tensors[:min(4, len(f.Tensors))] {
			names = append(names, t.Name)
		}
		return nil, fmt.Errorf("%s: no tensor is named %q: it has %d, such as %s", path, name, len(f.Tensors),
			strings.Join(names, ", "))
	}
	t := f.Tensors[i]
	all := make([]float32, t.Shape.Size())
	err = mmap.Guard(func() error { return floats(all, t.DType, t.Data) })
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", path, t.Name, err)
	}
	return split(path, all, t.Shape)
}

func floats(to []float32, d tensor.DType, data []byte) error {
	if d == tensor.F64 {
		for i := range to {
			to[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:])))
		}
		return nil
	}
	if d != tensor.F32 && d != tensor.F16 && d != tensor.BF16 {
		return fmt.Errorf("elements of type %v, want floating-point numbers", d)
	}
	return quant.Dequantize(d, to, data)
}

func readNumPy(path string) ([][]float32, error) {
	f, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows [][]float32
	err = mmap.Guard(func() error {
		a, err := npy.Parse(f.Data())
		if err != nil {
			return err
		}
		kinds := map[string]tensor.DType{"f2": tensor.F16, "f4": tensor.F32, "f8": tensor.F64}
		d, ok := kinds[a.Type]
		if !ok {
			return fmt.Errorf("elements of type %s, want f2, f4 or f8", a.Type)
		}
		n := 1
		for _, s := range a.Shape {
			n *= s // which Parse has checked against the data
		}
		all := make([]float32, n)
		if err := floats(all, d, a.Data); err != nil {
			return err
		}
		rows, err = split(path, all, a.Shape)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

func split(path string, all []float32, shape []int) (rows [][]float32, err error) {
	n := 1
	if len(shape) > 1 {
		n = shape[0]
	}
	if len(all) == 0 || n == 0 {
		return nil, fmt.Errorf("%s: an array of shape %v has no rows", path, shape)
	}
	for size := len(all) / n; len(all) > 0; all = all[size:] {
		rows = append(rows, all[:size:size])
	}
	return rows, nil
}

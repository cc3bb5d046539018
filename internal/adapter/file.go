package adapter

import (
	"errors"
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/tensor"
)

// File is an open adapter, not yet bound to a model. Its tensors are mapped memory.
type File struct {
	path   string
	format checkpoint.Format
	arch   string // architecture of the base model; "" where the format has none
	pairs  []pair // in the order of the file
	scale  func(module string, rank int) (float64, error)
	close  []io.Closer
}

// pair holds the matrices of a module under the format's name without .weight.
type pair struct {
	module string
	a, b   tensor.Tensor // [rank, in], [out, rank]
}

// Close unmaps the files. Adapters made by Bind stay valid.
func (f *File) Close() error {
	var errs []error
	for _, c := range f.close {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// joinPairs joins the halves of files' tensors. Function half returns a tensor's module and whether the tensor is A.
func joinPairs(tensors []tensor.Tensor, half func(name string) (module string, isA bool, err error)) ([]pair, error) {
	list, at := []pair{}, map[string]int{}
	var errs []error
	for _, t := range tensors {
		module, isA, err := half(t.Name)
		if err == nil && !t.DType.Quantized() && t.DType != tensor.F32 && t.DType != tensor.F16 &&
			t.DType != tensor.BF16 {
			err = fmt.Errorf("type %v is not supported", t.DType)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("tensor %s: %w", t.Name, err))
			continue
		}
		i, ok := at[module]
		if !ok {
			i = len(list)
			at[module], list = i, append(list, pair{module: module})
		}
		x := &list[i].b
		if isA {
			x = &list[i].a
		}
		if x.Name != "" {
			errs = append(errs, fmt.Errorf("tensor %s: %s is the same half of a pair", t.Name, x.Name))
		}
		*x = t
	}
	for _, p := range list {
		if p.a.Name == "" || p.b.Name == "" {
			errs = append(errs, fmt.Errorf("tensor %s: the other half of the pair is missing", p.a.Name+p.b.Name))
		}
	}
	return list, joinErrors(errs)
}

package experiment

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/npy"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// ReadRows reads rows of numbers from a NumPy file or from a tensor of a safetensors file, by name; "" is the
// name of an only tensor. An array of one dimension is a row. In an array of more than two, as of heads, all
// dimensions behind the first make a row.
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
	var rows [][]float32
	err = mmap.Guard(func() (err error) {
		rows, err = rowsOf(t.DType, t.Shape, t.Data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", path, t.Name, err)
	}
	return rows, nil
}

func readNumPy(path string) (rows [][]float32, err error) {
	f, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = mmap.Guard(func() error {
		a, err := npy.Parse(f.Data())
		if err != nil {
			return err
		}
		d, ok := map[string]tensor.DType{"f2": tensor.F16, "f4": tensor.F32, "f8": tensor.F64}[a.Type]
		if !ok {
			return fmt.Errorf("elements of type %s, want f2, f4 or f8", a.Type)
		}
		rows, err = rowsOf(d, a.Shape, a.Data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}

// rowsOf returns the rows of an array, whose shape was checked against its data.
func rowsOf(d tensor.DType, shape []int, data []byte) (rows [][]float32, err error) {
	if !d.Float() {
		return nil, fmt.Errorf("elements of type %v, want floating-point numbers", d)
	}
	all, n := make([]float32, tensor.Shape(shape).Size()), 1
	if len(shape) > 1 {
		n = shape[0]
	}
	if len(all) == 0 || n == 0 {
		return nil, fmt.Errorf("an array of shape %v has no rows", shape)
	}
	if err := quant.Dequantize(d, all, data); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(all, len(all)/n)), nil
}

// States are the values of nodes for some prompts: of each a row.
type States struct {
	Nodes  []string
	Layers []int // of each node; -1 outside the layers
	Sizes  []int // elements of a row
	Count  int   // of prompts
	Rows   [][]float32
	Notes  map[string]string // metadata of their file, except NumPy's

	texts             []string // of each prompt
	positions, tokens []int32  // of the rows; -1 for a mean over several
}

// Extract computes prompts, and pools the values of a place's nodes over positions of each: their mean, in
// float64; for a single position, the value itself. tell is called after each prompt.
func Extract(ctx context.Context, m *karat.Model, prompts []*Prompt, place Place, at Positions,
	tell func(done, total int)) (*States, error) {
	sites, err := place.find(m.Nodes())
	if err != nil {
		return nil, err
	}
	s := &States{Count: len(prompts), Rows: make([][]float32, len(sites))}
	for _, x := range sites {
		s.Nodes, s.Layers, s.Sizes = append(s.Nodes, x.node.Name), append(s.Layers, x.node.Layer),
			append(s.Sizes, x.size)
	}
	for i, p := range prompts {
		values, err := Capture(ctx, m, p, place, at)
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		for k, x := range sites {
			row, err := x.part(meanOf(values[x.node.Name]))
			if err != nil {
				return nil, err
			}
			s.Rows[k] = append(s.Rows[k], row...)
		}
		on, _, err := at.Of(p)
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		position, token := int32(-1), int32(-1)
		if len(on) == 1 {
			position, token = int32(on[0]), int32(p.IDs[on[0]])
		}
		s.texts, s.positions, s.tokens = append(s.texts, p.Text), append(s.positions, position), append(s.tokens, token)
		tell(i+1, len(prompts))
	}
	return s, nil
}

func littleEndian(x []float32) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, x) // for all numbers
	return b
}

// WriteSafetensors writes a tensor [prompts, elements] for each node.
func (s *States) WriteSafetensors(w io.Writer) error {
	var all []tensor.Tensor
	for i, name := range s.Nodes {
		all = append(all, tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{s.Count, s.Sizes[i]},
			Data: littleEndian(s.Rows[i])})
	}
	return safetensors.Write(w, all, s.Notes)
}

// row is a line of WriteJSONLines.
type row struct {
	Prompt   int       `json:"prompt"`
	Text     string    `json:"text"`
	Position int32     `json:"position"` // -1 of a mean over several positions, and so is Token
	Token    int32     `json:"token"`
	Node     string    `json:"node"`
	Layer    int       `json:"layer"`
	Values   []float32 `json:"values"`
}

// WriteJSONLines writes a JSON object for each prompt and node.
func (s *States) WriteJSONLines(w io.Writer) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	for p := range s.Count {
		for i, n := range s.Sizes {
			r := row{p, s.texts[p], s.positions[p], s.tokens[p], s.Nodes[i], s.Layers[i], s.Rows[i][p*n:][:n]}
			if err := e.Encode(r); err != nil { // a value outside of JSON's numbers
				return fmt.Errorf("prompt %d: node %s: %w: write safetensors", p, s.Nodes[i], err)
			}
		}
	}
	return b.Flush()
}

// WriteNumPy writes an array [prompts, nodes, elements], or [prompts, elements] of a single node. All must
// have as many elements.
func (s *States) WriteNumPy(w io.Writer) error {
	size := s.Sizes[0]
	var all []float32
	for i, n := range s.Sizes {
		if n != size {
			return fmt.Errorf("one array of nodes with %d (%s) and %d (%s) elements: write safetensors, or fewer nodes",
				size, s.Nodes[0], n, s.Nodes[i])
		}
	}
	for p := range s.Count {
		for i := range s.Nodes {
			all = append(all, s.Rows[i][p*size:][:size]...)
		}
	}
	a := &npy.Array{Type: "f4", Shape: []int{s.Count, len(s.Nodes), size}, Data: littleEndian(all)}
	if len(s.Nodes) == 1 {
		a.Shape = []int{s.Count, size}
	}
	b := bufio.NewWriter(w)
	if err := npy.Write(b, a); err != nil {
		return err
	}
	return b.Flush()
}

package backend

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/graph"
)

// Pair belongs to a Linear with a weight [out, in], and adds Scale·B(A x) to its value. (Hu et al. 2021,
// arXiv:2106.09685)
type Pair struct {
	Rank  int
	A     []float32 // [Rank, in]
	B     []float32 // [out, Rank]
	Scale float64   // alpha/Rank for most
}

// Adapter is a low-rank adapter (LoRA) of a graph.
type Adapter struct {
	Name  string
	Label string                  // Name, without the folder where Name is a path
	Pairs map[*graph.Weight]*Pair // by the weights of Linears
	Hash  [sha256.Size]byte       // of the whole adapter
}

// Bytes returns the memory of a's pairs.
func (a *Adapter) Bytes() (n int64) {
	for _, p := range a.Pairs {
		n += 4 * int64(len(p.A)+len(p.B))
	}
	return n
}

// Part is an adapter and the factor of its addends.
type Part struct {
	*Adapter
	By float64
}

// Blend is the adapters of a row, added in their order. Rows with equal adapters share the pointer; nil is none. A
// Blend is not to be changed.
type Blend struct {
	Parts []Part
	ID    string // of the computation: two of the same ID give the same bits
}

// NewBlend returns the blend of the adapters with a factor other than 0; nil if there are none.
func NewBlend(parts ...Part) (*Blend, error) {
	b, h := &Blend{}, sha256.New()
	for _, p := range parts {
		finite := math.Abs(p.By) <= math.MaxFloat32
		for _, x := range p.Pairs { // their products are float32
			finite = finite && math.Abs(p.By*x.Scale) <= math.MaxFloat32
		}
		if !finite {
			return nil, fmt.Errorf("adapter %s by a factor of %v", p.Name, p.By)
		}
		if p.By != 0 {
			b.Parts = append(b.Parts, p)
			h.Write(binary.LittleEndian.AppendUint64(p.Hash[:], math.Float64bits(p.By)))
		}
	}
	if len(b.Parts) == 0 {
		return nil, nil
	}
	b.ID = string(h.Sum(nil))
	return b, nil
}

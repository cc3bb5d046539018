package backend

import (
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// Portable is a Cache whose contents can be carried to another. Its methods belong between steps. Data is
// little endian: of positions from to to of a store, which the sequence holds, [positions, heads, dim] keys, then
// [positions, heads, values] values; of a state float32 numbers.
type Portable interface {
	Element() int // bytes of an element of a store
	ReadStore(s *graph.KV, seq *kv.Sequence, from, to int) ([]byte, error)
	WriteStore(s *graph.KV, seq *kv.Sequence, from, to int, data []byte) error
	ReadState(s *graph.State, seq *kv.Sequence) ([]byte, error)
	WriteState(s *graph.State, seq *kv.Sequence, data []byte) error
}

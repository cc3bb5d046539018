// Package synth writes GGUF files of real shapes and random weights, which load
// and run like trained ones, so that speed can be measured without a download.
//
// Metadata and names are those of llama.cpp's converters, types those of a mix, and
// blocks of random integers are made directly, with scales of weights near 0.02, so that logits stay finite. The
// text of such a model means nothing.
//
// Files in reading order: synth.go, vocab.go, plan.go (tensors of a shape), block.go.
package synth

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// Options say what to write. Arch, Shape and Type are required.
type Options struct {
	Arch, Shape string                // of Shapes
	Type        string                // of Types
	Seed        uint64                // equal seeds give equal bytes
	Vocab       *gguf.File            // whose tokenizer is taken; nil makes one
	Progress    func(done, all int64) // bytes of tensors so far; may be nil
}

// pieceBlocks is how many blocks are made at a time: memory stays below 1 MiB.
const pieceBlocks = 2048

// Write writes the file to w. It ends early with ctx's error.
func Write(ctx context.Context, w io.Writer, o Options) error {
	n := 0
	if o.Vocab != nil {
		tokens, _ := o.Vocab.Metadata.Lookup("tokenizer.ggml.tokens")
		if n = tokens.Len(); n == 0 {
			return errors.New("vocabulary: the file has no tokenizer.ggml.tokens")
		}
	}
	p, err := newPlan(o, n)
	if err != nil {
		return err
	}
	tensors := p.tensors
	g, err := gguf.NewWriter(w, append(p.metadata, vocabulary(p, o.Vocab)...), tensors)
	if err != nil {
		return err
	}
	f := filler{ctx: ctx, w: g, progress: o.Progress, random: source(o.Seed), factors: p.factors}
	for _, t := range tensors {
		f.all += size(t)
	}
	for _, t := range tensors {
		if err := f.tensor(t); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return g.Close()
}

// Header returns the metadata and the tensors of the file that Write writes, without the tokenizer's metadata.
func Header(o Options) (metadata []gguf.KeyValue, tensors []tensor.Tensor, err error) {
	p, err := newPlan(o, 0)
	if err != nil {
		return nil, nil, err
	}
	return p.metadata, p.tensors, nil
}

// Size returns the bytes of the tensors of the file that Write writes.
func Size(o Options) (total int64, err error) {
	_, tensors, err := Header(o)
	for _, t := range tensors {
		total += size(t)
	}
	return total, err
}

// Check returns an error for an unknown name in o.
func Check(o Options) error {
	names := Shapes(o.Arch)
	if names == nil {
		return fmt.Errorf("architecture %q, want %v", o.Arch, Archs())
	}
	if !slices.Contains(names, o.Shape) {
		return fmt.Errorf("shape %q of %s, want %v", o.Shape, o.Arch, names)
	}
	if !slices.Contains(types, o.Type) {
		return fmt.Errorf("type %q, want %v", o.Type, Types())
	}
	return nil
}

func source(seed uint64) *rand.ChaCha8 {
	var key [32]byte
	copy(key[:], "karat synth")
	binary.LittleEndian.PutUint64(key[24:], seed)
	return rand.NewChaCha8(key)
}

// size is the bytes of t, whose shape is one of this package's.
func size(t tensor.Tensor) int64 {
	return int64(t.Shape.Size()/t.DType.BlockSize()) * int64(t.DType.BlockBytes())
}

// filler makes the data of tensors.
type filler struct {
	ctx       context.Context
	w         io.Writer
	random    *rand.ChaCha8
	progress  func(done, all int64)
	done, all int64
	piece     []byte
	factors   map[string][]float32
}

func (f *filler) tensor(t tensor.Tensor) error {
	block := t.DType.BlockBytes()
	for left := size(t); left > 0; {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		n := int(min(left, int64(pieceBlocks*block)))
		if cap(f.piece) < n {
			f.piece = make([]byte, n)
		}
		p := f.piece[:n]
		f.fill(p, t)
		if _, err := f.w.Write(p); err != nil {
			return err
		}
		left -= int64(n)
		f.done += int64(n)
		if f.progress != nil {
			f.progress(f.done, f.all)
		}
	}
	return nil
}

// fill makes whole blocks. Vectors of F32 are ones, or small where they are biases; matrices of F32 differ from value
// to value, as trained ones do.
func (f *filler) fill(p []byte, t tensor.Tensor) {
	d := t.DType
	if d == tensor.F32 && matrix(t) {
		f.vary(p, t)
		return
	}
	if d == tensor.F32 {
		for i := range len(p) / 4 {
			x := float32(1)
			switch {
			case f.factors[t.Name] != nil: // one piece
				x = f.factors[t.Name][i]
			case strings.HasSuffix(t.Name, ".bias"):
				x = 1. / 128
			case strings.HasSuffix(t.Name, ".ssm_a"):
				x = -1 // a state that fades
			}
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(x))
		}
		return
	}
	f.random.Read(p) // has no error
	block := d.BlockBytes()
	for ; len(p) > 0; p = p[block:] {
		scaleBlock(p[:block], d)
	}
}

// matrix reports whether t has rows of several values.
func matrix(t tensor.Tensor) bool {
	s := t.Shape.Trimmed()
	return len(s) > 1 && s.Last() > 1 && s[0] > 1
}

// vary makes values of F32 near 1 for norms, near 0 for biases, and from -1/2 to 1/2 for convolutions.
func (f *filler) vary(p []byte, t tensor.Tensor) {
	f.random.Read(p) // has no error
	middle, width := 0., 1.
	switch {
	case strings.HasSuffix(t.Name, "norm.weight"):
		middle, width = 1, 1./8
	case strings.HasSuffix(t.Name, ".bias"):
		width = 1. / 32
	case strings.HasSuffix(t.Name, ".ssm_a"):
		middle = -1 // a state that fades
	}
	for ; len(p) > 0; p = p[4:] {
		x := float64(binary.LittleEndian.Uint32(p))/(1<<32) - 0.5
		binary.LittleEndian.PutUint32(p, math.Float32bits(float32(middle+float64(width*x))))
	}
}

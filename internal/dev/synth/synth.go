// Package synth writes GGUF files of real shapes and random weights, which load
// and run like trained ones, so that speed can be measured without a download.
//
// Metadata and names are those of llama.cpp's converters, types those of a mix, and
// blocks of random integers are made directly, with scales of weights near 0.02, so that logits stay finite. The
// text of such a model means nothing.
package synth

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/quantmix"
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

// frequencies is the tensor of the factors that pairs' angles are divided by.
const frequencies = "rope_freqs.weight"

// pieceBlocks is how many blocks are made at a time: memory stays below 1 MiB.
const pieceBlocks = 2048

// Write writes the file to w. It ends early with ctx's error.
func Write(ctx context.Context, w io.Writer, o Options) error {
	metadata, tensors, err := Header(o)
	if err != nil {
		return err
	}
	s, _ := find(o.Arch, o.Shape) // Header found it
	vocab, err := vocabulary(s, o.Vocab)
	if err != nil {
		return err
	}
	g, err := gguf.NewWriter(w, append(metadata, vocab...), tensors)
	if err != nil {
		return err
	}
	f := filler{ctx: ctx, w: g, progress: o.Progress, random: source(o.Seed), partial: s.FullDim > 0}
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

// Header is what a file has before its data, but for the tokenizer's metadata.
func Header(o Options) (metadata []gguf.KeyValue, tensors []tensor.Tensor, err error) {
	if err := Check(o); err != nil {
		return nil, nil, err
	}
	s, _ := find(o.Arch, o.Shape)
	m, _ := quantmix.Find(o.Type)
	if tensors, err = s.tensors(m); err != nil {
		return nil, nil, err
	}
	return s.metadata(m.FileType), tensors, nil
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
	if _, err := find(o.Arch, o.Shape); err != nil {
		return err
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
	partial   bool // a part of each head's pairs turns, in full layers
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

// fill makes whole blocks. Tensors of F32 are norms and scales, and are ones, or biases, and are small. Matrices
// differ from value to value, as trained ones do; but
// where full layers have a head size of their own, rope_freqs, which is one piece, turns a quarter of the pairs, and
// divides the others' angles by 1e30, as the published files do.
func (f *filler) fill(p []byte, t tensor.Tensor) {
	d := t.DType
	if d == tensor.F32 && matrix(t) {
		f.vary(p, t)
		return
	}
	if d == tensor.F32 {
		turned := len(p) / 4
		if t.Name == frequencies && f.partial {
			turned /= 4
		}
		for i := range len(p) / 4 {
			x := float32(1)
			if strings.HasSuffix(t.Name, ".bias") {
				x = 1. / 128
			} else if strings.HasSuffix(t.Name, ".ssm_a") {
				x = -1 // a state that fades
			} else if i >= turned {
				x = 1e30
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
	n := len(t.Shape)
	return n > 1 && t.Shape[n-1] > 1 && t.Shape[0] > 1
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
	}
	for ; len(p) > 0; p = p[4:] {
		x := float64(binary.LittleEndian.Uint32(p))/(1<<32) - 0.5
		binary.LittleEndian.PutUint32(p, math.Float32bits(float32(middle+float64(width*x))))
	}
}

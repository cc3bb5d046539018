package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Hashes identify the files behind a number. Each is a SHA-256 in hexadecimal digits.
type Hashes struct {
	Weights   string `json:"weights"`             // names, types, shapes and bytes of all tensors
	Tokenizer string `json:"tokenizer,omitempty"` // all tokens with their kinds; "" is none
	Template  string `json:"template,omitempty"`  // the chat template's text; "" is none
	Program   string `json:"program,omitempty"`   // the executable file; "" where there is none
}

// HashesOf reads all of c's tensors. t may be nil. HashesOf ends with ctx, between two tensors.
func HashesOf(ctx context.Context, c *checkpoint.Checkpoint, t *tokenizer.Tokenizer) (x Hashes, err error) {
	weights := sha256.New()
	for _, w := range c.Tensors() {
		if err := ctx.Err(); err != nil {
			return x, err
		}
		if err := HashTensor(weights, &w); err != nil {
			return x, fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	x.Weights = hex.EncodeToString(weights.Sum(nil))
	if t != nil {
		var tokens bytes.Buffer
		for id := range t.VocabSize() {
			text, kind := t.Token(id)
			fmt.Fprintf(&tokens, "%q %d\n", text, kind)
		}
		x.Tokenizer = sum(tokens.Bytes())
	}
	if text := c.Template(); text != "" {
		x.Template = sum([]byte(text))
	}
	return x, nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// HashTensor adds a tensor's name, type, shape and bytes to h.
func HashTensor(h hash.Hash, t *tensor.Tensor) error {
	fmt.Fprintf(h, "%q %v %v\n", t.Name, t.DType, t.Shape)
	if t.Source != nil {
		_, err := io.Copy(h, io.NewSectionReader(t.Source, t.At, int64(t.Size())))
		return err
	}
	return mmap.Guard(func() error {
		h.Write(t.Data)
		return nil
	})
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tokenizer"
)

// hashesOf returns the hashes of a model's files and of this program.
func hashesOf(ctx context.Context, c *checkpoint.Checkpoint, t *tokenizer.Tokenizer) (model.Hashes, error) {
	x, err := model.HashesOf(ctx, c, t)
	if err == nil {
		x.Program = programHash()
	}
	return x, err
}

// programHash returns the SHA-256 of the executable, "" if unreadable.
func programHash() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// hashesAt returns hashesOf for the model at path. A model without a tokenizer has no hash of a tokenizer.
func hashesAt(ctx context.Context, path string) (*model.Hashes, error) {
	c, err := openCheckpoint(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	t, err := c.Tokenizer()
	if err != nil && !errors.Is(err, tokenizer.ErrNone) {
		return nil, err
	}
	x, err := hashesOf(ctx, c, t)
	return &x, err
}

// conversionHashes identify the source, the result and the program of a conversion. Files of an unknown architecture,
// only copied, have no hashes.
type conversionHashes struct {
	Source *model.Hashes `json:"source_hashes,omitempty"`
	Output *model.Hashes `json:"hashes,omitempty"`
}

// compute reads both models.
func (h *conversionHashes) compute(ctx context.Context, source, output string) (err error) {
	h.Source, err = hashesAt(ctx, source)
	if errors.Is(err, checkpoint.ErrUnsupported) {
		h.Source = nil
		return nil
	}
	if err == nil {
		h.Source.Program = "" // the program belongs to the result
		h.Output, err = hashesAt(ctx, output)
	}
	return err
}

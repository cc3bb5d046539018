package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tokenizer"
)

// hashesOf are those of a model's files and of this program.
func hashesOf(ctx context.Context, c *checkpoint.Checkpoint, t *tokenizer.Tokenizer) (model.Hashes, error) {
	x, err := model.HashesOf(ctx, c, t)
	if err == nil {
		x.Program = programHash()
	}
	return x, err
}

// programHash is the SHA-256 of the executable, "" where it cannot be read.
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

// benchHashes are hashesOf the model at path.
func benchHashes(ctx context.Context, path string) (*model.Hashes, error) {
	c, err := openCheckpoint(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	t, err := c.Tokenizer()
	if err != nil {
		return nil, err
	}
	x, err := hashesOf(ctx, c, t)
	return &x, err
}

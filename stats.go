package karat

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/model"
)

// Stats are counts of a model's work.
type Stats struct {
	Queued  int   // requests that wait for a place, or for room
	Work    int   // requests with tokens to compute, waiting or running, but for the ones that choose a token
	Running int   // requests that have one
	Steps   int   // begun so far
	Ended   int   // prompts and tokens that were computed, or given up, so far
	Used    int64 // bytes of keys and values of requests
	Kept    int64 // bytes of pages that requests have left for others to find; they go where there is need of room
	Budget  int64 // most of both; 0 if nobody knows
	Longest int   // tokens that a sequence may have: fewer than Info.Context where the budget has room for fewer

	PageSize, Pages int // tokens that keys and values are kept of together, and how many such pages Budget has room for; 0 if nobody knows
}

// Stats says what the model does now.
func (m *Model) Stats() Stats { return Stats(m.opened.Engine.Stats()) }

// Fingerprint is a hash of all that an answer's bits depend on beside the request: weights, graph,
// vocabulary, chat template, adapters and numerics. It reads the whole file.
func (m *Model) Fingerprint(ctx context.Context) (string, error) {
	if ctx == nil {
		return "", fmt.Errorf("karat: %w", errNilContext)
	}
	h := sha256.New()
	var printed bytes.Buffer
	if err := graph.Print(&printed, m.opened.Graph); err != nil {
		return "", err
	}
	t := m.opened.Tokenizer
	fmt.Fprintf(h, "karat\n%+v\n%d %q\n%d %d\n", m.opened.Numerics, len(m.Info().Template), m.Info().Template, printed.Len(), t.VocabSize())
	h.Write(printed.Bytes())
	for id := range t.VocabSize() {
		text, kind := t.Token(id)
		fmt.Fprintf(h, "%q %d\n", text, kind)
	}
	if m.opened.Blend != nil {
		fmt.Fprintf(h, "%q\n", m.opened.Blend.ID)
	}
	for _, t := range m.opened.Checkpoint.Tensors() {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if err := model.HashTensor(h, &t); err != nil {
			return "", fmt.Errorf("karat: %s: %w", t.Name, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

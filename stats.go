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
	Queued      int   // requests waiting for a place, or for room
	Busy        int   // requests with tokens to compute, queued or running; not a request choosing its next token
	Running     int   // requests with a place
	Steps       int   // steps begun so far
	Finished    int   // prompts and tokens computed, or given up, so far
	KVUsed      int64 // bytes of the KV cache in use by requests
	KVCached    int64 // bytes of the KV cache with earlier prompts, given up for requests
	KVBudget    int64 // maximum of KVUsed and KVCached together; 0 if unknown
	MaxSequence int   // maximum tokens of a sequence inside KVBudget, at most Info.Context

	// PageSize is the number of tokens of a page of the KV cache, Pages the number of pages in KVBudget. Both are
	// 0 if unknown.
	PageSize, Pages int
}

// Stats returns the model's load.
func (m *Model) Stats() Stats { return Stats(m.opened.Engine.Stats()) }

// Fingerprint returns a hash of everything behind an answer's bits, the request apart: weights, graph, vocabulary, chat
// template, adapters and numerics. Fingerprint reads the whole file.
func (m *Model) Fingerprint(ctx context.Context) (string, error) {
	if ctx == nil {
		return "", errNilContext
	}
	h := sha256.New()
	var printed bytes.Buffer
	if err := graph.Print(&printed, m.opened.Graph); err != nil {
		return "", err
	}
	t := m.opened.Tokenizer
	fmt.Fprintf(h, "karat\n%+v\n%d %q\n%d %d\n", m.opened.Numerics, len(m.Info().Template), m.Info().Template,
		printed.Len(), t.VocabSize())
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
			return "", fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

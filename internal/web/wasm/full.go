//go:build js && full

package main

import (
	"bytes"
	"errors"
	"syscall/js"

	"github.com/karat-run/karat"
)

// moreOf returns the functions of a model in the npm package alone: the page's program has no room for more.
func moreOf(m *model) map[string]func([]js.Value) (any, error) {
	return map[string]func([]js.Value) (any, error){"embed": m.embed, "verify": m.verify}
}

// receipt is an answer's receipt, if one is wanted.
func receipt(m *model, wanted bool) (r *karat.Receipt, text func() (string, error), err error) {
	if !wanted {
		return nil, nil, nil
	}
	r = m.m.NewReceipt()
	return r, func() (string, error) {
		text, err := r.Bytes()
		return string(text), err
	}, nil
}

// embed makes a vector of each text.
func (m *model) embed(args []js.Value) (any, error) {
	var texts []string
	var o struct {
		Pooling    karat.Pooling `json:"pooling"`
		Normalize  *bool         `json:"normalize"`
		Dimensions int           `json:"dimensions"`
		Prompt     string        `json:"prompt"`
	}
	if err := errors.Join(read(argument(args, 0), "embed", &texts), read(argument(args, 1), "embed", &o)); err != nil {
		return nil, err
	}
	ctx, end := until(argument(args, 1))
	defer end()
	vectors, err := m.m.Embed(ctx, texts, karat.EmbedOptions{Pooling: o.Pooling, Normalize: o.Normalize,
		Dimensions: o.Dimensions, Prompt: o.Prompt})
	if err != nil {
		return nil, err
	}
	tokens := 0
	for _, text := range texts {
		ids, err := m.m.Tokenize(ctx, text, karat.TokenizeOptions{})
		if err != nil {
			return nil, err
		}
		tokens += len(ids)
	}
	return map[string]any{"vectors": vectors, "tokens": tokens}, nil
}

// verify computes the answer of a receipt again.
func (m *model) verify(args []js.Value) (any, error) {
	r, err := karat.ReadReceipt(bytes.NewReader(bytesOf(argument(args, 0))))
	if err != nil {
		return nil, err
	}
	ctx, end := until(argument(args, 1))
	defer end()
	progress := function(argument(args, 1), "onProgress")
	v, err := m.m.Verify(ctx, r, karat.VerifyOptions{Progress: func(done, total int) { progress(done, total) }})
	if err != nil {
		return nil, err
	}
	return struct {
		*karat.Verdict
		Verified bool `json:"verified"`
	}{v, v.Verified()}, nil
}

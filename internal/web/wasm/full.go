//go:build js && full

package main

import (
	"errors"
	"syscall/js"

	"github.com/karat-run/karat"
)

// moreOf returns the functions of a model in the npm package alone: the page's program has no room for more.
func moreOf(m *model) map[string]func([]js.Value) (any, error) {
	return map[string]func([]js.Value) (any, error){"embed": m.embed}
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

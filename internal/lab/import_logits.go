//go:build !karat_wasmsimd

package lab

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/logprob"
)

func importLogits(path string) (*Import, error) {
	f, err := logprob.Open(path)
	if err != nil {
		return nil, err
	}
	if f.Chunks > maxPrompts || f.Context > maxIDs/f.Chunks {
		err := fmt.Errorf("%d chunks of %d tokens; at most %d chunks and %d tokens are read", f.Chunks, f.Context,
			maxPrompts, maxIDs)
		return nil, errors.Join(err, f.Close())
	}
	return &Import{Form: FormLogits, count: f.Chunks, file: f,
		prompt: func(i int) (*Prompt, error) { return logitsPrompt(f, i), nil },
		Numerics: json.RawMessage(`{"engine":"llama-perplexity","logits":"log-probabilities in 16 bits, ` +
			`none less than 16 nats below the largest"}`),
		Notes: []string{"the logits are logarithms of probabilities in 16 bits; those 16 nats and more below " +
			"the largest are all the same"}}, nil
}

// logitsPrompt returns chunk i without its last token, whose logits the file lacks.
func logitsPrompt(f *logprob.File, i int) *Prompt {
	p := &Prompt{Index: i, IDs: f.IDs(i)[:f.Context-1], PositionsKept: f.Rows()}
	all, row := make([]float32, 0, f.Rows()*f.Vocab), make([]float32, f.Vocab)
	for j := range f.Rows() {
		f.Row(row, i, j)
		all = append(all, row...)
	}
	p.Logits = newF32(all, f.Rows(), f.Vocab)
	return p
}

// Begin sets the first id of each prompt to bos, as llama-perplexity does where a model wants BOS.
func (i *Import) Begin(bos int32) {
	prompt := i.prompt
	i.prompt = func(n int) (*Prompt, error) {
		p, err := prompt(n)
		if err == nil && len(p.IDs) > 0 {
			p.IDs[0] = bos
		}
		return p, err
	}
}

// Package karatchromem makes the vectors of chromem-go's collections by a model of Karat, in the program itself.
package karatchromem

import (
	"context"

	"github.com/karat-run/karat"
	"github.com/philippgille/chromem-go"
)

// New returns a collection's function over m. The caller closes m. A model with a prompt for queries needs a second
// function, whose vectors QueryEmbedding takes.
func New(m *karat.Model, o karat.EmbedOptions) chromem.EmbeddingFunc {
	return func(ctx context.Context, text string) ([]float32, error) {
		vectors, err := m.Embed(ctx, []string{text}, o)
		if err != nil {
			return nil, err
		}
		return vectors[0], nil
	}
}

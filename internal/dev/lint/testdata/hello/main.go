// Command hello is the README's program.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/karat-run/karat"
)

func main() {
	ctx := context.Background()
	m, err := karat.Load(ctx, "model.gguf", karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	for token, err := range m.Generate(ctx, "The color of the sky is", karat.GenerateOptions{MaxTokens: 32}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
}

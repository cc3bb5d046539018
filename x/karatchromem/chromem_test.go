package karatchromem_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/talker"
	"github.com/karat-run/karat/x/karatchromem"
	"github.com/philippgille/chromem-go"
)

func Example() {
	ctx := context.Background()
	m, err := karat.Load(ctx, talker.Demo(), karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	vectors := karatchromem.New(m, karat.EmbedOptions{Pooling: karat.PoolMean}) // a model made for vectors needs no Pooling
	facts, err := chromem.NewDB().CreateCollection("facts", nil, vectors)
	if err != nil {
		log.Fatal(err)
	}
	if err := facts.AddDocuments(ctx, []chromem.Document{{ID: "capital", Content: "The capital of Egypt is Cairo."},
		{ID: "count", Content: "one, two, three, four"}}, 2); err != nil {
		log.Fatal(err)
	}
	found, err := facts.Query(ctx, "What is the capital of Egypt?", 1, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found[0].ID)
	// Output: capital
}

// TestErrors: a text without a vector and a cancelled context are errors of the collection.
func TestErrors(t *testing.T) {
	m, err := karat.Load(t.Context(), talker.Demo(), karat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, f := range []chromem.EmbeddingFunc{karatchromem.New(m, karat.EmbedOptions{}), karatchromem.New(m, karat.EmbedOptions{Pooling: karat.PoolMean})} {
		c, err := chromem.NewDB().CreateCollection("a", nil, f)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddDocument(ctx, chromem.Document{ID: "1", Content: "text"}); err == nil || c.Count() != 0 {
			t.Error("a document without a vector is taken")
		}
	}
}

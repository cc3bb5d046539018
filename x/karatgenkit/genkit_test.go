package karatgenkit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"
	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/talker"
	"github.com/karat-run/karat/x/karatgenkit"
)

func Example() {
	ctx := context.Background()
	m, err := karat.Load(ctx, talker.Demo(), karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	g := genkit.Init(ctx, genkit.WithPlugins(&karatgenkit.Plugin{Models: map[string]*karat.Model{"demo": m},
		Embedders: map[string]karatgenkit.Embedder{"demo": {Model: m, Options: karat.EmbedOptions{Pooling: karat.PoolMean}}}}))
	answer, err := genkit.Generate(ctx, g, ai.WithModelName("karat/demo"), ai.WithPrompt("What is the capital of Egypt?"),
		ai.WithConfig(karatgenkit.Config{Temperature: new(0.0)}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text())
	vectors, err := genkit.Embed(ctx, g, ai.WithEmbedderName("karat/demo"), ai.WithTextDocs("Cairo", "Oslo"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(vectors.Embeddings))
	// Output:
	// The capital of Egypt is Cairo.
	// 2
}

func kit(t *testing.T, texts map[string]string) *genkit.Genkit {
	p := &karatgenkit.Plugin{Models: map[string]*karat.Model{}, Embedders: map[string]karatgenkit.Embedder{}}
	for name, text := range texts {
		m, err := talker.Parrot(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		p.Models[name], p.Embedders[name] = m, karatgenkit.Embedder{Model: m}
	}
	return genkit.Init(t.Context(), genkit.WithPlugins(p))
}

type city struct {
	City string `json:"city" jsonschema:"enum=Oslo"`
}

// TestTools: Genkit calls the tool that the model calls, and gives the result back. The parts of a stream add up.
func TestTools(t *testing.T) {
	g := kit(t, map[string]string{"caller": talker.Call, "teller": talker.Told})
	asked := 0
	tool := genkit.DefineTool(g, "weather", "Tells the weather of a city.", func(_ *ai.ToolContext, in city) (string, error) {
		asked++
		return "rain in " + in.City, nil
	})
	first, err := genkit.Generate(t.Context(), g, ai.WithModelName("karat/caller"), ai.WithPrompt("Oslo?"), ai.WithTools(tool), ai.WithReturnToolRequests(true))
	if err != nil {
		t.Fatal(err)
	}
	if calls := first.ToolRequests(); len(calls) != 1 || fmt.Sprint(calls[0].Input) != "map[city:Oslo]" || first.Reasoning() != "I look." || first.Text() != "Let me see." {
		t.Errorf("the answer is %+v", first.Message)
	}
	// A model that calls in each turn is stopped by Genkit, after the tool was called.
	if _, err = genkit.Generate(t.Context(), g, ai.WithModelName("karat/caller"), ai.WithPrompt("Oslo?"), ai.WithTools(tool), ai.WithMaxTurns(2)); err == nil || asked != 2 {
		t.Errorf("%d calls, %v", asked, err)
	}
	text := ""
	last, err := genkit.Generate(t.Context(), g, ai.WithModelName("karat/teller"), ai.WithPrompt("Oslo?"), ai.WithTools(tool), ai.WithStreaming(
		func(_ context.Context, c *ai.ModelResponseChunk) error {
			for _, p := range c.Content {
				if p.IsText() {
					text += p.Text
				}
			}
			return nil
		}))
	if err != nil || last.Text() != "It rains in Oslo." || text != last.Text() || last.Usage.OutputTokens == 0 {
		t.Errorf("%+v, streamed %q, %v", last, text, err)
	}
	forced, err := genkit.Generate(t.Context(), g, ai.WithModelName("karat/teller"), ai.WithPrompt("Oslo?"), ai.WithTools(tool),
		ai.WithToolChoice(ai.ToolChoiceRequired), ai.WithReturnToolRequests(true))
	if err != nil || len(forced.ToolRequests()) == 0 {
		t.Errorf("forced: %+v, %v", forced, err)
	}
	form, _, err := genkit.GenerateData[city](t.Context(), g, ai.WithModelName("karat/teller"), ai.WithPrompt("Where?"))
	if err != nil || form.City != "Oslo" {
		t.Errorf("a form: %+v, %v", form, err)
	}
}

// TestEnds: a context and a callback's error end an endless answer, and a limit cuts it.
func TestEnds(t *testing.T) {
	g := kit(t, map[string]string{"endless": talker.Endless})
	ctx, cancel := context.WithCancel(t.Context())
	enough := errors.New("enough")
	for want, see := range map[error]func() error{context.Canceled: func() error { cancel(); return nil }, enough: func() error { return enough }} {
		of := t.Context()
		if want == context.Canceled {
			of = ctx
		}
		if _, err := genkit.Generate(of, g, ai.WithModelName("karat/endless"), ai.WithPrompt("Go"), ai.WithConfig(map[string]any{"maxOutputTokens": -1}),
			ai.WithStreaming(func(context.Context, *ai.ModelResponseChunk) error { return see() })); !errors.Is(err, want) {
			t.Errorf("want %v, got %v", want, err)
		}
	}
	cut, err := genkit.Generate(t.Context(), g, ai.WithModelName("karat/endless"), ai.WithPrompt("Go"), ai.WithConfig(&ai.GenerationCommonConfig{MaxOutputTokens: 3}))
	if err != nil || cut.FinishReason != ai.FinishReasonLength {
		t.Errorf("cut: %+v, %v", cut, err)
	}
}

// TestRefused: what is not taken is an error.
func TestRefused(t *testing.T) {
	g := kit(t, map[string]string{"teller": talker.Told})
	for want, o := range map[string]ai.GenerateOption{
		"not allowed": ai.WithConfig(map[string]any{"temprature": 1}), "does not support media": ai.WithMessages(ai.NewUserMessage(ai.NewMediaPart("image/png", "https://localhost/a.png"))),
		"does not support version": ai.WithConfig(&ai.GenerationCommonConfig{Version: "2"})} {
		if _, err := genkit.Generate(t.Context(), g, ai.WithModelName("karat/teller"), ai.WithPrompt("a"), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	if _, err := genkit.Embed(t.Context(), g, ai.WithEmbedderName("karat/teller"), ai.WithTextDocs("a")); err == nil {
		t.Error("a model without pooling makes vectors")
	}
}

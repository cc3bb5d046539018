package karat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"reflect"
	"strings"
	"sync"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// A model calls a tool, gets the result, and answers.
func ExampleModel_CompleteChat() {
	ctx := context.Background()
	m, err := forecaster(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	tools := []karat.Tool{{Name: "weather", Description: "Tells the weather of a city.", Parameters: json.RawMessage(
		`{"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": false}`)}}
	must, err := m.ResponseGrammar(ctx, karat.ResponseFormat{Tools: tools, RequireCall: true, SingleCall: true})
	if err != nil {
		log.Fatal(err)
	}
	o := karat.GenerateOptions{Tools: tools, Grammar: must} // without the grammar the model decides whether it calls
	talk := []karat.Message{karat.TextMessage(karat.RoleUser, "How is the weather in Oslo?")}
	for {
		a, err := m.CompleteChat(ctx, talk, o)
		if err != nil {
			log.Fatal(err)
		}
		talk = append(talk, a.Message)
		if len(a.ToolCalls()) == 0 {
			fmt.Println(a.Text)
			return
		}
		results := karat.Message{Role: karat.RoleTool}
		for _, c := range a.ToolCalls() {
			fmt.Println(c.Name, string(c.Arguments))
			results.Parts = append(results.Parts, karat.ToolResult{ID: c.ID, Name: c.Name, Content: "rain, 4 degrees"})
		}
		talk, o.Grammar = append(talk, results), nil
	}
	// Output:
	// weather {"city":"Oslo"}
	// It rains.
}

// Parts come as soon as they are certain.
func ExampleModel_ChatParts() {
	ctx := context.Background()
	m, err := thinker(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	var reasoning, text strings.Builder
	question := []karat.Message{karat.TextMessage(karat.RoleUser, "How is the weather in Oslo?")}
	for part, err := range m.ChatParts(ctx, question, karat.GenerateOptions{MaxTokens: -1}) {
		if err != nil {
			log.Fatal(err)
		}
		switch p := part.(type) {
		case karat.Reasoning:
			reasoning.WriteString(string(p))
		case karat.Text:
			text.WriteString(string(p))
		case karat.ToolCall:
			fmt.Println(p.Name, string(p.Arguments))
		}
	}
	fmt.Printf("(%s) %s\n", &reasoning, &text)
	// Output: (Oslo, rain.) It rains.
}

// An answer is whole, with its counts.
func ExampleModel_Complete() {
	ctx := context.Background()
	m, err := karat.Load(ctx, demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	a, err := m.Complete(ctx, "The color of the sky is", karat.GenerateOptions{MaxTokens: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q, %d tokens after %d: %s\n", a.Text, a.GeneratedTokens, a.PromptTokens, a.Stop)
	// Output: " blue.", 1 tokens after 7: length
}

// Texts that mean the same have vectors that point the same way. Any model that generates makes vectors with a Pooling;
// a model that is made for it needs none.
func ExampleModel_Embed() {
	ctx := context.Background()
	m, err := karat.Load(ctx, demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	v, err := m.Embed(ctx, []string{"The color of the sky is blue.", "The color of the sky", "func main() {"}, karat.EmbedOptions{Pooling: karat.PoolMean})
	if err != nil {
		log.Fatal(err)
	}
	cosine := func(a, b []float32) (sum float64) { // of vectors of length 1
		for i := range a {
			sum += float64(a[i]) * float64(b[i])
		}
		return sum
	}
	fmt.Println(cosine(v[0], v[1]) > cosine(v[0], v[2]))
	// Output: true
}

// The documents that answer a query best come first. This needs a model that is made for it.
func ExampleModel_Rerank() {
	ctx := context.Background()
	m, err := karat.Load(ctx, "bge-reranker-v2-m3", karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	documents := []string{"Snow is white.", "Paris is the capital of France."}
	ranked, err := m.Rerank(ctx, "What is the capital of France?", documents, karat.RerankOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range ranked {
		fmt.Printf("%.3f %s\n", 1/(1+math.Exp(-float64(r.Score))), documents[r.Index])
	}
}

// Hooks see what a request computes, and may change it: without its last layers' feed-forward parts the model says
// something else.
func ExampleHooks() {
	ctx := context.Background()
	m, err := karat.Load(ctx, demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	hooks := &karat.Hooks{
		Nodes: func(n karat.Node) bool { return strings.HasSuffix(n.Name, ".ffn_down") },
		See: func(n karat.Node, positions []int, values []float32) {
			clear(values)
		},
	}
	for _, h := range []*karat.Hooks{nil, hooks} {
		a, err := m.Complete(ctx, "The color of the sky is", karat.GenerateOptions{MaxTokens: 1, Hooks: h})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(a.Text == " blue.")
	}
	// Output:
	// true
	// false
}

// Requests of several goroutines share the model's steps. Each has the bits that it has alone.
func ExampleModel_Generate_parallel() {
	ctx := context.Background()
	m, err := karat.Load(ctx, demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	prompts := []string{"The color of the sky is", "The opposite of hot is", "The capital of Egypt is"}
	answers := make([]string, len(prompts))
	var all sync.WaitGroup
	for i, prompt := range prompts {
		all.Go(func() {
			for token, err := range m.Generate(ctx, prompt, karat.GenerateOptions{MaxTokens: 1}) {
				if err != nil {
					log.Print(err)
					return
				}
				answers[i] += token.Text
			}
		})
	}
	all.Wait()
	fmt.Println(answers[0])
	// Output: blue.
}

// An answer fits a Go type: its schema follows from the type's fields.
func ExampleJSONSchema() {
	type city struct {
		Name     string `json:"name"`
		Citizens int    `json:"citizens"`
	}
	properties, required := map[string]any{}, []string{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[city]()) {
		kind := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Float64: "number", reflect.Bool: "boolean"}
		properties[f.Tag.Get("json")] = map[string]any{"type": kind[f.Type.Kind()]}
		required = append(required, f.Tag.Get("json"))
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
	if err != nil {
		log.Fatal(err)
	}
	g, err := karat.JSONSchema(schema)
	if err != nil {
		log.Fatal(err)
	}
	for _, answer := range []string{`{"citizens": 717710, "name": "Oslo"}`, `{"name": "Oslo"}`} {
		fits, err := g.Fits([]byte(answer)) // GenerateOptions.Grammar holds an answer to it
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(fits)
	}
	// Output:
	// true
	// false
}

// forecaster and thinker load small models that say one text, for the examples.
func forecaster(ctx context.Context) (*karat.Model, error) {
	return loadParrot(ctx, "It rains.", `{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`)
}

func thinker(ctx context.Context) (*karat.Model, error) {
	template, err := os.ReadFile("internal/chat/testdata/templates/Qwen-Qwen3-0.6B.jinja")
	if err != nil {
		return nil, err
	}
	return loadParrot(ctx, "<think>\nOslo, rain.\n</think>\n\nIt rains.", string(template))
}

func loadParrot(ctx context.Context, text, template string) (*karat.Model, error) {
	var file bytes.Buffer
	if err := parrot.Write(&file, template, text, parrot.Options{}); err != nil {
		return nil, err
	}
	return karat.LoadSources(ctx, []karat.Source{{Name: "parrot", Data: file.Bytes()}}, karat.Options{})
}

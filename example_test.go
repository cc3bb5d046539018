package karat_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/karat-run/karat"
)

// The examples run the demo model of the command. Any GGUF file or Hugging Face
// folder takes its place.
const demo = "cmd/karat/demo.gguf"

func Example() {
	m, err := karat.Load(context.Background(), demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	for token, err := range m.Generate(context.Background(), "The color of the sky is", karat.GenerateOptions{MaxTokens: 1}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: blue.
}

func ExampleModel_Chat() {
	m, err := karat.Load(context.Background(), demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	question := []karat.Message{karat.TextMessage(karat.RoleUser, "What is the capital of Egypt?")}
	for token, err := range m.Chat(context.Background(), question, karat.GenerateOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
		if token.Stop != "" {
			fmt.Printf(" (%s)", token.Stop)
		}
	}
	// Output: The capital of Egypt is Cairo. (end)
}

// A session computes only what a conversation has gained since its last turn.
func ExampleSession() {
	m, err := karat.Load(context.Background(), demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	s := m.NewSession()
	defer s.Close()
	var turns []karat.Message
	for _, question := range []string{"What is the capital of Egypt?", "What is the opposite of hot?"} {
		turns = append(turns, karat.TextMessage(karat.RoleUser, question))
		answer := ""
		for token, err := range s.Chat(context.Background(), turns, karat.GenerateOptions{}) {
			if err != nil {
				log.Fatal(err)
			}
			answer += token.Text
		}
		turns = append(turns, karat.TextMessage(karat.RoleAssistant, answer))
		tokens, kept := s.PromptTokens()
		fmt.Println(answer, tokens > kept, kept > 0)
	}
	// Output:
	// The capital of Egypt is Cairo. true false
	// The opposite of hot is cold. true true
}

// Sampled text is the same for the same seed, on every machine.
func ExampleGenerateOptions() {
	m, err := karat.Load(context.Background(), demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	o := karat.GenerateOptions{
		MaxTokens:   12,
		Sampling:    &karat.Sampling{Temperature: 0.8, TopK: 40, Seed: new(uint64(7))},
		Stop:        []string{"\n"},
		TopLogprobs: 3,
	}
	text := [2]string{}
	for i := range text {
		for token, err := range m.Generate(context.Background(), "The opposite of", o) {
			if err != nil {
				log.Fatal(err)
			}
			text[i] += token.Text
		}
	}
	fmt.Println(text[0] == text[1])
	// Output: true
}

// Logits of every position tell how likely a text is to a model.
func ExampleModel_Logits() {
	m, err := karat.Load(context.Background(), demo, karat.Options{Precision: karat.Float32})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	ids, err := m.Tokenize(context.Background(), "The color of the sky is", karat.TokenizeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	logits, err := m.Logits(context.Background(), ids)
	if err != nil {
		log.Fatal(err)
	}
	last, best := logits[len(logits)-1], 0
	for id, v := range last {
		if v > last[best] {
			best = id
		}
	}
	fmt.Println(len(logits) == len(ids), m.Detokenize([]int{best}))
	// Output: true  blue.
}

// A tool's call and its result are parts of messages, as templates that know tools want them.
func ExampleMessage() {
	m, err := karat.Load(context.Background(), demo, karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()

	talk := []karat.Message{
		karat.TextMessage(karat.RoleUser, "Is it raining in Oslo?"),
		{Role: karat.RoleAssistant, Parts: []karat.Part{karat.ToolCall{Name: "weather", Arguments: []byte(`{"city": "Oslo"}`)}}},
		{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{Name: "weather", Content: "rain, 4 degrees"}}},
	}
	template := `{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments.city }}){% endfor %}{{ "\n" }}{% endfor %}`
	text, err := m.Render(context.Background(), talk, karat.GenerateOptions{Template: template})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)
	// Output:
	// user: Is it raining in Oslo?
	// assistant: weather(Oslo)
	// tool: rain, 4 degrees
}

func ExampleConvert() {
	dir, err := os.MkdirTemp("", "karat")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r, err := karat.Convert(context.Background(), demo, filepath.Join(dir, "model.gguf"), karat.ConvertOptions{Type: "BF16", Split: 10e6})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Format, r.Architecture, r.Types)
	for _, path := range r.Files {
		fmt.Println(filepath.Base(path))
	}
	// Output:
	// GGUF gemma3 map[BF16:43 F32:37]
	// model-00001-of-00002.gguf
	// model-00002-of-00002.gguf
}

func ExampleCheck() {
	r, err := karat.Check(context.Background(), demo, karat.CheckOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range r.Findings {
		fmt.Println(f.Severity, f.ID, f.What)
	}
	fmt.Println(r.Tensors, "tensors, clean:", r.Clean())
	// Output: 80 tensors, clean: true
}

func ExampleQuantize() {
	dir, err := os.MkdirTemp("", "karat")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	full, small := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "model.Q4_K_M.gguf")
	ctx := context.Background()
	if _, err := karat.Convert(ctx, demo, full, karat.ConvertOptions{Type: "BF16"}); err != nil {
		log.Fatal(err)
	}
	r, err := karat.Quantize(ctx, full, small, karat.QuantizeOptions{Type: "Q4_K_M"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Tensors, "tensors,", r.Types)
	// Output:
	// 80 tensors, map[F32:37 Q4_K:38 Q6_K:5]
}

package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/server"
)

func ExampleNew() {
	ctx := context.Background()
	m, err := karat.Load(ctx, "../cmd/karat/demo.gguf", karat.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := server.New(ctx, server.Options{Models: []server.Model{{Name: "demo", Model: m}}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	h := httptest.NewServer(s) // or http.ListenAndServe("127.0.0.1:8080", s)
	defer h.Close()

	body := `{"model": "demo", "temperature": 0, "messages": [{"role": "user", "content": "What is the capital of Egypt?"}]}`
	r, err := http.Post(h.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Body.Close()
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
	// Output: The capital of Egypt is Cairo.
}

package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestOpenAPI: the document lists the routes that there are, and no others.
func TestOpenAPI(t *testing.T) {
	c := serve(t, demo(t), Options{Store: t.TempDir(), Pages: map[string]http.Handler{"/": http.NotFoundHandler()}})
	_, text, _ := c.do("GET", "/openapi.json", "")
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	var listed, there []string
	for path, methods := range doc.Paths {
		for method := range methods {
			listed = append(listed, strings.ToUpper(method)+" "+path)
		}
	}
	for _, p := range c.s.patterns {
		there = append(there, strings.NewReplacer("...", "", "{$}", "").Replace(p))
	}
	slices.Sort(listed)
	slices.Sort(there)
	if !slices.Equal(listed, there) {
		t.Errorf("listed\n%s\nthere\n%s", strings.Join(listed, "\n"), strings.Join(there, "\n"))
	}
}

// TestOpenAPIFields: the fields of the document are those that requests may have.
func TestOpenAPIFields(t *testing.T) {
	c := serve(t, demo(t), Options{})
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		t.Fatal(err)
	}
	for schema, path := range map[string]string{"ChatRequest": "/v1/chat/completions", "CompletionRequest": "/v1/completions"} {
		fields := doc.Components.Schemas[schema].Properties
		if len(fields) < 20 {
			t.Fatalf("%s: %v", schema, fields)
		}
		for name := range fields {
			if name == "model" {
				continue
			}
			_, answer, _ := c.do("POST", path, `{"model":"demo","`+name+`":{"x":[]},"unknown field":1}`)
			if strings.Contains(answer, "Unrecognized request argument supplied: "+name+`"`) {
				t.Errorf("%s: %s is unknown", path, name)
			}
		}
	}
}

func TestTokens(t *testing.T) {
	c := serve(t, demo(t), Options{})
	bare, around := c.post("/tokenize", `{"content":"The sky"}`), c.post("/tokenize", `{"content":"The sky","add_special":true,"model":"demo"}`)
	if n, m := len(bare["tokens"].([]any)), len(around["tokens"].([]any)); n == 0 || m != n+1 || at(around, "tokens", 0) != 2. {
		t.Errorf("%v %v", bare, around)
	}
	text, err := json.Marshal(map[string]any{"tokens": bare["tokens"]})
	if err != nil {
		t.Fatal(err)
	}
	if o := c.post("/detokenize", string(text)); o["content"] != "The sky" {
		t.Errorf("%v", o)
	}
	special := func(more string) int {
		return len(c.post("/tokenize", `{"content":"<start_of_turn>"`+more+`}`)["tokens"].([]any))
	}
	if special("") != 1 || special(`,"parse_special":false`) < 2 {
		t.Error("names of special tokens")
	}
	if o := c.post("/tokenize", `{"content":"é<0xff>\ud83d\ude42","with_pieces":true}`); at(o, "tokens", 0, "id") == nil || at(o, "tokens", 0, "piece") == nil {
		t.Errorf("%v", o)
	}
	if o := c.post("/apply-template", `{"messages":[{"role":"user","content":"Hi"}]}`); !strings.Contains(o["prompt"].(string), "Hi") {
		t.Errorf("%v", o)
	}
	c.refuses(400, "content", "Missing", "POST", "/tokenize", `{}`)
	c.refuses(400, "x", "Unrecognized", "POST", "/tokenize", `{"content":"a","x":1}`)
	c.refuses(400, "tokens", "vocabulary", "POST", "/detokenize", `{"tokens":[-1]}`)
	c.refuses(404, "model", "", "GET", "/v1/models/none", "")
	for path, id := range map[string]string{"demo": "demo", "an/alias": "an/alias", "an%2Falias": "an/alias"} { // an alias is found by its own name
		if status, answer, _ := c.do("GET", "/v1/models/"+path, ""); status != 200 || at(parseObject(t, answer), "id") != id {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	_, answer, _ := c.do("GET", "/v1/models", "")
	if o := parseObject(t, answer); len(o["data"].([]any)) != 2 || at(o, "data", 0, "id") != "demo" || at(o, "data", 1, "id") != "an/alias" || at(o, "data", 1, "root") != "demo" {
		t.Errorf("%s", answer)
	}
}

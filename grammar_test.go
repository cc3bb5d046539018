package karat_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// person is a schema with most of what schemas have.
const person = `{"type": "object", "properties": {
	"name": {"type": "string", "maxLength": 12},
	"age": {"type": "integer", "minimum": 0, "maximum": 130},
	"mail": {"type": ["string", "null"], "pattern": "^[a-z]{1,8}@[a-z]{1,5}\\.org$"},
	"kind": {"enum": ["child", "adult"]},
	"scores": {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 1}, "maxItems": 3},
	"mother": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/short"}]}
}, "required": ["name", "age", "mail", "kind", "scores", "mother"], "additionalProperties": false,
"$defs": {"short": {"type": "object", "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 5}}, "required": ["name"], "additionalProperties": false}}}`

// checkPerson finds what is wrong with an answer, independent of the program's own reading of the schema.
func checkPerson(text string) error {
	var p struct {
		Name   *string
		Age    *int
		Mail   *string
		Kind   string
		Scores []float64
		Mother *struct{ Name string }
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return err
	}
	var names map[string]any
	if err := json.Unmarshal([]byte(text), &names); err != nil {
		return err
	}
	switch n := len(names); {
	case n != 6 || p.Name == nil || p.Age == nil:
		return fmt.Errorf("%d properties", n)
	case len([]rune(*p.Name)) > 12 || *p.Age < 0 || *p.Age > 130 || p.Kind != "child" && p.Kind != "adult" || len(p.Scores) > 3:
		return fmt.Errorf("out of bounds")
	case p.Mail != nil && (!strings.HasSuffix(*p.Mail, ".org") || strings.Count(*p.Mail, "@") != 1):
		return fmt.Errorf("mail %q", *p.Mail)
	case p.Mother != nil && (p.Mother.Name == "" || len([]rune(p.Mother.Name)) > 5):
		return fmt.Errorf("mother %q", p.Mother.Name)
	}
	for _, x := range p.Scores {
		if x < -1 || x > 1 {
			return fmt.Errorf("score %v", x)
		}
	}
	return nil
}

// say is a whole answer, and why it ended.
func say(t *testing.T, m *karat.Model, o karat.GenerateOptions) (text string, stop karat.StopReason) {
	t.Helper()
	for token, err := range m.Generate(t.Context(), "The person is", o) {
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		text, stop = text+token.Text, token.Stop
	}
	return text, stop
}

// TestGrammarAnswers: every answer that ends by itself fits, at a high temperature, with any seed, of the demo and of tiny
// models of each kind of vocabulary. It has the same bits alone and beside others.
func TestGrammarAnswers(t *testing.T) {
	g, err := karat.JSONSchema([]byte(person))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]int{demo: 24}
	for _, name := range []string{"tiny-llama", "tiny-gemma3", "tiny-qwen3"} {
		paths[golden.Model(t, name)] = 6
	}
	for path, seeds := range paths {
		m, err := karat.Load(t.Context(), path, karat.Options{Context: 512, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		options := func(seed int) karat.GenerateOptions {
			return karat.GenerateOptions{MaxTokens: 400, Grammar: g, Sampling: &karat.Sampling{Temperature: 1.5, Seed: new(uint64(seed))}}
		}
		all := make([]string, seeds)
		var group sync.WaitGroup
		for seed := range seeds {
			group.Go(func() {
				text, stop := say(t, m, options(seed))
				if all[seed] = text; stop == karat.StopLength {
					t.Errorf("%s, seed %d: no end: %q", path, seed, text)
					return
				}
				ok, err := g.Fits([]byte(text))
				if err := checkPerson(text); err != nil || !ok {
					t.Errorf("%s, seed %d: %q: %v", path, seed, text, err)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if text, _ := say(t, m, options(3)); text != all[3] {
			t.Errorf("%s: alone %q, beside others %q", path, text, all[3])
		}
		m.Close()
	}
}

// TestGrammarKinds: the other kinds of grammars, greedily and drawn.
func TestGrammarKinds(t *testing.T) {
	m, err := karat.Load(t.Context(), demo, karat.Options{Context: 256, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	make := func(g *karat.Grammar, err error) *karat.Grammar {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	for name, g := range map[string]*karat.Grammar{
		"pattern": make(karat.Regexp(`[A-Z][a-z]{2,9}( [a-z]{2,9}){2,5}\.`)),
		"gbnf":    make(karat.GBNF("root ::= \"yes\" | \"no\" \" but \" word{1,4}\nword ::= [a-z]{1,6} \" \"?")),
		"object":  make(karat.JSONSchema([]byte(`{"type":"object","additionalProperties":{"type":"string","maxLength":10},"propertyNames":{"maxLength":5},"maxProperties":3}`))),
	} {
		for seed := range 6 {
			o := karat.GenerateOptions{MaxTokens: 200, Grammar: g, Sampling: &karat.Sampling{Temperature: float64(seed) / 3, Seed: new(uint64(seed))}, Logprobs: true, TopLogprobs: 2}
			text, stop := say(t, m, o)
			if ok, err := g.Fits([]byte(text)); !ok || err != nil || stop != karat.StopEnd {
				t.Errorf("%s, seed %d: %q ended by %s, %v", name, seed, text, stop, err)
			}
		}
	}
	if g := make(karat.JSONObject(), nil); g == nil {
		t.Fatal()
	}
}

// TestGrammarCut: an answer that is cut begins as one that is not.
func TestGrammarCut(t *testing.T) {
	m, err := karat.Load(t.Context(), demo, karat.Options{Context: 256, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g, err := karat.JSONSchema([]byte(person))
	if err != nil {
		t.Fatal(err)
	}
	o := karat.GenerateOptions{MaxTokens: 200, Grammar: g, Sampling: &karat.Sampling{Temperature: 1, Seed: new(uint64(1))}}
	whole, _ := say(t, m, o)
	o.MaxTokens = 7
	text, stop := say(t, m, o)
	if stop != karat.StopLength || !strings.HasPrefix(whole, text) || !bytes.HasPrefix([]byte(text), []byte("{")) {
		t.Errorf("%q, %s of %q", text, stop, whole)
	}
}

// TestForcedText: an answer under a grammar is the same with drafts of forced text as without.
func TestForcedText(t *testing.T) {
	m, err := karat.Load(t.Context(), demo, karat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	g, err := karat.JSONSchema([]byte(`{"type": "object", "properties": {"temperature": {"type": "number"},
		"sky": {"enum": ["cloudy", "cloudless"]}}, "required": ["temperature", "sky"], "additionalProperties": false}`))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(d karat.Draft) (text, odds string) {
		for x, err := range m.Generate(t.Context(), "The weather:", karat.GenerateOptions{Grammar: g, MaxTokens: 100, Draft: d, Logprobs: true}) {
			if err != nil {
				t.Fatal(err)
			}
			text, odds = text+x.Text, fmt.Sprint(odds, x.Logprob, " ")
		}
		return text, odds
	}
	want, odds := answer(karat.DraftOff)
	for _, d := range []karat.Draft{karat.DraftAuto, karat.DraftNgram} {
		if got, o := answer(d); got != want || o != odds || !strings.Contains(want, `"temperature"`) {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

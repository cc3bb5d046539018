package tokenizer_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tokenizer"
)

// ggufOf returns the path of one GGUF file of a model: of the goldens, else of this package's testdata; or "" where
// there is none.
func ggufOf(t testing.TB, model string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(golden.Dir(t), "gguf", model+".*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) > 0 {
		return paths[0]
	}
	path := filepath.Join("testdata", "vocab", strings.TrimSuffix(model, "-moe")+".gguf")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// forms makes a model's tokenizer from each form that there is: json, gguf and sentencepiece.
func forms(t *testing.T, model string) map[string]*tokenizer.Tokenizer {
	t.Helper()
	dir := golden.Model(t, model)
	forms := map[string]*tokenizer.Tokenizer{"json": fromJSON(t, dir)}
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.model")); err == nil {
		forms["sentencepiece"] = fromSentencePiece(t, dir)
	}
	if path := ggufOf(t, model); path != "" {
		forms["gguf"] = fromGGUF(t, path)
	}
	return forms
}

// TestRecords compares with the ids of every prompt of every record, from each form of the model's tokenizer.
func TestRecords(t *testing.T) {
	for _, model := range slices.Concat(golden.Models(t), golden.Families(t)) {
		for form, tok := range forms(t, model) {
			t.Run(model+"/"+form, func(t *testing.T) {
				for _, p := range golden.Record(t, model).Prompts {
					o := tokenizer.Options{AddSpecial: true}
					if p.Prompt.Chat != nil {
						o = tokenizer.Options{ParseSpecial: true}
					}
					if got := tok.Encode(p.Text, o); !slices.Equal(got, p.IDs) {
						t.Errorf("prompt %d:\n got %v\nwant %v", p.Index, got, p.IDs)
					}
					if got := tok.Decode(p.GreedyIDs, false); got != p.GreedyText {
						t.Errorf("prompt %d: decoded %q, want %q", p.Index, got, p.GreedyText)
					}
				}
			})
		}
	}
}

// TestTokens compares the ids of awkward strings with those of the tokenizers library, from each form of a family's
// tokenizer, and from the metadata of its GGUF file.
func TestTokens(t *testing.T) {
	for _, name := range slices.Concat(golden.Families(t), golden.Encoders(t), golden.Rerankers(t)) {
		dir := golden.Model(t, name)
		var cases [][2]json.RawMessage
		if err := json.Unmarshal(read(t, dir, "tokens.json"), &cases); err != nil || len(cases) < 20 {
			t.Fatal(len(cases), err)
		}
		var config struct {
			Type string `json:"model_type"`
		}
		if err := json.Unmarshal(read(t, dir, "config.json"), &config); err != nil {
			t.Fatal(err)
		}
		all := forms(t, name)
		family, _ := registry.OfType(config.Type)
		g, _, err := tokenizer.ToGGUF(filesOf(t, dir), all["json"].VocabSize(), false, family.Tokenizer.Pre, nil)
		if err == nil {
			all["metadata"], err = tokenizer.FromGGUF(g)
		}
		if err != nil {
			t.Fatal(err)
		}
		for form, tok := range all {
			for _, c := range cases {
				var text string
				var want []int
				if err := errors.Join(json.Unmarshal(c[0], &text), json.Unmarshal(c[1], &want)); err != nil {
					t.Fatal(err)
				}
				if got := tok.Encode(text, tokenizer.Options{ParseSpecial: true}); !slices.Equal(got, want) {
					t.Errorf("%s %s: %q:\n got %v\nwant %v", name, form, text, got, want)
				}
			}
		}
	}
}

// TestForms compares the forms of each model's tokenizer on generated texts, with and without the special tokens in
// them.
func TestForms(t *testing.T) {
	const n = 3000
	for _, model := range golden.Models(t) {
		all := forms(t, model)
		want := all["json"]
		special := specials(want)
		for form, tok := range all {
			if form == "json" {
				continue
			}
			t.Run(model+"/"+form, func(t *testing.T) {
				bad := 0
				for _, text := range texts(3, n, special, true) {
					for _, o := range []tokenizer.Options{{}, {ParseSpecial: true, AddSpecial: true}} {
						got, want := tok.Encode(text, o), want.Encode(text, o)
						if !slices.Equal(got, want) && bad < 5 {
							bad++
							t.Errorf("%+v: %+q:\n got %v\njson %v", o, text, got, want)
						}
					}
				}
				if got, want := tok.EndOfTurn(), want.EndOfTurn(); !slices.Equal(got, want) {
					t.Errorf("EndOfTurn: %v, json %v", got, want)
				}
			})
		}
	}
}

// specials lists the names of the special tokens.
func specials(tok *tokenizer.Tokenizer) []string {
	var names []string
	for id := range tok.VocabSize() {
		if name, kind := tok.Token(id); kind == tokenizer.Control || kind == tokenizer.UserDefined {
			names = append(names, name)
		}
	}
	return names
}

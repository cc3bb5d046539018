package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// A naive encoder does what the references define, with strings and in quadratic time: no table of pairs, no cutting
// where no merge crosses, no shortcut for whole words.
type naive struct {
	ids    map[string]int
	ranks  map[string]float64         // of "left right", or of the merged text where scored
	scored bool                       // SentencePiece: any two symbols merge whose text is a token
	split  func(text string) []string // byte-level only; TestSplitters compares it with an oracle
	prefix string
}

// word merges the pair of lowest rank, the leftmost first, until none is left.
func (n *naive) word(symbols []string) []string {
	for {
		best, at := 0.0, -1
		for i := range len(symbols) - 1 {
			key := symbols[i] + symbols[i+1]
			if !n.scored {
				key = symbols[i] + " " + symbols[i+1]
			}
			if r, ok := n.ranks[key]; ok && (at < 0 || r < best) {
				best, at = r, i
			}
		}
		if at < 0 {
			return symbols
		}
		symbols = slices.Concat(symbols[:at], []string{symbols[at] + symbols[at+1]}, symbols[at+2:])
	}
}

func (n *naive) encode(text string) (ids []int) {
	if n.split != nil {
		for _, piece := range n.split(text) {
			var symbols []string
			for _, b := range []byte(piece) {
				if _, ok := n.ids[spell(b)]; ok {
					symbols = append(symbols, spell(b))
				}
			}
			for _, s := range n.word(symbols) {
				ids = append(ids, n.ids[s])
			}
		}
		return ids
	}
	if text == "" {
		return nil
	}
	for _, s := range n.word(strings.Split(strings.ReplaceAll(n.prefix+text, " ", "▁"), "")) {
		if id, ok := n.ids[s]; ok {
			ids = append(ids, id)
			continue
		}
		for _, b := range []byte(s) {
			ids = append(ids, n.ids[fmt.Sprintf("<0x%02X>", b)])
		}
	}
	return ids
}

// spell returns GPT-2's bytes_to_unicode.
func spell(b byte) string {
	switch {
	case b <= ' ':
		return string(rune(b) + 0x100)
	case b >= 0x7f && b <= 0xa0:
		return string(rune(b) - 0x7f + 0x121)
	case b == 0xad:
		return "\u0143"
	}
	return string(rune(b))
}

// TestNaiveGGUF compares with the naive encoder on the published vocabularies and on those of the tiny models.
func TestNaiveGGUF(t *testing.T) {
	tiny, err := filepath.Glob("testdata/vocab/*.gguf")
	if err != nil || len(tiny) == 0 {
		t.Fatal(err, tiny)
	}
	for _, path := range tiny {
		t.Run(filepath.Base(path), func(t *testing.T) { compareNaive(t, metadata(t, path), 600) })
	}
	for _, name := range vocabularies {
		t.Run(name, func(t *testing.T) { compareNaive(t, metadata(t, unpack(t, name)), 200) })
	}
}

func compareNaive(t *testing.T, g tokenizer.GGUF, count int) {
	tok, err := tokenizer.FromGGUF(g)
	if err != nil {
		t.Fatal(err)
	}
	n := newNaive(g)
	for _, text := range texts(4, count, nil, false) {
		if strings.ContainsRune(text, 'ø') || strings.Contains(text, "</s>") || len(text) > 600 {
			continue // an added token of DeepSeek's, one of Phi's
		}
		want := n.encode(text)
		if g.Pre == "qwen2" {
			want = n.encode(tokenizer.NFC(text))
		}
		if got := tok.Encode(text, tokenizer.Options{}); !slices.Equal(got, want) {
			t.Fatalf("%+q:\n got %v\nwant %v", text, got, want)
		}
	}
}

func newNaive(g tokenizer.GGUF) *naive {
	n := &naive{ids: map[string]int{}, ranks: map[string]float64{}, scored: g.Model == "llama"}
	for id, s := range g.Tokens {
		n.ids[s] = id
		if n.scored && g.Types[id] == int32(tokenizer.Normal) && utf8.RuneCountInString(s) > 1 {
			n.ranks[s] = -float64(g.Scores[id])
		}
	}
	for rank, m := range g.Merges {
		n.ranks[m] = float64(rank)
	}
	if g.Model == "llama" && (g.AddSpacePrefix == nil || *g.AddSpacePrefix) {
		n.prefix = " "
	}
	switch g.Pre {
	case "llama-bpe":
		n.split = tokenizer.Split(tokenizer.Llama3Pattern)
	case "qwen2":
		n.split = tokenizer.Split(tokenizer.Qwen2Pattern)
	case "gpt-2":
		n.split = tokenizer.Split(tokenizer.PlainWordsPattern)
	case "starcoder":
		stages, err := tokenizer.StagesOf(g.Pre)
		if err != nil {
			panic(err)
		}
		n.split = func(text string) []string { return tokenizer.Pieces(stages, text) }
	case "deepseek-llm":
		n.split = tokenizer.Split(tokenizer.StageREs["deepseek-llm"]...)
	}
	return n
}

// TestNaiveJSON does the same with the tokenizer.json of each model.
func TestNaiveJSON(t *testing.T) {
	for _, model := range golden.Models(t) {
		t.Run(model, func(t *testing.T) {
			dir := golden.Model(t, model)
			var f struct {
				Model struct {
					Vocab  map[string]int
					Merges []any
				}
				Normalizer   struct{ Type string }
				PreTokenizer struct {
					PreTokenizers []struct{ Pattern struct{ Regex string } }
				} `json:"pre_tokenizer"`
			}
			if err := json.Unmarshal(read(t, dir, "tokenizer.json"), &f); err != nil {
				t.Fatal(err)
			}
			n := &naive{ids: f.Model.Vocab, ranks: map[string]float64{}}
			for rank, m := range f.Model.Merges {
				if pair, ok := m.([]any); ok {
					m = pair[0].(string) + " " + pair[1].(string)
				}
				n.ranks[m.(string)] = float64(rank)
			}
			if p := f.PreTokenizer.PreTokenizers; len(p) > 0 {
				n.split = tokenizer.Split(p[0].Pattern.Regex)
			}
			tok := fromJSON(t, dir)
			for _, text := range texts(5, 600, nil, false) {
				if len(text) > 600 {
					continue
				}
				in := text
				if f.Normalizer.Type == "NFC" {
					in = tokenizer.NFC(text)
				}
				if got, want := tok.Encode(text, tokenizer.Options{}), n.encode(in); !slices.Equal(got, want) {
					t.Fatalf("%+q:\n got %v\nwant %v", text, got, want)
				}
			}
		})
	}
}

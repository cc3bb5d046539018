package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// TestEndOfTurn checks the ids that stop a reply where names and types disagree. TestVocabularies has published ones.
func TestEndOfTurn(t *testing.T) {
	g := metadata(t, "testdata/vocab/tiny-gemma4.gguf") // the converter calls <turn|> normal
	eot, eom := 20, 21
	g.EOT, g.EOM = &eot, &eom
	tok, err := tokenizer.FromGGUF(g)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.EndOfTurn(), []int{1, 6, 14, 20, 21}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	g.EOT, g.EOM = nil, nil
	for id, name := range map[int]string{8: "<|end|>", 9: "<|call|>", 10: "<|return|>"} { // where an answer has messages, <|end|> ends one
		g.Tokens[id], g.Types[id] = name, 3
	}
	if tok, err = tokenizer.FromGGUF(g); err != nil {
		t.Fatal(err)
	}
	if got, want := tok.EndOfTurn(), []int{1, 6, 9, 10, 14}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSpecial checks that special tokens come out of text only where asked.
func TestSpecial(t *testing.T) {
	for _, c := range []struct{ model, text string }{
		{"tiny-llama", "<|begin_of_text|>a<|eot_id|>"},
		{"tiny-qwen3", "<|im_start|>user<|im_end|><|endoftext|>"},
		{"tiny-gemma3", "<bos><start_of_turn>user<end_of_turn>"},
		{"tiny-gemma4", "<bos><|turn>user<turn|><|channel><mask><|\"|>"},
	} {
		for form, tok := range forms(t, c.model) {
			isSpecial := func(id int) bool {
				name, kind := tok.Token(id)
				return kind == tokenizer.Control || kind == tokenizer.Unknown || strings.HasPrefix(name, "<|")
			}
			if ids := tok.Encode(c.text, tokenizer.Options{}); slices.ContainsFunc(ids, isSpecial) || tok.Decode(ids, true) != c.text {
				t.Errorf("%s %s: %q gives %v, which is %q", c.model, form, c.text, ids, tok.Decode(ids, true))
			}
			var got []string
			for _, id := range tok.Encode(c.text, tokenizer.Options{ParseSpecial: true}) {
				name, _ := tok.Token(id)
				got = append(got, name)
			}
			if want := strings.Count(c.text, "<"); strings.Count(strings.Join(got, ""), "<") != want || !slices.Contains(got, c.text[:strings.Index(c.text, ">")+1]) {
				t.Errorf("%s %s: %q gives %q", c.model, form, c.text, got)
			}
		}
	}
}

// TestIDs checks the look-ups.
func TestIDs(t *testing.T) {
	tok := fromJSON(t, golden.Model(t, "tiny-llama"))
	if n := tok.VocabSize(); n != 2048 {
		t.Errorf("%d tokens", n)
	}
	if id, ok := tok.ID("<|eot_id|>"); id != 2046 || !ok {
		t.Error(id, ok)
	}
	if id, ok := tok.ID("Ġ"); !ok || id != 220 {
		t.Error(id, ok)
	}
	if _, ok := tok.ID("no such token"); ok {
		t.Error("a token that is not there")
	}
	if name, kind := tok.Token(2046); name != "<|eot_id|>" || kind != tokenizer.Control {
		t.Error(name, kind)
	}
	if name, kind := tok.Token(2048); name != "" || kind != tokenizer.Unused {
		t.Error(name, kind)
	}
	if id, ok := tok.BOS(); id != 2040 || !ok || !tok.AddsBOS() {
		t.Error(id, ok)
	}
	if id, ok := tok.EOS(); id != 2046 || !ok {
		t.Error(id, ok)
	}
	qwen := fromJSON(t, golden.Model(t, "tiny-qwen3"))
	if id, ok := qwen.BOS(); ok || qwen.AddsBOS() {
		t.Error(id, ok)
	}
}

// TestConfig checks what tokenizer_config.json changes.
func TestConfig(t *testing.T) {
	b, err := json.Marshal(smallJSON())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config string
		want   []int
	}{
		{``, []int{257, 256}},
		{`{"bos_token": null, "eos_token": "aa"}`, []int{257, 256}},
		{`{"bos_token": "<s>", "add_bos_token": false}`, []int{256}},
		{`{"bos_token": {"content": "<s>"}, "eos_token": "aa", "add_bos_token": true, "add_eos_token": true}`, []int{257, 256, 256}},
		{`{"eos_token": "</s>", "add_eos_token": true, "added_tokens_decoder": {"258": {"content": "</s>", "special": true}}}`, []int{257, 256, 258}},
	} {
		tok, err := tokenizer.FromJSON(b, []byte(c.config))
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		if got := tok.Encode("aa", tokenizer.Options{AddSpecial: true}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.config, got, c.want)
		}
	}
}

// charactersJSON returns a character-level tokenizer: bytes, the tokens given from 256 on, and merges.
func charactersJSON(t *testing.T, tokens []string, merges [][2]string, change func(file)) *tokenizer.Tokenizer {
	t.Helper()
	vocab := file{}
	for b := range 256 {
		vocab[fmt.Sprintf("<0x%02X>", b)] = b
	}
	for i, s := range tokens {
		vocab[s] = 256 + i
	}
	f := file{
		"model":      file{"type": "BPE", "byte_fallback": true, "vocab": vocab, "merges": merges},
		"normalizer": file{"type": "Replace", "pattern": file{"String": " "}, "content": "▁"},
	}
	change(f)
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromJSON(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestPrepend checks the ways to put a space before a text, as Hugging Face's Prepend and Metaspace do.
func TestPrepend(t *testing.T) {
	tokens := []string{"▁", "a", "▁a", "<s>"}
	merges := [][2]string{{"▁", "a"}}
	const bar, a, barA, s = 256, 257, 258, 259
	metaspace := func(scheme string, split bool) func(file) {
		return func(f file) {
			delete(f, "normalizer")
			f["pre_tokenizer"] = file{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
		}
	}
	for _, c := range []struct {
		name   string
		change func(file)
		text   string
		want   []int
	}{
		{"none", nothing, "a<s> a", []int{a, s, barA}},
		{"prepend", func(f file) {
			f["normalizer"] = file{"type": "Sequence", "normalizers": []any{file{"type": "Prepend", "prepend": "▁"}, f["normalizer"]}}
		}, "a<s> a<s>a", []int{barA, s, bar, barA, s, barA}},
		{"metaspace first", metaspace("first", false), "a<s>a", []int{barA, s, a}},
		{"metaspace first after a token", metaspace("first", false), "<s>a a", []int{s, a, barA}},
		{"metaspace always", metaspace("always", false), "a<s>a<s> a", []int{barA, s, barA, s, barA}},
		{"metaspace never", metaspace("never", true), "a a", []int{a, barA}},
	} {
		tok := charactersJSON(t, tokens, merges, func(f file) {
			f["added_tokens"] = []any{file{"id": s, "content": "<s>", "special": true}}
			c.change(f)
		})
		if got := tok.Encode(c.text, tokenizer.Options{ParseSpecial: true}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	split := charactersJSON(t, []string{"▁", "▁▁"}, [][2]string{{"▁", "▁"}}, metaspace("never", true))
	whole := charactersJSON(t, []string{"▁", "▁▁"}, [][2]string{{"▁", "▁"}}, metaspace("never", false))
	if got, want := split.Encode("  ", tokenizer.Options{}), []int{256, 256}; !slices.Equal(got, want) {
		t.Errorf("split: %v, want %v", got, want)
	}
	if got, want := whole.Encode("  ", tokenizer.Options{}), []int{257}; !slices.Equal(got, want) {
		t.Errorf("not split: %v, want %v", got, want)
	}
}

// TestAddedTokens checks the flags of added tokens. The expectations follow find_matches in tokenizers'
// added_vocabulary.rs.
func TestAddedTokens(t *testing.T) {
	flags := func(extra file) file {
		token := file{"id": 258, "content": "<m>"}
		for k, v := range extra {
			token[k] = v
		}
		return token
	}
	for _, c := range []struct {
		flags file
		text  string
		want  string // with the bytes spelled, spaces as Ġ
	}{
		{file{}, "a <m> b", "a Ġ <m> Ġ b"},
		{file{"lstrip": true}, "a  <m> b", "a <m> Ġ b"},
		{file{"rstrip": true}, "a <m> \t b", "a Ġ <m> b"},
		{file{"lstrip": true, "rstrip": true}, " <m> <m> ", "<m> <m>"},
		{file{"single_word": true}, "a<m> <m>b <m> é<m>", "a < m > Ġ < m > b Ġ <m> Ġ Ã © < m >"},
		{file{"normalized": true}, "x<m>", "x <m>"},
	} {
		f := smallJSON()
		f["added_tokens"] = append(f["added_tokens"].([]any), flags(c.flags))
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.FromJSON(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, id := range tok.Encode(c.text, tokenizer.Options{}) {
			name, _ := tok.Token(id)
			got = append(got, name)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%v: %q gives %q, want %q", c.flags, c.text, s, c.want)
		}
	}
}

// TestLongestAdded checks that of added tokens the leftmost and longest is found.
func TestLongestAdded(t *testing.T) {
	f := smallJSON()
	for i, s := range []string{"ab", "abc", "abcdef", "bcd", "λ"} {
		f["added_tokens"] = append(f["added_tokens"].([]any), file{"id": 258 + i, "content": s})
	}
	b, _ := json.Marshal(f)
	tok, err := tokenizer.FromJSON(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int{
		"abcdef":   {260},
		"abcde":    {259, 'd' - '!', 'e' - '!'},
		"abab":     {258, 258},
		"xbcdab":   {'x' - '!', 261, 258},
		"λλab\xc3": {262, 262, 258},
	} {
		var names, wantNames []string
		for _, id := range tok.Encode(text, tokenizer.Options{}) {
			name, _ := tok.Token(id)
			names = append(names, name)
		}
		for _, id := range want {
			if id < 256 {
				wantNames = append(wantNames, string(rune('!'+id)))
				continue
			}
			name, _ := tok.Token(id)
			wantNames = append(wantNames, name)
		}
		if strings.HasSuffix(text, "\xc3") {
			wantNames = append(wantNames, "Ã")
		}
		if !slices.Equal(names, wantNames) {
			t.Errorf("%q gives %q, want %q", text, names, wantNames)
		}
	}
}

// TestSpellings checks the ways to write the same tokenizer.json.
func TestSpellings(t *testing.T) {
	dir := golden.Model(t, "tiny-llama")
	var f file
	if err := json.Unmarshal(read(t, dir, "tokenizer.json"), &f); err != nil {
		t.Fatal(err)
	}
	want := fromJSON(t, dir)
	split := f["pre_tokenizer"].(file)["pretokenizers"].([]any)[0].(file)
	for name, change := range map[string]func(){
		"merges as strings": func() {
			var merges []string
			for _, m := range model(f)["merges"].([]any) {
				merges = append(merges, m.([]any)[0].(string)+" "+m.([]any)[1].(string))
			}
			model(f)["merges"] = merges
		},
		"removed and inverted": func() { split["behavior"], split["invert"] = "Removed", true },
		"no type":              func() { delete(model(f), "type") },
		"no decoder":           func() { f["decoder"] = nil },
	} {
		change()
		b, err := json.MarshalIndent(f, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.FromJSON(b, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, text := range texts(8, 200, specials(want), true) {
			o := tokenizer.Options{ParseSpecial: true, AddSpecial: true}
			if got, want := tok.Encode(text, o), want.Encode(text, o); !slices.Equal(got, want) {
				t.Fatalf("%s: %+q: %v, want %v", name, text, got, want)
			}
		}
	}
}

// TestConcurrent encodes with one tokenizer in many goroutines, for the race detector.
func TestConcurrent(t *testing.T) {
	for _, model := range []string{"tiny-qwen3", "tiny-gemma4"} {
		list := texts(9, 200, nil, true)
		fresh := fromJSON(t, golden.Model(t, model))
		want := make([][]int, len(list))
		for i, text := range list {
			want[i] = fresh.Encode(text, tokenizer.Options{})
		}
		tok := fromJSON(t, golden.Model(t, model))
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() {
				for i := range list {
					i = (i + k*50) % len(list)
					if got := tok.Encode(list[i], tokenizer.Options{}); !slices.Equal(got, want[i]) {
						t.Errorf("%+q: %v, want %v", list[i], got, want[i])
					}
				}
			})
		}
		wg.Wait()
	}
}

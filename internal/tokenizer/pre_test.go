package tokenizer_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/tokenizer"
)

// Patterns of llama.cpp's source (llm_tokenizer_bpe in src/llama-vocab.cpp), by which each name below splits. Where
// that has the model's own pattern in a comment, it is that: llama.cpp's engine of regular expressions has neither case
// folding nor all properties.
const (
	words3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	words1 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	plain  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`
	cased  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	chainedKana = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
	blooms      = ` ?[^(\s|.,!?…。，、।۔،)]+`
)

// llamaCpp is the names of pre-tokenizers that llama.cpp knows, with their patterns.
var llamaCpp = []struct {
	names    string
	patterns []string
}{
	{"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", []string{words3}},
	{"dbrx smaug-bpe glm4 chatglm-bpe", []string{words3}},
	{"gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum modern-bert " +
		"jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe", []string{plain}},
	{"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", []string{`\p{N}`, plain}},
	{"qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2", []string{words1}},
	// '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+
	{"bailingmoe bailingmoe2 llada-moe", []string{`'(?i:[sdmt]|ll|ve|re)|(?>[^\r\n\p{L}\p{N}]?)\p{L}+|\p{N}| ?(?>[^\s\p{L}\p{N}]+)[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`}},
	{"laguna", []string{`[^\n]+|[\n]+`, words1}},
	{"qwen35", []string{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`}},
	{"seed-coder", []string{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`}},
	{"exaone-moe", []string{`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+`}},
	{"gpt-4o llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m", []string{cased}},
	{"tekken", []string{strings.ReplaceAll(strings.ReplaceAll(cased, `(?i:'s|'t|'re|'ve|'m|'ll|'d)?`, ""), `\p{N}{1,3}`, `\p{N}`)}},
	{"youtu", []string{`[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+`, strings.ReplaceAll(cased, `\p{N}{1,3}`, `\p{N}`)}},
	// [..&&[^\p{Han}]], which only Oniguruma and Rust's engine have
	{"kimi-k2", []string{`[\p{Han}]+|` + strings.ReplaceAll(strings.NewReplacer(`[\p{Lu}`, `(?:(?!\p{Han})[\p{Lu}`, `[\p{Ll}`, `(?:(?!\p{Han})[\p{Ll}`, `\p{M}]`, `\p{M}])`).Replace(cased), `[\r\n/]*`, `[\r\n]*`)}},
	{"deepseek-v3 hunyuan-dense joyai-llm", []string{`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`, chainedKana}},
	{"deepseek-coder", []string{"[\r\n]", `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}`}},
	{"default", []string{`[\p{P}\$\+<=>\^~\|]+`, plain, `\p{N}+`, `[0-9][0-9][0-9]`}},
	{"falcon", []string{"[\\p{P}\\$\\+<=>\\^~\\|`]+", plain, `[0-9][0-9][0-9]`}},
	{"minicpm5", []string{`\p{N}{1,3}`, strings.ReplaceAll(words3, `\p{N}{1,3}`, `\p{N}+`)}},
	{"bloom poro-chat gpt3-finnish", []string{blooms}},
	{"viking", []string{blooms, `\p{N}`}},
	{"deepseek-llm gemma4 granite-embed-multi-311m sarvam-moe", nil}, // TestStages; of characters
	{"tiny_aya cohere2moe", []string{`\d{1,3}(?=(?:\d{3})*` + noWord + `)`, cased}},
	{"superbpe", []string{`\p{N}+`, `(?=(\d{3})+(?!\d))`}},
	// the first is a function there (unicode_regex_split_custom_afmoe in src/unicode.cpp), which leaves the text before digits to them
	{"afmoe", []string{`\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))`, `[一-鿿㐀-䶿\x{f900}-\x{faff}぀-ゟ゠-ヿ･-ﾟ⼀-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}ក-\x{17ff}က-႟ꩠ-ꩿꧠ-\x{a9ff}가-\x{d7af}ᄀ-ᇿ]+`, chainedKana}},
	{"jais-2", []string{strings.TrimSuffix(words3, `\s+(?!\S)|\s+`) + `\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`}},
	{"chameleon", []string{`<sentinel:[0-9]+>`, `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`, `([\t\n]|    |  )`, `\p{N}`, "[\\p{P}!-/:-@\\[-`{-~]", plain}},
	{"whitespace", []string{"not"}}, // not supported
}

// hard are texts in which the patterns differ.
var hard = []string{
	"camelCase HTTPServer ÀÉîõ ǅungla ʰʷ 中文Abc字aB", "a\u0301\u0323b \u0301ABC !\u0301x", "I'LL we'vE 'ſ x's'S 'd'", "１２３ 1234567 ½²Ⅷ १२३४",
	"a  b   c\t\td \n\n  e \r\n \r\n", "//path/to\n/x !?\n\n/ .../\r\n", "한국어 문장, 日本語の文。カタカナー！…“引用” ㄅㄆㄇ", "func f(a, b) {\n\treturn a<=b || c^d\n}\n",
	"a b c d  e f", "नमस्ते दुनिया। ۔، 你好，世界", "x\u00a0y\u3000z\u2028w", "`code` $5+3=8 <tag> ~^|", "0123 45678 9 12345678901", "a_b-c.d@e", "\U0001f468\u200d\U0001f469 \ufe0f \u200b", "《书》⺀⼀〇々",
}

// TestPreTokenizers splits as llama.cpp's source says, or names the model.
func TestPreTokenizers(t *testing.T) {
	count, all := 0, slices.Concat(hard, texts(3, 150, nil, false))
	for _, c := range llamaCpp {
		for _, name := range strings.Fields(c.names) {
			count++
			stages, err := tokenizer.StagesOf(name)
			switch {
			case slices.Equal(c.patterns, []string{"not"}):
				if err == nil || !strings.Contains(err.Error(), `"`+name+`", that of `) {
					t.Errorf("%s: %v", name, err)
				}
				continue
			case err != nil:
				t.Errorf("%s: %v", name, err)
				continue
			case c.patterns == nil:
				continue
			}
			split := func(text string) []string { return tokenizer.Pieces(stages, text) }
			t.Run(name, func(t *testing.T) { compare(t, split, all, c.patterns...) })
		}
	}
	if count != 87 { // one of its 88 comparisons is there twice
		t.Errorf("%d names, llama.cpp has 87", count)
	}
	for _, name := range []string{"", "gpt-5", "LLAMA3"} {
		want := "unknown pre-tokenizer"
		if name == "" {
			want = "is missing"
		}
		if _, err := tokenizer.StagesOf(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestAliases: other spellings of a pattern split as it does.
func TestAliases(t *testing.T) {
	all := slices.Concat(hard, texts(5, 400, nil, false))
	greedy := strings.NewReplacer("?+", "?", "++", "+", `&&[^\p{Han}]]`, `-[\p{Lo}]]`, "|[.", "|.", "])]", ")]") // what regexp2 has
	for other, pattern := range tokenizer.Aliases {
		if strings.Contains(other, "&&") {
			continue // TestPreTokenizers has it
		}
		t.Run(other, func(t *testing.T) { compare(t, tokenizer.Split(pattern), all, greedy.Replace(other)) })
	}
}

// byByteLevel returns smallJSON with other steps before the bytes, and its ids of a text by pieces.
func byByteLevel(t *testing.T, steps ...any) func(text string) []string {
	t.Helper()
	f := smallJSON()
	delete(f, "post_processor")
	f["pre_tokenizer"] = file{"type": "Sequence", "pretokenizers": steps}
	var merges []any
	vocab := model(f)["vocab"].(file)
	for c := ' ' + 1; c <= '~'; c++ { // each pair of the same two characters, and "Ġ" with another
		pairs := []string{string(c) + string(c), "Ġ" + string(c)}
		for _, pair := range pairs {
			if vocab[pair] == nil {
				vocab[pair] = len(vocab)
			}
			first, _ := utf8.DecodeRuneInString(pair)
			merges = append(merges, []string{string(first), pair[len(string(first)):]})
		}
	}
	model(f)["merges"] = merges
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromJSON(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) (pieces []string) {
		for _, id := range tok.Encode(text, tokenizer.Options{}) {
			piece, _ := tok.Token(id)
			pieces = append(pieces, piece)
		}
		return pieces
	}
}

// TestSteps reads a Sequence in a Sequence, grouped Digits, and a space before a text.
func TestSteps(t *testing.T) {
	bytes := file{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	inner := file{"type": "Sequence", "pretokenizers": []any{file{"type": "Digits", "individual_digits": true},
		file{"type": "Sequence", "pretokenizers": []any{bytes}}}}
	for _, c := range []struct {
		name, text, want string
		steps            []any
	}{
		{"nested", "aa11", "aa 1 1", []any{inner}},
		{"grouped digits", "a11 11b", "a 11 Ġ 11 b", []any{file{"type": "Digits", "individual_digits": false}, bytes}},
		{"digits by themselves", "a11 11b", "a 1 1 Ġ 1 1 b", []any{file{"type": "Digits", "individual_digits": true}, bytes}},
		{"a space before", "aa bb", "Ġ aa Ġ bb", []any{file{"type": "ByteLevel", "add_prefix_space": true}}},
		{"a space is there", " aa", "Ġ aa", []any{file{"type": "ByteLevel", "add_prefix_space": true}}},
		{"a tab is there", "\ta", "Ġ ĉ a", []any{file{"type": "ByteLevel", "add_prefix_space": true}}},
		{"behind a special token", "<s>aa", "Ġ< s > aa", []any{file{"type": "ByteLevel", "add_prefix_space": true}}},
		{"nothing", "", "", []any{file{"type": "ByteLevel"}}},
	} {
		if got := strings.Join(byByteLevel(t, c.steps...)(c.text), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestNames finds the name of a folder's steps, whatever the family's usual one is.
func TestNames(t *testing.T) {
	split := func(regex string) any {
		return file{"type": "Split", "pattern": file{"Regex": regex}, "behavior": "Isolated"}
	}
	digits := file{"type": "Digits", "individual_digits": true}
	bytes := file{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
	for _, c := range []struct {
		usual, want string
		steps       []any
	}{
		{"llama-bpe", "smollm", []any{digits, file{"type": "ByteLevel", "add_prefix_space": false}}}, // SmolLM
		{"refact", "refact", []any{digits, file{"type": "ByteLevel", "add_prefix_space": false}}},
		{"dbrx", "dbrx", []any{split(words3), bytes}}, // OLMo 2
		{"", "dbrx", []any{split(words3), bytes}},
		{"llama-bpe", "gpt-2", []any{file{"type": "ByteLevel", "add_prefix_space": false}}},
		{"llama-bpe", "gpt-4o", []any{split(cased), bytes}},
		{"llama-bpe", "qwen35", []any{split(llamaCpp[7].patterns[0]), bytes}},
		{"llama-bpe", "kimi-k2", []any{split(llamaCpp[13].patterns[0]), bytes}},
		{"bailingmoe", "bailingmoe", []any{split(`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`), bytes}},
		{"dbrx", "dbrx", []any{split(`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`), bytes}},
	} {
		f := smallJSON()
		f["pre_tokenizer"] = file{"type": "Sequence", "pretokenizers": c.steps}
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		g, _, err := tokenizer.ToGGUF(tokenizer.Files{JSON: b}, 258, false, c.usual, nil)
		if err != nil || g.Pre != c.want {
			t.Errorf("%v beside %q: %q, %v, want %q", c.steps, c.usual, g.Pre, err, c.want)
			continue
		}
		if _, err := tokenizer.ToJSON(g); err != nil {
			t.Errorf("%s: %v", g.Pre, err)
		}
	}
}

// TestMergedNames: vocabularies of characters that have the model and name of one of bytes.
func TestMergedNames(t *testing.T) {
	g := metadata(t, "testdata/vocab/tiny-gemma4.gguf")
	want, err := tokenizer.FromGGUF(g)
	if err != nil || g.Model != tokenizer.Merged {
		t.Fatal(g.Model, err)
	}
	for _, name := range []string{"gemma4", "sarvam-moe", "granite-embed-multi-311m"} {
		g.Model, g.Pre = tokenizer.ByteLevel, name
		got, err := tokenizer.FromGGUF(g)
		if err != nil {
			t.Fatal(err)
		}
		if err := tokenizer.Same(want, got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, text := range hard {
			if a, b := got.Encode(text, tokenizer.Options{}), want.Encode(text, tokenizer.Options{}); !slices.Equal(a, b) {
				t.Errorf("%s: %q has the ids %v, want %v", name, text, a, b)
			}
		}
	}
}

// TestNFKC reads the normalizer, and counts ids by the text that it leaves.
func TestNFKC(t *testing.T) {
	f := smallJSON()
	f["normalizer"] = file{"type": "NFKC"}
	delete(f, "post_processor")
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromJSON(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"\uff41\uff41\u2460": "aa1", "\ufb01\u00bd": "fi1\u20442", "\U0001d400\u0300": "\u00c0", "\u3000aa": " aa"} {
		got := tok.Encode(text, tokenizer.Options{})
		if wanted := tok.Encode(want, tokenizer.Options{}); !slices.Equal(got, wanted) {
			t.Errorf("%q has the ids %v, want %v", text, got, wanted)
		}
		if most := tok.Encode(text, tokenizer.Options{Most: len(got)}); !slices.Equal(most, got) {
			t.Errorf("%q: %v of at most %d ids", text, most, len(got))
		}
	}
	if _, _, err := tokenizer.ToGGUF(tokenizer.Files{JSON: b}, 258, false, "", nil); err == nil || !strings.Contains(err.Error(), "GGUF has no key") {
		t.Errorf("NFKC in GGUF: %v", err)
	}
}

package tokenizer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/tokenizer"
)

// bytesFile returns a tokenizer.json whose vocabulary is the 256 bytes, each with its value as id, and the merges of 1
// with 2.
func bytesFile(t *testing.T, steps string) string {
	t.Helper()
	vocab := map[string]int{"": 256, "12": 257, "--": 258, "a-": 259, "-b": 260}
	for b := range 256 {
		vocab[spell(byte(b))] = b
	}
	v, err := json.Marshal(vocab)
	if err != nil {
		t.Fatal(err)
	}
	return `{"pre_tokenizer": {"type": "Sequence", "pretokenizers": [` + steps + `]}, "model": {"type": "BPE", "vocab": ` +
		string(v) + `, "merges": ["1 2", "- -", "a -", "- b"]}}`
}

// TestPreTokenizerSteps runs steps that publishers put before and behind ByteLevel. The wanted ids are the tokenizers
// library's; a merge shows where a piece goes on.
func TestPreTokenizerSteps(t *testing.T) {
	const bytes = `{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}`
	literal := func(behavior string) string {
		return `{"type": "Split", "pattern": {"String": "-"}, "behavior": "` + behavior + `", "invert": false}, ` + bytes
	}
	for _, x := range []struct {
		name, steps, text string
		want              []int
	}{
		{"an empty token", bytes, "a", []int{'a'}},
		{"Punctuation", `{"type": "Punctuation"}, ` + bytes, "a--b", []int{'a', '-', '-', 'b'}},
		{"Punctuation, contiguous", `{"type": "Punctuation", "behavior": "Contiguous"}, ` + bytes, "a--b", []int{'a', 258, 'b'}},
		{"Digits behind bytes", bytes + `, {"type": "Digits"}`, "а12-b", []int{0xD0, 0xB0, 257, 260}},
		{"each digit behind bytes", bytes + `, {"type": "Digits", "individual_digits": true}`, "12--", []int{'1', '2', 258}},
		{"three digits behind bytes", bytes + `, {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated"}`,
			"00012", []int{'0', '0', '0', 257}},
		{"three digits cut", bytes + `, {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated"}`,
			"00120", []int{'0', '0', '1', '2', '0'}},
		{"Split at a string", literal("Isolated"), "a--b", []int{'a', '-', '-', 'b'}},
		{"Split, contiguous", literal("Contiguous"), "a--b", []int{'a', 258, 'b'}},
		{"Split, with the text before", literal("MergedWithPrevious"), "a--b", []int{259, '-', 'b'}},
		{"Split, with the text behind", literal("MergedWithNext"), "a--b", []int{'a', '-', 260}},
		{"Split at a string that looks like a pattern", strings.ReplaceAll(literal("Isolated"), `"-"`, `"[12]+"`), "12", []int{257}},
	} {
		encodes(t, x.name, bytesFile(t, x.steps), x.text, x.want)
	}
	for steps, place := range map[string]string{
		`{"type": "Punctuation", "behavior": "Removed"}, ` + bytes: "Punctuation",
		bytes + `, {"type": "Punctuation"}`:                        "Punctuation after ByteLevel",
		literal("Removed"):                                         `"-"`,
		bytes + `, {"type": "Split", "pattern": {"Regex": "\\p{N}+"}, "behavior": "Isolated"}`:             "after ByteLevel",
		`{"type": "WhitespaceSplit"}, ` + bytes:                                                            "Whitespace together with ByteLevel",
		`{"type": "Split", "pattern": {"String": "-"}, "behavior": "Isolated", "invert": true}, ` + bytes:  "invert true",
		bytes + `, {"type": "Split", "pattern": {"String": "-"}, "behavior": "Isolated", "invert": false}`: `"-"`,
	} {
		if _, err := tokenizer.FromJSON([]byte(bytesFile(t, steps)), nil); err == nil || !strings.Contains(err.Error(), place) {
			t.Errorf("%s: %v, want an error with %s", steps, err, place)
		}
	}
}

// TestUntypedModels reads models of files that name no type.
func TestUntypedModels(t *testing.T) {
	encodes(t, "Unigram", `{"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": true},
		"model": {"unk_id": 0, "vocab": [["<unk>", 0.0], ["▁", -2.0], ["▁a", -1.0], ["b", -1.5]]}}`, "ab", []int{2, 3})
	encodes(t, "WordPiece", `{"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
		"model": {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
		"vocab": {"[UNK]": 0, "a": 1, "##b": 2}}}`, "ab", []int{1, 2})
}

// TestTiktoken names the format of a tokenizer.model that is not SentencePiece's, as in Llama 3's first folders.
func TestTiktoken(t *testing.T) {
	for file, want := range map[string]string{"IQ== 0\nIg== 1\n": "a list of tiktoken", "IQ==": "offset 0", "IQ== x\n": "offset 0"} {
		if _, err := tokenizer.FromSentencePiece([]byte(file), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", file, err, want)
		}
	}
}

// TestWhitespace reads models of words between white space, without a decoder. The wanted ids and texts are the tokenizers
// library's: a character without a token is <unk>, or nothing where no token is named so, and tokens are joined by spaces.
func TestWhitespace(t *testing.T) {
	file := func(step, unknown string) string {
		return `{"added_tokens": [{"id": 0, "content": "<unk>", "special": true}], "pre_tokenizer": {"type": "` + step + `"},
			"model": {"type": "BPE", "unk_token": ` + unknown + `, "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, ".": 4, "b.": 5}, "merges": ["a b", "b ."]}}`
	}
	for _, x := range []struct {
		step, unknown, text string
		want                []int
		decoded             string
	}{
		{"Whitespace", `"<unk>"`, " ab\n\tba.b.  a", []int{3, 2, 1, 4, 2, 4, 1}, "ab b a . b . a"},
		{"WhitespaceSplit", `"<unk>"`, " ab\n\tba.b.  a", []int{3, 2, 1, 4, 5, 1}, "ab b a . b. a"},
		{"Whitespace", `"<unk>"`, "a\u00e9\u00bdb", []int{1, 0, 0, 2}, "a <unk> <unk> b"},
		{"WhitespaceSplit", `null`, "a\u00e9b", []int{3}, "ab"},
	} {
		encodes(t, x.step, file(x.step, x.unknown), x.text, x.want)
		tok, err := tokenizer.FromJSON([]byte(file(x.step, x.unknown)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(x.want, false); got != x.decoded {
			t.Errorf("%s: %v is %q, want %q", x.step, x.want, got, x.decoded)
		}
		if _, _, err := tokenizer.ToGGUF(tokenizer.Files{JSON: []byte(file(x.step, x.unknown))}, 6, false, "", nil); err == nil ||
			!strings.Contains(err.Error(), "GGUF has no model of them") {
			t.Errorf("%s in GGUF: %v", x.step, err)
		}
	}
}

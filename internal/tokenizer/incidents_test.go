package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// refuse checks that a bad input gives an error that says what is wrong, without a panic, in bounded memory and
// allocations.
func refuse(t *testing.T, load func() (*tokenizer.Tokenizer, error), want string) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := load()
	runtime.ReadMemStats(&after)
	switch {
	case err == nil:
		t.Errorf("no error, want %q", want)
	case !strings.Contains(err.Error(), want):
		t.Errorf("error %q, want %q in it", err, want)
	}
	if bytes, n := after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs; bytes > 64<<20 || n > 1<<20 {
		t.Errorf("%d bytes in %d allocations", bytes, n)
	}
}

// A file is a tokenizer.json, to be spoilt.
type file = map[string]any

// smallJSON returns a valid byte-level tokenizer: the bytes, "aa" and <s>.
func smallJSON() file {
	vocab := file{}
	for b := range 256 {
		vocab[spell(byte(b))] = b
	}
	vocab["aa"], vocab["<s>"] = 256, 257
	return file{
		"added_tokens":  []any{file{"id": 257, "content": "<s>", "special": true}},
		"pre_tokenizer": file{"type": "ByteLevel", "add_prefix_space": false},
		"model":         file{"type": "BPE", "vocab": vocab, "merges": []any{"a a"}},
		"post_processor": file{
			"type":           "TemplateProcessing",
			"single":         []any{file{"SpecialToken": file{"id": "<s>"}}, file{"Sequence": file{"id": "A"}}},
			"special_tokens": file{"<s>": file{"ids": []int{257}}},
		},
	}
}

func (c badJSON) load() (*tokenizer.Tokenizer, error) {
	f := smallJSON()
	c.spoil(f)
	b, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return tokenizer.FromJSON(b, []byte(c.config))
}

type badJSON struct {
	name, want string
	spoil      func(f file)
	config     string
}

func model(f file) file { return f["model"].(file) }

func nothing(file) {}

// splitBy makes the pre-tokenizer a Split by a regular expression.
func splitBy(regex string) func(file) {
	return func(f file) {
		f["pre_tokenizer"] = file{"type": "Sequence", "pretokenizers": []any{
			file{"type": "Split", "pattern": file{"Regex": regex}, "behavior": "Isolated"},
			file{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
		}}
	}
}

var badJSONs = map[string][]badJSON{
	"A9": {
		{"token text of 1 MiB", "1048576 bytes", func(f file) { model(f)["vocab"].(file)[strings.Repeat("x", 1<<20)] = 258 }, ""},
		{"merge of an absent token", `merge 1: "b" + "c" is not in the vocabulary`, func(f file) { model(f)["merges"] = []any{"a a", "b c"} }, ""},
		{"merge of absent parts", `"zz" is not in the vocabulary`, func(f file) { model(f)["merges"] = []any{[]string{"zz", "a"}} }, ""},
		{"merge of one part", "not two tokens", func(f file) { model(f)["merges"] = []any{"aa"} }, ""},
		{"merge of three parts", "not two tokens", func(f file) { model(f)["merges"] = []any{"a a a"} }, ""},
		{"merge of three strings", "not two tokens", func(f file) { model(f)["merges"] = []any{[]string{"a", "a", "a"}} }, ""},
		{"merge that is a number", "merge 0", func(f file) { model(f)["merges"] = []any{7} }, ""},
		{"no merges", "no merges", func(f file) { model(f)["merges"] = []any{} }, ""},
		{"merges missing", "no merges", func(f file) { delete(model(f), "merges") }, ""},
		{"merges an object", "no list", func(f file) { model(f)["merges"] = file{"a": "a"} }, ""},
		{"id twice", `id 97 is that of`, func(f file) { model(f)["vocab"].(file)["aa"] = 97 }, ""},
		{"id far away", "outside a vocabulary", func(f file) { model(f)["vocab"].(file)["aa"] = 1 << 40 }, ""},
		{"id negative", "no valid id", func(f file) { model(f)["vocab"].(file)["aa"] = -1 }, ""},
		{"id a fraction", "no valid id", func(f file) { model(f)["vocab"].(file)["aa"] = 1.5 }, ""},
		{"id a string", "no valid id", func(f file) { model(f)["vocab"].(file)["aa"] = "1" }, ""},
		{"added id far away", "outside a vocabulary", func(f file) { f["added_tokens"].([]any)[0].(file)["id"] = 1 << 31 }, ""},
		{"added id of another", "is that of", func(f file) { f["added_tokens"].([]any)[0].(file)["id"] = 5 }, ""},
		{"added id missing", "outside a vocabulary", func(f file) { delete(f["added_tokens"].([]any)[0].(file), "id") }, ""},
		{"template id out of range", "outside the vocabulary", func(f file) {
			f["post_processor"].(file)["special_tokens"] = file{"<s>": file{"ids": []int{258}}}
		}, ""},
		{"EOS not in the vocabulary", `eos_token: "<eos>" is not in the vocabulary`, nothing, `{"eos_token": "<eos>"}`},
		{"configured id out of range", "outside the vocabulary", nothing, `{"added_tokens_decoder": {"99999999": {"content": "x"}}}`},
		{"configured id negative", "outside the vocabulary", nothing, `{"added_tokens_decoder": {"-1": {"content": "x"}}}`},
		{"BOS without a token", "add_bos_token", func(f file) { delete(f, "post_processor") }, `{"add_bos_token": true}`},
		{"configuration broken", "tokenizer_config.json", nothing, `{"bos_token": 7}`},
	},
	"A13": {
		{"split by a nested repeat", `unknown regular expression "(a+)+"`, splitBy("(a+)+"), ""},
		{"split by a broken expression", `unknown regular expression "("`, splitBy("("), ""},
		{"merge longer than any token", "is not in the vocabulary", func(f file) {
			model(f)["merges"] = []any{"a " + strings.Repeat("a", 1<<16)}
		}, ""},
		{"byte missing, and its stand-in", `unk_token: "<none>" is not in the vocabulary`, func(f file) {
			delete(model(f)["vocab"].(file), "!")
			model(f)["unk_token"] = "<none>"
		}, ""},
		{"fixed length 0", `"FixedLength" is not supported`, func(f file) { f["pre_tokenizer"] = file{"type": "FixedLength", "length": 0} }, ""},
		{"bad charsmap", `"Precompiled" is not supported`, func(f file) {
			f["normalizer"] = file{"type": "Precompiled", "precompiled_charsmap": "////"}
		}, ""},
		{"template of an absent token", `"<t>", which special_tokens lacks`, func(f file) {
			f["post_processor"].(file)["single"] = []any{file{"SpecialToken": file{"id": "<t>"}}, file{"Sequence": file{"id": "A"}}}
		}, ""},
		{"template without text", "without the sequence", func(f file) { f["post_processor"].(file)["single"] = []any{} }, ""},
		{"template of nothing", "neither token nor sequence", func(f file) { f["post_processor"].(file)["single"] = []any{file{}} }, ""},
		{"post-processor unknown", `"Processing" is not supported`, func(f file) { f["post_processor"] = file{"type": "Processing"} }, ""},
		{"post-processor without tokens", "BertProcessing without sep", func(f file) { f["post_processor"] = file{"type": "BertProcessing"} }, ""},
		{"model unigram with bytes", `type "ByteLevel" is not supported here`, func(f file) {
			f["model"] = file{"type": "Unigram", "vocab": []any{[]any{"a", -1.5}}}
		}, ""},
		{"model without vocabulary", "no vocab", func(f file) { f["model"] = file{"type": "BPE", "merges": []any{}} }, ""},
		{"dropout", "dropout", func(f file) { model(f)["dropout"] = 0.1 }, ""},
		{"subword prefix", "continuing_subword_prefix", func(f file) { model(f)["continuing_subword_prefix"] = "##" }, ""},
		{"word suffix", "end_of_word_suffix", func(f file) { model(f)["end_of_word_suffix"] = "</w>" }, ""},
		{"normalizer unknown", `"Lowercase" is not supported`, func(f file) { f["normalizer"] = file{"type": "Lowercase"} }, ""},
		{"replacement without bound", "is not supported", func(f file) {
			f["normalizer"] = file{"type": "Replace", "pattern": file{"String": "a"}, "content": strings.Repeat("a", 1000)}
		}, ""},
		{"decoder unknown", `"WordPiece" is not supported`, func(f file) { f["decoder"] = file{"type": "WordPiece"} }, ""},
		{"sequence in a sequence", `"Lowercase" is not supported`, func(f file) {
			f["normalizer"] = file{"type": "Sequence", "normalizers": []any{file{"type": "Sequence", "normalizers": []any{file{"type": "Lowercase"}}}}}
		}, ""},
		{"sequences in sequences", `"Lowercase" is not supported`, func(f file) {
			f["normalizer"] = json.RawMessage(strings.Repeat(`{"type":"Sequence","normalizers":[`, 3000) + `{"type":"Lowercase"}` + strings.Repeat("]}", 3000))
		}, ""},
		{"steps in steps", "is not supported", func(f file) {
			f["normalizer"] = json.RawMessage(strings.Repeat(`{"normalizers":[`, 4000) + strings.Repeat("]}", 4000))
		}, ""},
	},
}

// badGGUF are spoilt copies of a valid GGUF vocabulary.
var badGGUFs = map[string][]struct {
	name, want string
	spoil      func(g *tokenizer.GGUF)
}{
	"A9": {
		{"token text of 1 MiB", "1048576 bytes", func(g *tokenizer.GGUF) { g.Tokens[300] = strings.Repeat("x", 1<<20) }},
		{"token twice", `"!" is token 0 already`, func(g *tokenizer.GGUF) { g.Tokens[300] = "!" }},
		{"merge of an absent token", "is not in the vocabulary", func(g *tokenizer.GGUF) { g.Merges[7] = "h é" }},
		{"merge without a space", "not two tokens", func(g *tokenizer.GGUF) { g.Merges[7] = "he" }},
		{"merge of nothing", "not two tokens", func(g *tokenizer.GGUF) { g.Merges[7] = "he " }},
		{"no merges", "no merges", func(g *tokenizer.GGUF) { g.Merges = nil }},
		{"no tokens", "no tokens", func(g *tokenizer.GGUF) { g.Tokens, g.Types = nil, nil }},
		{"EOS out of range", "tokenizer.ggml.eos_token_id: id 2048 is outside the vocabulary of 2048", func(g *tokenizer.GGUF) { *g.EOS = 2048 }},
		{"BOS negative", "tokenizer.ggml.bos_token_id: id -1", func(g *tokenizer.GGUF) { *g.BOS = -1 }},
		{"EOT out of range", "eot_token_id", func(g *tokenizer.GGUF) { id := math.MaxInt; g.EOT = &id }},
		{"EOM out of range", "eom_token_id", func(g *tokenizer.GGUF) { id := 1 << 32; g.EOM = &id }},
		{"BOS missing", "there is no bos_token_id", func(g *tokenizer.GGUF) { g.BOS = nil }},
		{"EOS missing", "there is no eos_token_id", func(g *tokenizer.GGUF) { yes := true; g.EOS, g.AddEOS = nil, &yes }},
		{"types too few", "2047 types for 2048 tokens", func(g *tokenizer.GGUF) { g.Types = g.Types[:2047] }},
		{"type unknown", "token 9: unknown type 7", func(g *tokenizer.GGUF) { g.Types[9] = 7 }},
		{"byte that is none", `a byte, spelled "aa"`, func(g *tokenizer.GGUF) { g.Tokens[9], g.Types[9] = "aa", 6 }},
		{"type negative", "unknown type -1", func(g *tokenizer.GGUF) { g.Types[9] = -1 }},
		{"model unknown", `"rwkv" is not supported`, func(g *tokenizer.GGUF) { g.Model = "rwkv" }},
	},
	"A13": {
		{"byte of a merge missing", `"!" is not in the vocabulary`, func(g *tokenizer.GGUF) { g.Tokens[0] = "🙂" }},
		{"pre-tokenizer unknown", `unknown pre-tokenizer "(a+)+"`, func(g *tokenizer.GGUF) { g.Pre = "(a+)+" }},
		{"pre-tokenizer missing", "tokenizer.ggml.pre is missing", func(g *tokenizer.GGUF) { g.Pre = "" }},
	},
}

var badScores = map[string][]struct {
	name, want string
	spoil      func(g *tokenizer.GGUF)
}{
	"A9": {
		{"score NaN", "token 1500: its score is NaN", func(g *tokenizer.GGUF) { g.Scores[1500] = float32(math.NaN()) }},
		{"scores too few", "2047 scores for 2048 tokens", func(g *tokenizer.GGUF) { g.Scores = g.Scores[:2047] }},
		{"tokens too long", "too long", func(g *tokenizer.GGUF) {
			for i := 300; i < 1000; i++ {
				g.Tokens[i] = fmt.Sprint(i, strings.Repeat("x", 4000))
			}
		}},
	},
	"A13": {
		{"byte missing", "no byte token <0x41>", func(g *tokenizer.GGUF) {
			i := slices.Index(g.Tokens, "<0x41>")
			g.Tokens[i], g.Types[i] = "🙂", 1
		}},
	},
}

// TestIncidents holds the incidents of other tokenizers: A9 is CVE-2025-49847 and GHSA-7rxv-5jhh-j6xx of llama.cpp, A13
// are issues 2060, 2094, 2198 and 2151 of Hugging Face's tokenizers, 568 and 245 of tiktoken.
func TestIncidents(t *testing.T) {
	if _, err := (badJSON{spoil: nothing}).load(); err != nil {
		t.Fatalf("the file to be spoilt: %v", err)
	}
	for _, incident := range []string{"A9", "A13"} {
		t.Run(incident, func(t *testing.T) {
			for _, c := range badJSONs[incident] {
				t.Run("json "+c.name, func(t *testing.T) { refuse(t, c.load, c.want) })
			}
			for _, c := range badGGUFs[incident] {
				t.Run("gguf "+c.name, func(t *testing.T) {
					g := metadata(t, "testdata/vocab/tiny-llama.gguf")
					c.spoil(&g)
					refuse(t, func() (*tokenizer.Tokenizer, error) { return tokenizer.FromGGUF(g) }, c.want)
				})
			}
			for _, c := range badScores[incident] {
				t.Run("gguf "+c.name, func(t *testing.T) {
					g := metadata(t, "testdata/vocab/tiny-gemma3.gguf")
					c.spoil(&g)
					refuse(t, func() (*tokenizer.Tokenizer, error) { return tokenizer.FromGGUF(g) }, c.want)
				})
			}
			incidentsSentencePiece(t, incident)
		})
	}
	t.Run("A13/lists without end", func(t *testing.T) {
		for _, open := range []string{`{"normalizer":`, `{"added_tokens":[`, `{"model":{"merges":[`, `{"model":{"vocab":{"a":`, "["} {
			for _, b := range []string{strings.Repeat(open, 1<<18), open + strings.Repeat("[", 1<<20), open} {
				refuse(t, func() (*tokenizer.Tokenizer, error) { return tokenizer.FromJSON([]byte(b), nil) }, "JSON")
			}
		}
	})
	t.Run("A9/piece longer than a buffer", func(t *testing.T) {
		f := smallJSON()
		vocab := model(f)["vocab"].(file)
		var merges []any
		for n := 2; n <= 4096; n *= 2 {
			vocab[strings.Repeat("a", n)] = 258 + n
			merges = append(merges, []string{strings.Repeat("a", n/2), strings.Repeat("a", n/2)})
		}
		model(f)["merges"] = merges
		b, _ := json.Marshal(f)
		tok, err := tokenizer.FromJSON(b, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("a", 10000)
		ids := tok.Encode(text, tokenizer.Options{})
		if want := []int{258 + 4096, 258 + 4096, 258 + 1024, 258 + 512, 258 + 256, 258 + 16}; !slices.Equal(ids, want) {
			t.Errorf("%v, want %v", ids, want)
		}
		if got := tok.Decode(ids, false); got != text {
			t.Errorf("decoded %d bytes", len(got))
		}
	})
	t.Run("A13/a million of one letter", func(t *testing.T) {
		for _, name := range []string{"tiny-llama", "tiny-gemma4"} {
			tok := fromJSON(t, golden.Model(t, name))
			for _, unit := range []string{"^", "a"} {
				text := strings.Repeat(unit, 1_000_000)
				ids := tok.Encode(text, tokenizer.Options{})
				if n := tok.Steps(text); n > 32*len(text) {
					t.Errorf("%s: %q: %d steps", name, unit, n)
				}
				if tok.Decode(ids, false) != text {
					t.Errorf("%s: %q: another text decoded", name, unit)
				}
			}
		}
	})
}

// spPiece returns a SentencePiece message of a ModelProto.
func spPiece(text string, score float32, kind int) string {
	bits := math.Float32bits(score)
	body := "\x0a" + varint(len(text)) + text + "\x15" + string([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)}) + "\x18" + varint(kind)
	return "\x0a" + varint(len(body)) + body
}

func varint(n int) string {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return string(append(b, byte(n)))
}

// smallSP returns a valid tokenizer.model, with parts to be left out or replaced.
func smallSP(drop string, replace string) []byte {
	var b strings.Builder
	add := func(name, text string) {
		if name == drop {
			text = replace
		}
		b.WriteString(text)
	}
	add("unk", spPiece("<unk>", 0, 2)+spPiece("<s>", 0, 3)+spPiece("</s>", 0, 3))
	for i := range 256 {
		add(fmt.Sprint("byte", i), spPiece(fmt.Sprintf("<0x%02X>", i), 0, 6))
	}
	add("piece", spPiece("ab", -1, 1))
	add("trainer", "\x12\x05\x18\x02\x98\x02\x01") // model_type BPE, byte_fallback
	add("normalizer", "\x1a\x04\x18\x00\x20\x00")  // no dummy prefix, extra spaces stay
	return []byte(b.String())
}

func incidentsSentencePiece(t *testing.T, incident string) {
	if _, err := tokenizer.FromSentencePiece(smallSP("", ""), nil); err != nil {
		t.Fatalf("the tokenizer.model to be spoilt: %v", err)
	}
	for _, c := range map[string][]struct {
		name, want    string
		drop, replace string
		config        string
	}{
		"A9": {
			{"token text of 1 MiB", "1048576 bytes", "piece", spPiece(strings.Repeat("x", 1<<20), 0, 1), ""},
			{"score NaN", "its score is NaN", "piece", spPiece("ab", float32(math.NaN()), 1), ""},
			{"piece twice", "already", "piece", spPiece("<s>", 0, 1), ""},
			{"piece empty", "is no text", "piece", spPiece("", 0, 1), ""},
			{"piece no UTF-8", "is no text", "piece", spPiece("\xff", 0, 1), ""},
			{"type unknown", "unknown type 9", "piece", spPiece("ab", 0, 9), ""},
			{"EOS out of range", "eos_id: id 5000", "trainer", "\x12\x09\x18\x02\x98\x02\x01\xd0\x02\x88\x27", ""},
			{"length beyond the end", "are left", "normalizer", "\x1a\xff\xff\xff\xff\x0f", ""},
			{"length overflow", "are left", "normalizer", "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", ""},
			{"varint without end", "no protobuf field", "normalizer", strings.Repeat("\xff", 11), ""},
			{"wire type", "wire type 3", "normalizer", "\x1b", ""},
			{"BOS not in the vocabulary", "bos_token", "", "", `{"bos_token": {"content": "<bos>"}}`},
		},
		"A13": {
			{"byte missing", "no byte token <0x41>", "byte65", "", ""},
			{"no byte fallback", "byte_fallback", "trainer", "\x12\x02\x18\x02", ""},
			{"model unigram", "(UNIGRAM) is not supported", "trainer", "\x12\x02\x18\x01", ""},
			{"model unknown", "model_type 99", "trainer", "\x12\x02\x18\x63", ""},
			{"bad charsmap", "precompiled_charsmap (3 bytes)", "normalizer", "\x1a\x07\x12\x03abc\x20\x00", ""},
			{"extra spaces", "remove_extra_whitespaces", "normalizer", "", ""},
			{"spaces as suffix", "treat_whitespace_as_suffix", "trainer", "\x12\x08\x18\x02\x98\x02\x01\xc0\x01\x01", ""},
		},
	}[incident] {
		t.Run("sentencepiece "+c.name, func(t *testing.T) {
			b := smallSP(c.drop, c.replace)
			refuse(t, func() (*tokenizer.Tokenizer, error) { return tokenizer.FromSentencePiece(b, []byte(c.config)) }, c.want)
		})
	}
}

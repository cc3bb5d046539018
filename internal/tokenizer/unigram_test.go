package tokenizer_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// unigrams returns GGUF's metadata of pieces, whose scores fall by one from -1 on.
func unigrams(pieces []string, charsmap []byte) tokenizer.GGUF {
	g := tokenizer.GGUF{Model: tokenizer.Unigram, Tokens: []string{"<s>", "<pad>", "</s>", "<unk>"}, Types: []int32{3, 3, 3, 2}, Scores: make([]float32, 4),
		BOS: new(0), EOS: new(2), UNK: new(3), AddBOS: new(true), CharsMap: charsmap}
	for i, text := range pieces {
		g.Tokens, g.Types, g.Scores = append(g.Tokens, text), append(g.Types, int32(tokenizer.Normal)), append(g.Scores, float32(-1-i))
	}
	return g
}

// small returns a charsmap that spm_train of SentencePiece 0.1.97 compiled of 15 rules.
func small(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/unigram/charsmap.bin")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pieces returns the tokens of a text.
func pieces(tok *tokenizer.Tokenizer, text string) (list []string) {
	for _, id := range tok.Encode(text, tokenizer.Options{}) {
		piece, _ := tok.Token(id)
		list = append(list, piece)
	}
	return list
}

// TestUnigram: the best way through a word, unknown characters, spaces, and what a charsmap makes of characters.
func TestUnigram(t *testing.T) {
	vocabulary := []string{"▁a", "b", "▁", "▁ab", "ab", "cd", "bc", "d", "f", "x", "Á", "/", "1", "2", "カ", "c"}
	tok, err := tokenizer.FromGGUF(unigrams(vocabulary, small(t)))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		"ab":            {"▁a", "b"}, // -3 is more than -4 of ▁ab
		"abcd":          {"▁a", "b", "cd"},
		"ab  \u00a0ab":  {"▁a", "b", "▁a", "b"},
		"a▁a":           {"▁a", "▁a"},
		"a☃☃b":          {"▁a", "<unk>", "b"}, // side by side they are one
		"☃ ☃":           {"▁", "<unk>", "▁", "<unk>"},
		"a<s>":          {"▁a", "<unk>"},
		"½":             {"▁", "1", "/", "2"},
		"A\u0301\u200b": {"▁", "Á"},
		"ﬀ\u0301x":      {"▁", "f", "f", "x"}, // a cluster of five bytes is replaced whole by what its beginning becomes
		"ｶ\uff9e":       {"▁", "カ", "<unk>"},  // one of six is not
		"Ａ\u0301":       {"▁", "<unk>"},       // A, which is no piece
		"\t a \n":       {"▁a"},
		"":              nil,
		" ":             nil,
		"a\xffb":        {"▁a", "<unk>", "b"},
	} {
		if got := pieces(tok, text); !slices.Equal(got, want) {
			t.Errorf("%+q: %q, want %q", text, got, want)
		}
	}
	ids := tok.Encode("ab cd", tokenizer.Options{AddSpecial: true})
	if text := tok.Decode(ids, true); text != "ab cd" || ids[0] != 0 || ids[len(ids)-1] != 2 {
		t.Errorf("%v is %q", ids, text)
	}
	long := strings.Repeat("a", 1<<20)
	if _, err := collect(t.Context(), tok, long, tokenizer.Options{Most: 8}); err != nil {
		t.Errorf("a long unknown word: %v", err)
	}
	g := unigrams([]string{"▁", "<0xE2>", "<0x98>", "<0x83>"}, nil)
	g.Types[5], g.Types[6], g.Types[7] = int32(tokenizer.Byte), int32(tokenizer.Byte), int32(tokenizer.Byte)
	if tok, err = tokenizer.FromGGUF(g); err != nil {
		t.Fatal(err)
	}
	if got := pieces(tok, "☃"); !slices.Equal(got, []string{"▁", "<0xE2>", "<0x98>", "<0x83>"}) || tok.Decode(tok.Encode("☃", tokenizer.Options{}), true) != "☃" {
		t.Errorf("bytes: %q", got)
	}
}

// TestUnigramFolder: a tokenizer.json gives the ids of the metadata that becomes of it, with a charsmap, too.
func TestUnigramFolder(t *testing.T) {
	dir := filepath.Join(golden.Repo(t), "encoders", "xlm-roberta-reranker")
	var pairs []struct {
		Text [2]string
		IDs  []int
	}
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(b, &pairs)
	}
	if err != nil {
		t.Fatal(err)
	}
	var f tokenizer.Files
	f.JSON, _ = os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	f.Config, _ = os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	folder, err := tokenizer.FromJSON(f.JSON, f.Config)
	if err != nil {
		t.Fatal(err)
	}
	g, notes, err := tokenizer.ToGGUF(f, 512, false, "", nil)
	if err != nil || len(notes) != 1 {
		t.Fatal(notes, err)
	}
	file, err := tokenizer.FromGGUF(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range []*tokenizer.Tokenizer{folder, file} {
		for i, p := range pairs {
			ids, kinds := tok.Pair(tok.Encode(p.Text[0], tokenizer.Options{}), tok.Encode(p.Text[1], tokenizer.Options{}))
			if !slices.Equal(ids, p.IDs) || slices.Max(kinds) != 0 {
				t.Errorf("pair %d: ids %v of kinds %v, want %v", i, ids, kinds, p.IDs)
			}
		}
	}
	charsmap, err := json.Marshal(small(t))
	if err != nil {
		t.Fatal(err)
	}
	steps := `{"type":"Precompiled","precompiled_charsmap":` + string(charsmap) + `},{"type":"Strip","strip_left":false,"strip_right":true},`
	f.JSON = bytes.Replace(f.JSON, []byte(`{"type":"NFKC"},`), []byte(steps), 1)
	mapped, notes, err := tokenizer.ToGGUF(f, 512, false, "", nil)
	if err != nil || len(notes) != 0 || !bytes.Equal(mapped.CharsMap, small(t)) {
		t.Errorf("with a charsmap: %v, %v", notes, err)
	}
	for _, g := range []tokenizer.GGUF{g, mapped} {
		unigramBack(t, g, pairs[0].Text)
	}
}

// unigramBack: a folder's files made of the metadata give its ids, and its pairs, and become the metadata again.
func unigramBack(t *testing.T, g tokenizer.GGUF, text [2]string) {
	t.Helper()
	here, err := tokenizer.FromGGUF(g)
	if err != nil {
		t.Fatal(err)
	}
	f, err := tokenizer.ToJSON(g)
	if err != nil {
		t.Fatal(err)
	}
	there, err := tokenizer.FromJSON(f.JSON, f.Config)
	if err != nil {
		t.Fatal(err)
	}
	sameIDs(t, here, there) // its two </s> are both an end in GGUF
	a, b := here.Encode(text[0], tokenizer.Options{}), here.Encode(text[1], tokenizer.Options{})
	ids, kinds := here.Pair(a, b)
	if back, same := there.Pair(a, b); !slices.Equal(ids, back) || !slices.Equal(kinds, same) {
		t.Errorf("the pair %v of kinds %v became %v of %v", ids, kinds, back, same)
	}
	again, _, err := tokenizer.ToGGUF(f, len(g.Tokens), false, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeOf(g).NumField() {
		if x, y := reflect.ValueOf(g).Field(i).Interface(), reflect.ValueOf(again).Field(i).Interface(); !reflect.DeepEqual(x, y) {
			t.Errorf("%s changed", reflect.TypeOf(g).Field(i).Name)
		}
	}
}

// TestUnigramBack: settings that XLM-RoBERTa does not have, and tokens that no tokenizer.json of Unigram can have.
func TestUnigramBack(t *testing.T) {
	named := []string{"▁", "a", "▁a", "<0x61>", "[PAD8]"}
	for _, c := range []struct {
		edit func(g *tokenizer.GGUF)
		err  string
	}{
		{func(g *tokenizer.GGUF) {}, ""},
		{func(g *tokenizer.GGUF) { g.MergeSpaces, g.AddSpacePrefix = new(false), new(false) }, ""},
		{func(g *tokenizer.GGUF) { g.Types[7] = int32(tokenizer.Byte) }, ""},
		{func(g *tokenizer.GGUF) { g.Types[8] = int32(tokenizer.Unused) }, ""}, // the last
		{func(g *tokenizer.GGUF) { g.Types[5] = int32(tokenizer.Unused) }, `token 5 ("a") is unused`},
		{func(g *tokenizer.GGUF) { g.Types[5] = int32(tokenizer.UserDefined) }, ""},
		{func(g *tokenizer.GGUF) { g.Types[6] = int32(tokenizer.UserDefined) }, `token 6 ("▁a") is user-defined`},
	} {
		g := unigrams(named, small(t))
		c.edit(&g)
		f, err := tokenizer.ToJSON(g)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %s", err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.err, err)
			continue
		}
		here, _ := tokenizer.FromGGUF(g)
		there, err := tokenizer.FromJSON(f.JSON, f.Config)
		if err != nil {
			t.Fatal(err)
		}
		agree(t, here, there)
		for _, text := range []string{"a a  a", "aa", "\u2603a"} {
			ids := here.Encode(text, tokenizer.Options{})
			if x, y := here.Decode(ids, false), there.Decode(ids, false); x != y {
				t.Errorf("%q: %q became %q", text, x, y)
			}
		}
	}
}

// TestCharsMaps: charsmaps that are none, and some that lead anywhere.
func TestCharsMaps(t *testing.T) {
	good := small(t)
	edited := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return b
	}
	size := int(binary.LittleEndian.Uint32(good)) + 4
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":              {[]byte{}, "0 bytes, want 4"},
		"short":              {good[:3], "3 bytes, want 4"},
		"cut":                {good[:size-1], "want a multiple of 4 up to"},
		"no trie":            {edited(0, 0, 0, 0, 0), "a trie of 0 bytes"},
		"odd":                {edited(0, 3), "want a multiple of 4"},
		"large":              {edited(0, 0xFC, 0xFF, 0xFF, 0xFF), "a trie of 4294967292 bytes"},
		"no UTF-8":           {edited(size, 0xFF), "its replacements are not UTF-8"},
		"a long replacement": {append(bytes.Clone(good), bytes.Repeat([]byte{'a'}, 2000)...), "replacement at byte"},
	} {
		_, err := tokenizer.FromGGUF(unigrams([]string{"▁"}, c.data))
		if err == nil || !strings.Contains(err.Error(), "tokenizer.ggml.precompiled_charsmap: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for at := 4; at < size-1; at++ {
		tok, err := tokenizer.FromGGUF(unigrams([]string{"▁", "a"}, edited(at, 0xFF, 0xFF)))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"½ﷺ①", "e\u0301Ａ\t"} {
			use(t, tok, text)
		}
	}
}

// TestPairs: two texts with the special tokens and the kinds of each post-processor.
func TestPairs(t *testing.T) {
	base := `{"model":{"type":"WordPiece","continuing_subword_prefix":"##","unk_token":"[UNK]","vocab":{"[UNK]":0,"[CLS]":1,"[SEP]":2,"a":3,"b":4}},
		"normalizer":{"type":"BertNormalizer"},"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":`
	template := `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"[CLS]","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
		"pair":[{"Sequence":{"id":"B","type_id":1}},{"SpecialToken":{"id":"[SEP]","type_id":1}},{"Sequence":{"id":"A","type_id":0}}],
		"special_tokens":{"[CLS]":{"id":"[CLS]","ids":[1]},"[SEP]":{"id":"[SEP]","ids":[2]}}}`
	for _, c := range []struct {
		post   string
		single []int
		ids    []int
		kinds  []uint8
		err    string
	}{
		{`null`, []int{3}, []int{3, 4, 4}, []uint8{0, 1, 1}, ""},
		{`{"type":"BertProcessing","sep":["[SEP]",2],"cls":["[CLS]",1]}`, []int{1, 3, 2}, []int{1, 3, 2, 4, 4, 2}, []uint8{0, 0, 0, 1, 1, 1}, ""},
		{`{"type":"RobertaProcessing","sep":["[SEP]",2],"cls":["[CLS]",1]}`, []int{1, 3, 2}, []int{1, 3, 2, 2, 4, 4, 2}, []uint8{0, 0, 0, 0, 0, 0, 0}, ""},
		{template, []int{1, 3}, []int{4, 4, 2, 3}, []uint8{1, 1, 1, 0}, ""},
		{strings.Replace(template, `"id":"B"`, `"id":"A"`, 1), nil, nil, nil, "sequences A and B once each"},
		{strings.Replace(template, `"ids":[2]`, `"ids":[9]`, 1), nil, nil, nil, "id 9 is outside"},
		{`{"type":"BertProcessing","sep":["[SEP]",2]}`, nil, nil, nil, "BertProcessing without cls"},
		{`{"type":"BertProcessing","sep":["[SEP]"],"cls":["[CLS]",1]}`, nil, nil, nil, "no token and its id"},
	} {
		tok, err := tokenizer.FromJSON([]byte(base+c.post+"}"), nil)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.post, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if single := tok.Encode("a", tokenizer.Options{AddSpecial: true}); !slices.Equal(single, c.single) {
			t.Errorf("%s: %v, want %v", c.post, single, c.single)
		}
		ids, kinds := tok.Pair([]int{3}, []int{4, 4})
		if !slices.Equal(ids, c.ids) || !slices.Equal(kinds, c.kinds) || tok.PairExtra() != len(c.ids)-3 {
			t.Errorf("%s: %v of kinds %v, want %v and %v", c.post, ids, kinds, c.ids, c.kinds)
		}
	}
	g := wordPieces([]string{"▁a", "▁b"}, true)
	tok, err := tokenizer.FromGGUF(g)
	if err != nil {
		t.Fatal(err)
	}
	if ids, kinds := tok.Pair([]int{4}, []int{5}); !slices.Equal(ids, []int{2, 4, 3, 5, 3}) || !slices.Equal(kinds, []uint8{0, 0, 0, 1, 1}) {
		t.Errorf("GGUF's WordPiece: %v of kinds %v", ids, kinds)
	}
}

func FuzzUnigram(f *testing.F) {
	f.Add("▁a\nb\n▁ab", small(f), true, "ab ½ ☃ﬀ\u0301x")
	f.Add("▁\n<0x61>\na", []byte{}, false, "a\xff e\u0301")
	f.Fuzz(func(t *testing.T, vocabulary string, charsmap []byte, spaces bool, text string) {
		g := unigrams(strings.Split(vocabulary, "\n"), charsmap)
		if g.MergeSpaces = &spaces; len(charsmap) == 0 {
			g.CharsMap = nil
		}
		tok, err := tokenizer.FromGGUF(g)
		if err != nil || len(text) >= 1<<12 {
			return
		}
		use(t, tok, text)
		f, err := tokenizer.ToJSON(g)
		if err != nil {
			return
		}
		back, err := tokenizer.FromJSON(f.JSON, f.Config)
		if err != nil {
			t.Fatal(err)
		}
		o := tokenizer.Options{AddSpecial: true}
		if x, y := tok.Encode(text, o), back.Encode(text, o); !slices.Equal(x, y) {
			t.Fatalf("%+q: %v became %v", text, x, y)
		}
	})
}

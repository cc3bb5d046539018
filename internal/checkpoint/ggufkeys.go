package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tokenizer"
)

const tokenizerPrefix = "tokenizer.ggml."

// noToken stands for no token where a file has llama.cpp's LLAMA_TOKEN_NULL (-1) as a uint32.
const noToken = math.MaxUint32

// tokenKeys are the tokenizer's ids and flags, in the order in which llama.cpp's
// converter writes them.
func tokenKeys(g *tokenizer.GGUF) (ids []idKey, flags []flagKey) {
	return []idKey{{"bos_token_id", &g.BOS}, {"eos_token_id", &g.EOS}, {"unknown_token_id", &g.UNK}, {"seperator_token_id", &g.SEP},
			{"padding_token_id", &g.PAD}, {"cls_token_id", &g.CLS}, {"mask_token_id", &g.Mask}, {"eot_token_id", &g.EOT}, {"eom_token_id", &g.EOM}},
		[]flagKey{{"add_bos_token", &g.AddBOS}, {"add_eos_token", &g.AddEOS}, {"add_sep_token", &g.AddSEP}, {"add_space_prefix", &g.AddSpacePrefix},
			{"remove_extra_whitespaces", &g.MergeSpaces}, {"normalizer.lowercase", &g.Lowercase}, {"normalizer.nfc", &g.NFC}, {"normalizer.nfkc", &g.NFKC}}
}

type idKey struct {
	key string
	id  **int
}

type flagKey struct {
	key  string
	flag **bool
}

// metadataTokenizer reads a file's tokenizer metadata.
func metadataTokenizer(m gguf.Metadata) (g tokenizer.GGUF, err error) {
	var types, strips []int64
	var scores []float64
	errs := []error{
		optional(&g.Model, m.String, "model"), optional(&g.Pre, m.String, "pre"),
		optional(&g.Tokens, m.Strings, "tokens"), optional(&g.Merges, m.Strings, "merges"),
		optional(&types, m.Ints, "token_type"), optional(&strips, m.Ints, "token_flags"), optional(&scores, m.Floats, "scores"),
	}
	ids, flags := tokenKeys(&g)
	for _, k := range ids {
		var id *int64
		errs = append(errs, optional(&id, pointer(m.Int), k.key))
		if id != nil && *id != -1 && *id != noToken {
			n := int(*id)
			*k.id = &n
		}
	}
	for _, k := range flags {
		errs = append(errs, optional(k.flag, pointer(m.Bool), k.key))
	}
	errs = append(errs, charsMap(&g, m))
	if err := errors.Join(errs...); err != nil {
		return g, err
	}
	for i, v := range types {
		if v != int64(int32(v)) {
			return g, fmt.Errorf("key tokenizer.ggml.token_type: %d for token %d is no type", v, i)
		}
		g.Types = append(g.Types, int32(v))
	}
	for _, v := range strips {
		g.Flags = append(g.Flags, int32(v))
	}
	arch, _ := m.String("general.architecture")
	if f := registry.Find(arch); f != nil && strips == nil && f.Tokenizer.Strips && g.Model == tokenizer.SentencePiece {
		g.Flags = stripped(g)
	}
	for _, v := range scores {
		g.Scores = append(g.Scores, float32(v))
	}
	return g, nil
}

// stripped returns the flags of a family whose special tokens take the white space after them, for which GGUF has no key
// (llama_vocab::impl::load in llama.cpp/src/llama-vocab.cpp).
func stripped(g tokenizer.GGUF) (flags []int32) {
	for id, text := range g.Tokens {
		if id >= len(g.Types) {
			break
		}
		switch k := tokenizer.Kind(g.Types[id]); {
		case text == "<unk>" || text == "<s>" || text == "<|endoftext|>":
		case text == "</s>", k == tokenizer.Control, k == tokenizer.Unknown, k == tokenizer.UserDefined:
			flags = append(flags, int32(id), tokenizer.RStrip)
		}
	}
	return flags
}

// charsMap reads the precompiled charsmap, an array of bytes.
func charsMap(g *tokenizer.GGUF, m gguf.Metadata) error {
	const key = tokenizerPrefix + "precompiled_charsmap"
	v, ok := m.Lookup(key)
	if !ok {
		return nil
	}
	if e := v.Elem(); v.Type() != gguf.Array || e != gguf.Uint8 && e != gguf.Int8 {
		return fmt.Errorf("key %s: want an array of bytes", key)
	}
	x, err := v.Any()
	if err != nil {
		return err
	}
	switch list := x.(type) {
	case []byte:
		g.CharsMap = list
	case []int8:
		g.CharsMap = make([]byte, len(list))
		for i, b := range list {
			g.CharsMap[i] = byte(b)
		}
	}
	return nil
}

// optional sets to from the tokenizer's key; a key that is absent leaves it.
func optional[T any](to *T, get func(key string) (T, error), key string) error {
	v, err := get(tokenizerPrefix + key)
	if errors.Is(err, gguf.ErrNoKey) {
		return nil
	}
	*to = v
	return err
}

// pointer makes a getter's value tell absent from zero.
func pointer[T any](get func(key string) (T, error)) func(key string) (*T, error) {
	return func(key string) (*T, error) {
		v, err := get(key)
		return &v, err
	}
}

// tokenizerMetadata is the inverse of metadataTokenizer.
func tokenizerMetadata(g tokenizer.GGUF) (keys []gguf.KeyValue) {
	put := func(key string, v any) { keys = append(keys, gguf.KeyValue{Key: tokenizerPrefix + key, Value: v}) }
	put("model", g.Model)
	if g.Pre != "" {
		put("pre", g.Pre)
	}
	put("tokens", g.Tokens)
	if g.Scores != nil {
		put("scores", g.Scores)
	}
	put("token_type", g.Types)
	if g.Flags != nil {
		put("token_flags", g.Flags)
	}
	if g.CharsMap != nil {
		put("precompiled_charsmap", g.CharsMap)
	}
	if g.Merges != nil {
		put("merges", g.Merges)
	}
	ids, flags := tokenKeys(&g)
	for _, k := range ids {
		if *k.id != nil {
			put(k.key, uint32(**k.id))
		}
	}
	for _, k := range flags {
		if *k.flag != nil {
			put(k.key, **k.flag)
		}
	}
	return keys
}

// samplingKeys are GGUF's names of a recommendation's numbers.
func (g *Generation) samplingKeys() []samplingKey {
	return []samplingKey{{"temp", &g.Temperature}, {"top_p", &g.TopP}, {"min_p", &g.MinP}, {"penalty_repeat", &g.Repeat}}
}

type samplingKey struct {
	key   string
	value *float64
}

const samplingPrefix = "general.sampling."

// read reads the recommendation of a GGUF file, which has no list of ids that end
// a turn. One that has a temperature or a bound is one to sample.
func (g *Generation) read(m gguf.Metadata) error {
	var topK float64
	for _, k := range append(g.samplingKeys(), samplingKey{"top_k", &topK}) {
		v, ok := m.Lookup(samplingPrefix + k.key)
		if !ok {
			continue
		}
		x, err := v.Any()
		if err != nil {
			return err
		}
		n, ok := number(reflect.ValueOf(x))
		if !ok || math.IsNaN(n) || n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("key %s%s is %s, expected a number from 0", samplingPrefix, k.key, family.Show(x))
		}
		*k.value = n
	}
	g.TopK = int(topK)
	g.Sample = g.Temperature > 0 || g.TopK > 0 || g.TopP > 0 || g.MinP > 0
	return nil
}

// metadata is the inverse of read.
func (g Generation) metadata() (keys []gguf.KeyValue) {
	if g.TopK > 0 && g.Sample {
		keys = append(keys, gguf.KeyValue{Key: samplingPrefix + "top_k", Value: int32(g.TopK)})
	}
	for _, k := range g.samplingKeys() {
		if *k.value != 0 && (g.Sample || k.value == &g.Repeat) {
			keys = append(keys, gguf.KeyValue{Key: samplingPrefix + k.key, Value: float32(*k.value)})
		}
	}
	return keys
}

// TextGGUF is what a GGUF file says about text: the recommended sampling, the
// tokenizer and the chat template. The notes tell what it cannot say.
func (c *Checkpoint) TextGGUF() (keys []gguf.KeyValue, notes []string, err error) {
	if _, err := c.Tokenizer(); err != nil {
		return nil, nil, err
	}
	g, notes, err := c.text.gguf()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	keys = append(c.text.generation.metadata(), tokenizerMetadata(g)...)
	if n := c.settings.Int("type_vocab_size"); n > 0 {
		keys = append(keys, gguf.KeyValue{Key: tokenizerPrefix + "token_type_count", Value: uint32(n)})
	}
	if c.text.template != "" {
		keys = append(keys, gguf.KeyValue{Key: "tokenizer.chat_template", Value: c.text.template})
	}
	return keys, notes, nil
}

// tokenizerToGGUF translates the tokenizer of a Hugging Face folder. The ids that
// end a turn and are not known to by their names take the keys of eot and eom.
func (c *Checkpoint) tokenizerToGGUF(config []byte) (g tokenizer.GGUF, notes []string, err error) {
	f, err := tokenizerFiles(c.Path, c.maxTokenizer())
	if err != nil {
		return g, nil, err
	}
	if g, notes, err = tokenizer.ToGGUF(f, c.settings.Int("vocab_size"), c.family.Tokenizer.Merged, c.family.Tokenizer.Pre, specialIDs(config)); err != nil {
		return g, nil, err
	}
	t, err := tokenizer.FromGGUF(g)
	if err != nil {
		return g, nil, err
	}
	if err := c.sameNames(t); err != nil {
		return g, nil, err
	}
	known := t.EndOfTurn()
	for _, id := range c.text.generation.End {
		switch {
		case slices.Contains(known, id):
		case g.EOT == nil:
			g.EOT = &id
		case g.EOM == nil:
			g.EOM = &id
		default:
			notes = append(notes, fmt.Sprintf("generation_config.json: eos_token_id: GGUF has no key for %d, the third that ends a turn and has no known name", id))
		}
	}
	for _, id := range c.text.generation.Suppress {
		notes = append(notes, fmt.Sprintf("generation_config.json: suppress_tokens: GGUF has no key for %d", id))
	}
	return g, notes, nil
}

// sameNames compares BOS and EOS of a GGUF file with the folder's where the chat template writes them by name.
func (c *Checkpoint) sameNames(t *tokenizer.Tokenizer) error {
	folder, err := c.Tokenizer()
	if err != nil {
		return err
	}
	for _, x := range []struct {
		name string
		id   func(*tokenizer.Tokenizer) (int, bool)
	}{{"bos_token", (*tokenizer.Tokenizer).BOS}, {"eos_token", (*tokenizer.Tokenizer).EOS}} {
		was, ok := x.id(folder)
		is, _ := x.id(t)
		if ok && was != is && strings.Contains(c.text.template, x.name) {
			return fmt.Errorf("the chat template writes %s, which is token %d here and must be token %d in GGUF, where it surrounds a text", x.name, was, is)
		}
	}
	return nil
}

// specialIDs are config.json's ids of special tokens, "bos" to "mask"; of several
// the first.
func specialIDs(config []byte) map[string]int {
	var all map[string]json.RawMessage
	if json.Unmarshal(config, &all) != nil {
		return nil
	}
	ids := map[string]int{}
	for _, name := range []string{"bos", "eos", "unk", "sep", "pad", "cls", "mask"} {
		var list IDs
		if raw, ok := all[name+"_token_id"]; ok && json.Unmarshal(raw, &list) == nil && len(list) > 0 {
			ids[name] = list[0]
		}
	}
	return ids
}

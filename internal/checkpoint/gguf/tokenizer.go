package gguf

import (
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	file "github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tokenizer"
)

const TokenizerPrefix = "tokenizer.ggml."

// noToken stands for no token where a file has llama.cpp's LLAMA_TOKEN_NULL (-1) as a uint32.
const noToken = math.MaxUint32

// Tokenizer reads a file's tokenizer metadata.
func Tokenizer(m file.Metadata) (g tokenizer.GGUF, err error) {
	var types, strips []int64
	var scores []float64
	errs := []error{
		readOptional(&g.Model, m.String, "model"), readOptional(&g.Pre, m.String, "pre"),
		readOptional(&g.Tokens, m.Strings, "tokens"), readOptional(&g.Merges, m.Strings, "merges"),
		readOptional(&types, m.Ints, "token_type"), readOptional(&strips, m.Ints, "token_flags"),
		readOptional(&scores, m.Floats, "scores")}
	ids, flags := tokenKeys(&g)
	for _, k := range ids {
		var id *int64
		errs = append(errs, readOptional(&id, pointer(m.Int), k.key))
		if id != nil && *id != -1 && *id != noToken {
			n := int(*id)
			*k.id = &n
		}
	}
	for _, k := range flags {
		errs = append(errs, readOptional(k.flag, pointer(m.Bool), k.key))
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
		g.Flags = stripFlags(g)
	}
	for _, v := range scores {
		g.Scores = append(g.Scores, float32(v))
	}
	return g, nil
}

// stripFlags returns the flags for special tokens that take the white space after them, in a family for which GGUF has
// no such key (llama_vocab::impl::load in llama.cpp/src/llama-vocab.cpp).
func stripFlags(g tokenizer.GGUF) (flags []int32) {
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
func charsMap(g *tokenizer.GGUF, m file.Metadata) error {
	const key = TokenizerPrefix + "precompiled_charsmap"
	v, ok := m.Lookup(key)
	if !ok {
		return nil
	}
	if e := v.Elem(); v.Type() != file.Array || e != file.Uint8 && e != file.Int8 {
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

// readOptional sets to from the tokenizer's key, unless the key is absent.
func readOptional[T any](to *T, get func(key string) (T, error), key string) error {
	v, err := get(TokenizerPrefix + key)
	if errors.Is(err, file.ErrNoKey) {
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

// WriteTokenizer writes the keys that Tokenizer reads.
func WriteTokenizer(g tokenizer.GGUF) (keys []file.KeyValue) {
	put := func(key string, v any) { keys = append(keys, file.KeyValue{Key: TokenizerPrefix + key, Value: v}) }
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

// tokenKeys returns the tokenizer's ids and flags, in the order of llama.cpp's converter.
func tokenKeys(g *tokenizer.GGUF) (ids []idKey, flags []flagKey) {
	return []idKey{{"bos_token_id", &g.BOS}, {"eos_token_id", &g.EOS}, {"unknown_token_id", &g.UNK},
			{"seperator_token_id", &g.SEP}, {"padding_token_id", &g.PAD}, {"cls_token_id", &g.CLS},
			{"mask_token_id", &g.Mask}, {"eot_token_id", &g.EOT}, {"eom_token_id", &g.EOM}},
		[]flagKey{{"add_bos_token", &g.AddBOS}, {"add_eos_token", &g.AddEOS},
			{"add_sep_token", &g.AddSEP}, {"add_space_prefix", &g.AddSpacePrefix},
			{"remove_extra_whitespaces", &g.MergeSpaces}, {"normalizer.lowercase", &g.Lowercase},
			{"normalizer.strip_accents", &g.StripAccents}, {"normalizer.nfc", &g.NFC}, {"normalizer.nfkc", &g.NFKC}}
}

type idKey struct {
	key string
	id  **int
}

type flagKey struct {
	key  string
	flag **bool
}

const (
	samplingPrefix = "general.sampling."
	suppressKey    = "suppress_tokens" // of the tokenizer
)

type samplingKey struct {
	key   string
	value *float64
}

// samplingKeys returns GGUF's names of a recommendation's numbers.
func samplingKeys(g *settings.Generation) []samplingKey {
	return []samplingKey{{"temp", &g.Temperature}, {"top_p", &g.TopP}, {"min_p", &g.MinP},
		{"penalty_repeat", &g.Repeat}}
}

// Generation reads a GGUF file's recommendation, without the ids that end a turn. A temperature or a bound recommends
// sampling.
func Generation(m file.Metadata) (g settings.Generation, err error) {
	var topK float64
	for _, k := range append(samplingKeys(&g), samplingKey{"top_k", &topK}) {
		v, ok := m.Lookup(samplingPrefix + k.key)
		if !ok {
			continue
		}
		x, err := v.Any()
		if err != nil {
			return g, err
		}
		n, ok := number(reflect.ValueOf(x))
		if k.value == &topK {
			n = max(n, 0) // -1 is none
		}
		if !ok || math.IsNaN(n) || n < 0 || n > math.MaxInt32 {
			return g, fmt.Errorf("key %s%s is %s, expected a number from 0", samplingPrefix, k.key, family.Show(x))
		}
		*k.value = n
	}
	var ids []int64
	err = readOptional(&ids, m.Ints, suppressKey)
	for _, id := range ids { // others are no tokens in llama.cpp either
		if id >= 0 && id <= math.MaxInt32 {
			g.Suppress = append(g.Suppress, int(id))
		}
	}
	g.TopK = int(topK)
	g.Sample = g.Temperature > 0 || g.TopK > 0 || g.TopP > 0 || g.MinP > 0
	return g, err
}

// WriteGeneration writes the keys that Generation reads.
func WriteGeneration(g settings.Generation) (keys []file.KeyValue) {
	if g.TopK > 0 && g.Sample {
		keys = append(keys, file.KeyValue{Key: samplingPrefix + "top_k", Value: int32(g.TopK)})
	}
	for _, k := range samplingKeys(&g) {
		if *k.value != 0 && (g.Sample || k.value == &g.Repeat) {
			keys = append(keys, file.KeyValue{Key: samplingPrefix + k.key, Value: float32(*k.value)})
		}
	}
	if ids := []int32{}; len(g.Suppress) > 0 {
		for _, id := range g.Suppress {
			ids = append(ids, int32(id))
		}
		keys = append(keys, file.KeyValue{Key: TokenizerPrefix + suppressKey, Value: ids})
	}
	return keys
}

package synth

import (
	"fmt"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Types of tokens in tokenizer.ggml.token_type.
const (
	normal  = int32(1)
	unknown = int32(2)
	control = int32(3)
	byteRaw = int32(6)
)

// vocabulary returns the tokenizer's keys, of another file or made.
func vocabulary(p *plan, from *gguf.File) (all []gguf.KeyValue) {
	if from == nil {
		return newWords(p).keys()
	}
	for _, key := range from.Metadata.Keys() {
		if v, ok := from.Metadata.Lookup(key); ok && strings.HasPrefix(key, "tokenizer.") {
			all = append(all, gguf.KeyValue{Key: key, Value: v})
		}
	}
	return all
}

// words is a made vocabulary: bytes, and made-up merges of letters.
type words struct {
	family.Tokenizer
	tokens []string
	types  []int32
	merges []string
}

func (w *words) add(kind int32, tokens ...string) {
	for _, t := range tokens {
		w.tokens, w.types = append(w.tokens, t), append(w.types, kind)
	}
}

func newWords(p *plan) *words {
	w := &words{Tokenizer: p.family.Tokenizer}
	switch w.Model {
	case tokenizer.ByteLevel:
		w.add(normal, byteLetters()...)
		w.merge(p.vocab - 2)
		w.add(control, "<|begin_of_text|>", "<|end_of_text|>")
	case tokenizer.WordPiece: // words begin with ▁
		w.add(control, "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
		for b := rune('!'); b <= '~'; b++ {
			if b < 'A' || b > 'Z' {
				w.add(normal, "▁"+string(b), string(b))
			}
		}
		w.merge(p.vocab)
	default:
		w.add(control, "<pad>", "<eos>", "<bos>")
		w.add(unknown, "<unk>")
		for b := range 256 {
			w.add(byteRaw, fmt.Sprintf("<0x%02X>", b))
		}
		w.add(normal, "▁", "\n")
		for b := rune('!'); b <= '~'; b++ {
			w.add(normal, string(b))
		}
		w.merge(p.vocab)
	}
	return w
}

// merge adds words of two letters, then of three and four, up to n tokens: each
// is a shorter one and a letter.
func (w *words) merge(n int) {
	shorter := strings.Split("abcdefghijklmnopqrstuvwxyz", "")
	letters := shorter
	for len(w.tokens) < n {
		var longer []string
		for _, left := range shorter {
			for _, right := range letters {
				if len(w.tokens) == n {
					return
				}
				longer = append(longer, left+right)
				w.add(normal, left+right)
				w.merges = append(w.merges, left+" "+right)
			}
		}
		shorter = longer
	}
}

// byteLetters is the letter that GPT-2's byte-level tokenizers write for each byte.
func byteLetters() (all []string) {
	next := rune(256)
	for b := range rune(256) {
		if b > ' ' && b < 127 || b > 160 && b != 173 {
			all = append(all, string(b))
			continue
		}
		all = append(all, string(next))
		next++
	}
	return all
}

func (w *words) keys() (all []gguf.KeyValue) {
	put := func(key string, value any) {
		all = append(all, gguf.KeyValue{Key: "tokenizer.ggml." + key, Value: value})
	}
	put("tokens", w.tokens)
	put("token_type", w.types)
	last := uint32(len(w.tokens) - 1)
	put("model", w.Model)
	if w.Pre != "" {
		put("pre", w.Pre)
	}
	if w.Model == tokenizer.ByteLevel || w.Merged {
		put("merges", w.merges)
	}
	if w.Model == tokenizer.ByteLevel {
		put("bos_token_id", last-1)
		put("eos_token_id", last)
		put("add_bos_token", w.BOS)
		if w.End {
			put("add_eos_token", true)
		}
		return all
	}
	if w.Model == tokenizer.WordPiece {
		put("token_type_count", uint32(2))
		for i, name := range []string{"padding", "unknown", "bos", "eos", "mask"} {
			put(name+"_token_id", uint32(i))
		}
		put("seperator_token_id", uint32(3))
		put("add_bos_token", true)
		put("add_eos_token", true)
		put("normalizer.lowercase", true)
		return all
	}
	scores := make([]float32, len(w.tokens))
	for i := range scores {
		scores[i] = -float32(i)
	}
	put("scores", scores)
	put("padding_token_id", uint32(0))
	put("eos_token_id", uint32(1))
	put("bos_token_id", uint32(2))
	put("unknown_token_id", uint32(3))
	put("add_bos_token", true)
	put("add_space_prefix", false)
	return all
}

// Package parrot writes models that say one text, whatever they are asked: tiny GGUF files of the family llama, behind
// any chat template. With one, a test of a server or of the command goes the real way: tokenizer, grammar, sampling,
// session. A greedy answer is exact.
//
// Each piece of the text is a token of its own, and the output head holds each token's successor. Attention is uniform,
// so the second half of a row shows which pieces were said. So a token that comes several times, such as <|channel|>,
// has the successor of its place.
package parrot

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// Options say how a model says its text. The zero value ends it with <|im_end|>.
type Options struct {
	Control  []string         // control tokens, beside <|endoftext|>, <|im_start|> and <|im_end|>
	User     []string         // user-defined tokens: special ones whose text is a part of an answer
	EOS, BOS string           // end of turn, by default <|im_end|>; BOS by default none
	Fallback string           // bytes that are likeliest where a grammar forbids the text, the first one first
	Logits   map[byte]float32 // by byte, after every token, instead of the text; all others have -30
	Loop     bool             // begin again after the text
	After    string           // a control token: where a prompt has it once, the model says Then in place of its text
	Then     string           // of letters that the text lacks, so that its pieces are its own
	Context  int              // by default 4096
	Pre      string           // pre-tokenizer, by default qwen2
}

// WriteFile writes a model with a chat template to path. It says text, in which ␞ is not said: it cuts a token's name
// into pieces of text that only look like the token.
func WriteFile(path, template, text string, o Options) error {
	return gguf.WriteFile(path, func(w io.Writer) error { return Write(w, template, text, o) })
}

// Write writes a model with a chat template to w. It says text.
func Write(w io.Writer, template, text string, o Options) error {
	v := newVocabulary(&o)
	var said []int
	for part := range strings.SplitSeq(text, "␞") {
		said = v.cut(said, part, append(slices.Clone(o.Control), o.User...))
	}
	then := v.cut(nil, o.Then, o.Control)
	half := (len(said) + len(then) + 3 + 31) / 32 * 32
	d := 2 * half
	m := &model{v: v, half: half, head: make([]float32, len(v.tokens)*d), feature: map[int]int{}}
	if err := m.teach(said, &o); err != nil {
		return err
	}
	if len(then) > 0 {
		m.turn(slices.Index(v.tokens, o.After), then)
	}
	embedding := make([]float32, len(v.tokens)*d)
	for t := range v.tokens {
		embedding[t*d+m.feature[t]] = 1
	}
	value, out := make([]float32, d*d), make([]float32, d*d)
	for i := range half {
		if value[i*d+i] = float32(1 / math.Sqrt(float64(d))); o.Logits == nil {
			out[(half+i)*d+i] = 1
		}
	}
	ones := slices.Repeat([]float32{1}, d)
	var tensors []tensor.Tensor
	for _, w := range []struct {
		name  string
		data  []float32 // nil is zeros
		shape []int
	}{{"token_embd", embedding, []int{len(v.tokens), d}}, {"output_norm", ones, []int{d}},
		{"output", m.head, []int{len(v.tokens), d}}, {"blk.0.attn_norm", ones, []int{d}},
		{"blk.0.ffn_norm", ones, []int{d}},
		{"blk.0.attn_q", nil, []int{d, d}}, {"blk.0.attn_k", nil, []int{d, d}},
		{"blk.0.attn_v", value, []int{d, d}}, {"blk.0.attn_output", out, []int{d, d}},
		{"blk.0.ffn_gate", nil, []int{32, d}}, {"blk.0.ffn_up", nil, []int{32, d}},
		{"blk.0.ffn_down", nil, []int{d, 32}}} {
		if w.data == nil {
			w.data = make([]float32, w.shape[0]*w.shape[1])
		}
		b, _ := binary.Append(nil, binary.LittleEndian, w.data) // never fails
		tensors = append(tensors, tensor.Tensor{Name: w.name + ".weight", DType: tensor.F32, Shape: w.shape, Data: b})
	}
	metadata := []gguf.KeyValue{{Key: "general.architecture", Value: "llama"}, {Key: "general.name", Value: "parrot"}}
	for _, x := range []gguf.KeyValue{
		{Key: "block_count", Value: uint32(1)}, {Key: "context_length", Value: uint32(cmp.Or(o.Context, 4096))},
		{Key: "embedding_length", Value: uint32(d)}, {Key: "feed_forward_length", Value: uint32(32)},
		{Key: "attention.head_count", Value: uint32(1)}, {Key: "attention.head_count_kv", Value: uint32(1)},
		{Key: "rope.dimension_count", Value: uint32(d)}, {Key: "vocab_size", Value: uint32(len(v.tokens))},
		{Key: "attention.layer_norm_rms_epsilon", Value: float32(1e-6)},
		{Key: "rope.freq_base", Value: float32(10000)}} {
		metadata = append(metadata, gguf.KeyValue{Key: "llama." + x.Key, Value: x.Value})
	}
	metadata = append(metadata, v.metadata(&o)...)
	if template != "" {
		metadata = append(metadata, gguf.KeyValue{Key: "tokenizer.chat_template", Value: template})
	}
	return gguf.Write(w, metadata, tensors)
}

// model is the output head in the making: [tokens][2*half], of features of the last token and, behind them, of all
// tokens so far.
type model struct {
	v       *vocabulary
	half    int
	head    []float32
	feature map[int]int // of a token that is said; that of all others is 0
}

func (m *model) at(token, feature int) *float32 { return &m.head[token*2*m.half+feature] }

// Weights of the head. A piece that was said has the mean 1/n of n tokens, so it decides in any context of at most
// 4096 tokens.
const (
	sure   = 1e6
	first  = sure * 1e-5
	before = 8192 * first
)

// teach gives each said token its successor.
func (m *model) teach(said []int, o *Options) error {
	count := map[int]int{}
	for _, t := range said {
		if count[t]++; m.feature[t] == 0 {
			m.feature[t] = len(m.feature) + 1
		}
	}
	said = append(slices.Clone(said), m.v.eos)
	if o.Loop {
		said[len(said)-1] = said[0]
	}
	*m.at(said[0], 0) = sure
	levels, anchor, last := map[int]map[int]int{}, -1, map[int]int{}
	for i, t := range said[:len(said)-1] {
		if count[t] == 1 && t >= m.v.pieces {
			anchor = t
		} else if anchor >= 0 && levels[t] == nil { // a prompt may also have the token
			levels[t] = map[int]int{said[0]: 0}
			*m.at(said[0], m.feature[t]) = sure + first
		}
		y, known := said[i+1], levels[t]
		if known == nil {
			levels[t] = map[int]int{y: 0}
			*m.at(y, m.feature[t]) = sure + first
		} else if seen, ok := last[t]; ok && seen == anchor {
			return fmt.Errorf("%q comes twice with nothing of its own between", m.v.tokens[t])
		} else {
			level := known[y]
			for other := range known {
				if other != y {
					level = max(level, known[other]+1)
				}
			}
			*m.at(y, m.feature[t]) = max(*m.at(y, m.feature[t]), sure)
			*m.at(y, m.half+m.feature[anchor]) += before * float32(level-known[y])
			known[y] = level
		}
		last[t] = anchor
	}
	for k := range m.half {
		for i, c := range []byte(o.Fallback) {
			*m.at(int(c), k) = max(*m.at(int(c), k), sure*(0.3-0.02*float32(i)))
		}
		for t := 0; t < len(m.v.tokens) && o.Logits != nil; t++ {
			x, ok := o.Logits[byte(t)]
			if !ok || t > 255 {
				x = -30
			}
			*m.at(t, k) = x / float32(math.Sqrt(float64(2*m.half)))
		}
	}
	return nil
}

// turn teaches the text after a token of the prompt: the token asks for the first piece, until the piece is said.
func (m *model) turn(after int, then []int) {
	for _, t := range append([]int{after}, then...) {
		if m.feature[t] == 0 {
			m.feature[t] = len(m.feature) + 1
		}
	}
	const switched = 2 * 8192 * sure
	*m.at(then[0], m.half+m.feature[after]) += switched
	*m.at(then[0], m.half+m.feature[then[0]]) -= switched
	for i, t := range then {
		*m.at(append(then, m.v.eos)[i+1], m.feature[t]) = sure + first
	}
}

// vocabulary is byte-level BPE: the bytes, four merges, special tokens, and the pieces of the text.
type vocabulary struct {
	tokens []string
	kinds  []int32
	eos    int
	pieces int // the first of them
}

var merges = []string{"Ġ t", "Ġ a", "h e", "i n"}

func newVocabulary(o *Options) *vocabulary {
	v := &vocabulary{}
	for b := range 256 {
		v.add(spell(string([]byte{byte(b)})), 1)
	}
	for _, m := range merges {
		v.add(strings.ReplaceAll(m, " ", ""), 1)
	}
	o.EOS = cmp.Or(o.EOS, "<|im_end|>")
	o.Control = append([]string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", o.EOS}, o.Control...)
	if o.BOS != "" {
		o.Control = append(o.Control, o.BOS)
	}
	for i, name := range slices.Concat(o.Control, o.User) {
		kind := int32(3)
		if i >= len(o.Control) {
			kind = 4
		}
		if !slices.Contains(v.tokens, name) {
			v.add(name, kind)
		}
	}
	v.eos, v.pieces = slices.Index(v.tokens, o.EOS), len(v.tokens)
	return v
}

func (v *vocabulary) add(token string, kind int32) int {
	v.tokens, v.kinds = append(v.tokens, token), append(v.kinds, kind)
	return len(v.tokens) - 1
}

// spell writes bytes as byte-level BPE does.
func spell(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		r := rune(c)
		switch {
		case c <= 32:
			r = 256 + rune(c)
		case c >= 127 && c <= 160:
			r = 289 + rune(c) - 127
		case c == 173:
			r = 323
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cut appends the tokens of a text: special ones, and pieces of three bytes, or as many as make one that is new. What
// cannot be new joins the piece before it, or is cut into bytes.
func (v *vocabulary) cut(ids []int, text string, special []string) []int {
	slices.SortStableFunc(special, func(a, b string) int { return len(b) - len(a) })
	for text != "" {
		if i := slices.IndexFunc(special, func(s string) bool { return strings.HasPrefix(text, s) }); i >= 0 {
			ids, text = append(ids, slices.Index(v.tokens, special[i])), text[len(special[i]):]
			continue
		}
		stop := len(text)
		for _, s := range special {
			if i := strings.Index(text, s); i > 0 {
				stop = min(stop, i)
			}
		}
		n := min(3, stop)
		for n < stop && slices.Contains(v.tokens, spell(text[:n])) {
			n++
		}
		piece, rest := spell(text[:n]), text[n:]
		switch last := len(v.tokens) - 1; {
		case !slices.Contains(v.tokens, piece):
			ids = append(ids, v.add(piece, 1))
		case last >= v.pieces && len(ids) > 0 && ids[len(ids)-1] == last:
			v.tokens[last] += piece
		default:
			for _, b := range []byte(text[:n]) {
				ids = append(ids, int(b))
			}
		}
		text = rest
	}
	return ids
}

func (v *vocabulary) metadata(o *Options) []gguf.KeyValue {
	all := []gguf.KeyValue{{Key: "model", Value: "gpt2"}, {Key: "pre", Value: cmp.Or(o.Pre, "qwen2")},
		{Key: "tokens", Value: v.tokens}, {Key: "token_type", Value: v.kinds},
		{Key: "merges", Value: merges}, {Key: "eos_token_id", Value: uint32(v.eos)},
		{Key: "add_bos_token", Value: false}}
	if o.BOS != "" {
		all = append(all, gguf.KeyValue{Key: "bos_token_id", Value: uint32(slices.Index(v.tokens, o.BOS))})
	}
	for i := range all {
		all[i].Key = "tokenizer.ggml." + all[i].Key
	}
	return all
}

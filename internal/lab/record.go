// Package lab compares the values that engines compute. A record holds an engine's logits, hidden states and taps for
// some prompts. A golden record comes from a trusted engine. The comparison with the golden record shows the error of
// each value, beside the error of rounding alone.
//
// The files, users before the used:
//
//   - layers.go and stats.go show the layers of two records, and a model's numbers; text.go prints comparisons, and
//     compare.go makes them.
//   - import_debug.go, import_logits.go, import_tensors.go, import_torch.go, pickle.go, numpy.go, import.go, dump.go
//     and dump_manifest.go read dumps of other tools.
//   - take.go records a model of our own.
//   - place_find.go, place_order.go, place_hf.go, place_names.go, place_llamacpp.go and place.go find the node of
//     each tap.
//   - pictures.go computes the pictures of prompts.
//   - write.go, read.go, info.go, next.go (a token's distribution), record.go and rows.go have the record.
//   - distance.go, metrics.go and number.go have the measures.
package lab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// Record is a safetensors file of what an engine computed, with a JSON file
// beside it that says for which prompts. Its tensors are, for prompt i:
//
//	{i}.ids       [T] int32, the token ids
//	{i}.logits    [kept, vocabulary], of the last positions
//	{i}.hidden    [layers+1, kept, hidden size]: the embedding, then each layer's
//	              output, the last one after the final norm
//	{i}.tap.NAME  [rows, ...], what passed the point of that name, all positions
//
// All but the ids are float32; float64, float16 and bfloat16 are read as well.
type Record struct {
	Path     string          // of the safetensors file
	Names    string          // whose names the taps have: NamesHF or another, or "" if unsaid
	Numerics json.RawMessage // how it was computed, a JSON object; nil if unsaid
	Declared round.Class     // what Numerics says in words that are known; "" is unsaid
	Prompts  []*Prompt       // by index

	file   io.Closer
	numIDs int  // in the file's tensors
	decode int  // of the prompts that do not say it
	rows   Rows // likewise
}

// Longest returns the number of tokens of the longest prompt. A model is opened for as many.
func Longest(prompts []*Prompt) (tokens int) {
	for _, p := range prompts {
		tokens = max(tokens, len(p.IDs))
	}
	return tokens
}

// Prompt is what a record holds for one prompt. The JSON part is an entry of the
// JSON file, and may be missing, except for Index and IDs; any of the tensors may be missing.
type Prompt struct {
	Index           int     `json:"index"`
	Input           Input   `json:"prompt"`
	Text            string  `json:"text"` // as it was tokenized, rendered if Input is a chat
	IDs             []int32 `json:"ids"`
	PositionsKept   int     `json:"positions_kept"`
	Next            string  `json:"next"` // the likeliest next token
	NextID          int     `json:"next_id"`
	NextProbability Number  `json:"next_probability"`
	Entropy         Number  `json:"entropy"`          // at the last position, in nats
	Decode          int     `json:"decode,omitempty"` // last tokens that were fed one by one, after the others
	// of each id: time, height and width, where it is not all text
	Parts [][3]int32 `json:"position_parts,omitempty"`
	Sight
	Rows       Rows    `json:"rows,omitempty"` // positions the taps have
	GreedyIDs  []int32 `json:"greedy_ids,omitempty"`
	GreedyText string  `json:"greedy_text,omitempty"`
	Float32    *Floor  `json:"float32,omitempty"`  // the noise floor: how far the engine's own
	BFloat16   *Floor  `json:"bfloat16,omitempty"` // passes in less precision lie from this one

	Logits *tensor.Tensor            `json:"-"`
	Hidden *tensor.Tensor            `json:"-"`
	Taps   map[string]*tensor.Tensor `json:"-"` // by name
}

// Floats returns the rows of a tap; nil if there is none.
func (p *Prompt) Floats(tap string) (all [][]float32) {
	t := p.Taps[tap]
	if t == nil {
		return nil
	}
	r := rowsOf(t)
	row := make([]float64, r.width)
	for i := range r.n {
		r.read(row, i)
		x := make([]float32, r.width)
		for j, v := range row {
			x[j] = float32(v)
		}
		all = append(all, x)
	}
	return all
}

// Input is a prompt as it was asked for: one of text, chat messages and token ids.
type Input struct {
	Text *string `json:"text,omitempty"`
	Chat Chat    `json:"chat,omitempty"`
	IDs  []int32 `json:"ids,omitempty"`

	Images []string `json:"images,omitempty"` // paths of pictures, in the order of their marks
}

// Chat is the messages of a chat, oldest first.
type Chat []Message

// Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Floor is how far one pass of a model lies from another. What the JSON file does not
// say is NaN.
type Floor struct {
	CosineMin  Number `json:"cosine_min"` // of the worst position
	MaxAbsDiff Number `json:"max_abs_diff"`
	KLMean     Number `json:"kl_mean"` // in nats
	Top1       Number `json:"top1"`
	Top5       Number `json:"top5"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Floor) UnmarshalJSON(b []byte) error {
	type plain Floor
	unsaid := Number(math.NaN())
	*f = Floor{unsaid, unsaid, unsaid, unsaid, unsaid}
	return json.Unmarshal(b, (*plain)(f))
}

// limit returns the largest distance of logits inside the floor, if the floor has a distance.
func (f *Floor) limit() (Number, bool) {
	ok := f != nil && f.MaxAbsDiff >= 0 && f.MaxAbsDiff <= math.MaxFloat64/floors
	if !ok {
		return 0, false
	}
	return floors * f.MaxAbsDiff, true
}

// The limits of what a record may hold keep a bad file from filling the memory.
const (
	maxPrompts = 4096
	maxIDs     = 1 << 20 // of all prompts
	maxLayers  = 1024
)

// Prompt returns the prompt of that index, nil if the record has none.
func (r *Record) Prompt(index int) *Prompt {
	i, ok := r.find(index)
	if !ok {
		return nil
	}
	return r.Prompts[i]
}

func (r *Record) find(index int) (int, bool) {
	return slices.BinarySearchFunc(r.Prompts, index, func(p *Prompt, index int) int {
		return cmp.Compare(p.Index, index)
	})
}

// Close releases the file. The record's tensors are not valid after it.
func (r *Record) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// add gives one of the file's tensors its place.
func (r *Record) add(t *tensor.Tensor) error {
	number, name, _ := strings.Cut(t.Name, ".")
	index, err := strconv.Atoi(number)
	if err != nil || strconv.Itoa(index) != number || index < 0 || strings.ContainsFunc(name, unprintable) {
		return fmt.Errorf("tensor %q: not a name of a record (PROMPT.ids, .logits, .hidden or .tap.NAME)", t.Name)
	}
	if name == "ids" {
		if r.numIDs += len(t.Data) / max(1, t.DType.BlockBytes()); r.numIDs > maxIDs {
			return fmt.Errorf("tensor %q: more than %d ids", t.Name, maxIDs)
		}
	}
	i, ok := r.find(index)
	if !ok {
		if len(r.Prompts) == maxPrompts {
			return fmt.Errorf("tensor %q: more than %d prompts", t.Name, maxPrompts)
		}
		r.Prompts = slices.Insert(r.Prompts, i, &Prompt{Index: index})
	}
	if err := r.Prompts[i].add(name, t); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	return nil
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func (p *Prompt) add(name string, t *tensor.Tensor) error {
	if len(t.Shape) > 1 && t.Shape[0] == 1 && (name == "ids" || name == "logits" && len(t.Shape) == 3) {
		unbatched := *t
		unbatched.Shape = t.Shape[1:]
		t = &unbatched
	}
	tap, isTap := strings.CutPrefix(name, "tap.")
	before := map[string]*tensor.Tensor{"logits": p.Logits, "hidden": p.Hidden}[name]
	if isTap {
		before = p.Taps[tap]
	}
	switch {
	case before != nil:
		return fmt.Errorf("prompt %d: %s a second time, %q has it as well", p.Index, name, before.Name)
	case isTap && tap != "":
		if p.Taps == nil {
			p.Taps = map[string]*tensor.Tensor{}
		}
		p.Taps[tap] = t
		return checkFloats(t, 0)
	case strings.HasPrefix(name, "chosen."): // an indexer's positions, whole numbers, which tests alone compare
		return nil
	case name == "logits":
		p.Logits = t
		return checkFloats(t, 2)
	case name == "hidden":
		p.Hidden = t
		if err := checkFloats(t, 3); err != nil {
			return err
		}
		if t.Shape[0] > maxLayers+1 {
			return fmt.Errorf("shape %v: more than %d layers", []int(t.Shape), maxLayers)
		}
		return nil
	case name == "ids":
		return p.addIDs(t)
	}
	return fmt.Errorf("not one of ids, logits, hidden and tap.NAME")
}

// addIDs sets the ids, which must agree with the JSON file's ids.
func (p *Prompt) addIDs(t *tensor.Tensor) error {
	if t.DType != tensor.I32 && t.DType != tensor.I64 {
		return fmt.Errorf("element type %v, want I32 or I64", t.DType)
	}
	if err := checkShape(t, 1); err != nil {
		return err
	}
	ids, err := decodeIDs(t)
	if err != nil {
		return err
	}
	if p.IDs != nil && !slices.Equal(p.IDs, ids) {
		return fmt.Errorf("not the ids that the JSON file gives prompt %d", p.Index)
	}
	p.IDs = ids
	return nil
}

// check reports parts of a prompt that do not fit together.
func (p *Prompt) check() error {
	for i, id := range p.IDs {
		if id < 0 {
			return fmt.Errorf("prompt %d: ids: position %d: %d is negative", p.Index, i, id)
		}
	}
	if n := len(p.IDs); p.Decode < 0 || p.IDs != nil && p.Decode > n {
		return fmt.Errorf("prompt %d: decode %d, want 0 to its %d tokens", p.Index, p.Decode, n)
	}
	if n := len(p.Parts); n > 0 && p.IDs != nil && n != len(p.IDs) {
		return fmt.Errorf("prompt %d: position_parts of %d tokens, want %d", p.Index, n, len(p.IDs))
	}
	end := int32(0)
	for _, g := range p.Groups {
		if g[0] < end || g[1] <= g[0] || p.IDs != nil && int(g[1]) > len(p.IDs) {
			return fmt.Errorf("prompt %d: image_rows %v, want runs of positions in order", p.Index, g)
		}
		end = g[1]
	}
	for i, part := range p.Parts {
		if slices.Min(part[:]) < 0 || slices.Max(part[:]) > maxIDs {
			return fmt.Errorf("prompt %d: position_parts: token %d: %v, want 0 to %d", p.Index, i, part, maxIDs)
		}
	}
	if p.Logits == nil {
		return nil
	}
	kept := p.Logits.Shape[0]
	switch {
	case p.IDs != nil && kept > len(p.IDs):
		return fmt.Errorf("prompt %d: logits of %d positions, but %d ids", p.Index, kept, len(p.IDs))
	case p.PositionsKept != 0 && kept != p.PositionsKept:
		return fmt.Errorf("prompt %d: logits of %d positions, but positions_kept %d", p.Index, kept, p.PositionsKept)
	case p.Hidden != nil && p.Hidden.Shape[1] != kept:
		return fmt.Errorf("prompt %d: hidden states of %d positions, but logits of %d", p.Index,
			p.Hidden.Shape[1], kept)
	}
	return nil
}

// rows returns the taps by name, and the hidden states as hidden.LAYER.
func (p *Prompt) rows() map[string]rows {
	all := make(map[string]rows, len(p.Taps))
	for name, t := range p.Taps {
		all[name] = rowsOf(t)
	}
	if p.Hidden != nil {
		layers, kept, width := p.Hidden.Shape[0], p.Hidden.Shape[1], p.Hidden.Shape[2]
		size := len(p.Hidden.Data) / layers
		for l := range layers {
			all[fmt.Sprintf("hidden.%d", l)] = rows{kept, width, p.Hidden.DType, p.Hidden.Data[l*size : (l+1)*size]}
		}
	}
	return all
}

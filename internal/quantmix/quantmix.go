// Package quantmix chooses the type of each tensor of a quantized file, as llama-quantize does. Q4_K_M, and even Q4_0,
// is a mix: most weights have one type, and important weights a better type.
//
// The rules come from llama_tensor_get_type in llama.cpp's src/llama-quant.cpp, for the architectures that Karat runs.
package quantmix

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// kinds lists the mixes: the type of most weights, and the number in general.file_type (llama_ftype in llama.h).
var kinds = []struct {
	name     string
	most     tensor.DType
	fileType uint32
}{
	{"F32", tensor.F32, 0}, {"F16", tensor.F16, 1}, {"BF16", tensor.BF16, 32},
	{"Q8_0", tensor.Q8_0, 7}, {"Q6_K", tensor.Q6_K, 18},
	{"Q5_K_M", tensor.Q5_K, 17}, {"Q5_K_S", tensor.Q5_K, 16}, {"Q5_1", tensor.Q5_1, 9}, {"Q5_0", tensor.Q5_0, 8},
	{"Q4_K_M", tensor.Q4_K, 15}, {"Q4_K_S", tensor.Q4_K, 14}, {"Q4_1", tensor.Q4_1, 3}, {"Q4_0", tensor.Q4_0, 2},
	{"IQ4_NL", tensor.IQ4_NL, 25}, {"IQ4_XS", tensor.IQ4_XS, 30}, {"MXFP4_MOE", tensor.MXFP4, 38},
	{"Q3_K_L", tensor.Q3_K, 13}, {"Q3_K_M", tensor.Q3_K, 12}, {"Q3_K_S", tensor.Q3_K, 11}, {"Q2_K", tensor.Q2_K, 10},
	{"IQ3_M", tensor.IQ3_S, 27}, {"IQ3_S", tensor.IQ3_S, 26}, {"IQ3_XS", tensor.IQ3_S, 22},
	{"IQ3_XXS", tensor.IQ3_XXS, 23}, {"Q2_K_S", tensor.Q2_K, 21}, {"IQ2_M", tensor.IQ2_S, 29},
	{"IQ2_S", tensor.IQ2_XS, 28}, {"IQ2_XS", tensor.IQ2_XS, 20}, {"IQ2_XXS", tensor.IQ2_XXS, 19},
	{"IQ1_M", tensor.IQ1_M, 31}, {"IQ1_S", tensor.IQ1_S, 24}, {"Q2_0", tensor.Q2_0, 41}, {"TQ2_0", tensor.TQ2_0, 37},
	{"TQ1_0", tensor.TQ1_0, 36}, {"Q1_0", tensor.Q1_0, 40},
}

// Names lists the mixes, the most precise first.
func Names() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Find returns the mix of a name in any case, or false. Q3_K, Q4_K and Q5_K stand for their M.
func Find(name string) (Mix, bool) {
	name = strings.ToUpper(name)
	for _, k := range kinds {
		if k.name == name || k.name == name+"_M" {
			return Mix{Name: k.name, Most: k.most, FileType: k.fileType}, true
		}
	}
	return Mix{}, false
}

// FileType returns the number in general.file_type of files whose weights have a type for the most part, as llama.cpp's
// converter names such files, or false.
func FileType(d tensor.DType) (uint32, bool) {
	switch d {
	case tensor.NVFP4: // LLAMA_FTYPE_MOSTLY_NVFP4, no option of llama-quantize
		return 39, true
	case tensor.MXFP4:
		return 38, true
	}
	m, ok := Find(d.String())
	return m.FileType, ok
}

// Mix is the options of a file.
type Mix struct {
	Name     string
	Most     tensor.DType // of most weights
	FileType uint32       // general.file_type
	Rules    []Rule       // rules applied first
	Weighed  bool         // there is an importance matrix
}

// NeedsImportance reports whether llama-quantize makes no such file without an importance matrix.
func (m Mix) NeedsImportance() bool { return m.isLow() || m.Name == "Q2_K_S" }

// A Rule gives the weights whose name Pattern finds a type.
type Rule struct {
	Pattern *regexp.Regexp
	Type    tensor.DType
}

// Model is the basis of the choice besides the tensors.
type Model struct {
	Arch    string
	Layers  int
	Experts int // 0 where there are none
	Group   int // query heads of layer 0 for each head of keys; 0 without heads of keys
}

// Types returns a type for each tensor, of which names, shapes and present types count. Rows other than multiples of a
// type's block get another type. Weights not quantized, as vectors, norms and routers, keep their type.
func (m Mix) Types(model Model, tensors []tensor.Tensor) ([]tensor.DType, error) {
	c := chooser{Mix: m, Model: model, tied: true}
	order := make([]int, len(tensors))
	for i, t := range tensors {
		order[i] = i
		switch part(t.Name) {
		case "attn_v":
			c.values++
		case "output":
			c.tied = false
		}
	}
	// llama-quantize counts in this order, also the order of its files.
	slices.SortStableFunc(order, func(a, b int) int { return Compare(tensors[a].Name, tensors[b].Name) })
	types := make([]tensor.DType, len(tensors))
	for _, i := range order {
		d, err := c.choose(tensors[i])
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", tensors[i].Name, err)
		}
		types[i] = d
	}
	return types, nil
}

// Compare orders the names of tensors as in llama-quantize's files: tensors without a layer first, then by layer, and
// by name.
func Compare(a, b string) int {
	return cmp.Or(cmp.Compare(layerOf(a), layerOf(b)), strings.Compare(a, b))
}

// layerOf returns the number in "blk.7.", -1 for other names.
func layerOf(name string) int {
	rest, ok := strings.CutPrefix(name, "blk.")
	number, _, dot := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(number); ok && dot && err == nil && n >= 0 {
		return n
	}
	return -1
}

// kept lists parts of the names of weights keeping their type: small and important.
var kept = strings.Fields("_norm.weight ffn_gate_inp.weight position_embd.weight token_types.weight ssm_conv1d " +
	"shortconv.conv.weight per_layer_model_proj altup laurel .patch_embd .patch_merger")

// Keeps reports whether a tensor keeps its type in any mix.
func Keeps(t tensor.Tensor) bool {
	matrix := false
	for _, n := range t.Shape[:max(0, len(t.Shape)-1)] {
		matrix = matrix || n > 1
	}
	return !matrix || !strings.HasSuffix(t.Name, "weight") ||
		slices.ContainsFunc(kept, func(s string) bool { return strings.Contains(t.Name, s) })
}

// parts are the roles of weights by parts of their names.
var parts = []struct{ in, part string }{
	{"attn_qkv.weight", "attn_v"}, {"attn_kv_b.weight", "attn_v"}, {"attn_v.weight", "attn_v"},
	{"attn_k.weight", "attn_k"}, {"attn_q.weight", "attn_q"}, {"attn_output.weight", "attn_output"},
	{"ffn_up", "ffn_up"}, {"ffn_gate", "ffn_gate"}, {"ffn_down", "ffn_down"},
}

// part returns the role of a weight by its name, "" where all are alike.
func part(name string) string {
	switch name {
	case "output.weight":
		return "output"
	case "token_embd.weight", "per_layer_token_embd.weight":
		return "embedding"
	}
	for _, p := range parts {
		if strings.Contains(name, p.in) {
			return p.part
		}
	}
	return ""
}

// chooser goes through the tensors in order.
type chooser struct {
	Mix
	Model
	tied          bool // the embedding is also the head
	values        int  // how many attn_v there are
	value, downed int  // how many attn_v and ffn_down there were
	upped, gated  int  // how many ffn_up and ffn_gate there were
}

func (c *chooser) choose(t tensor.Tensor) (tensor.DType, error) {
	if Keeps(t) {
		return t.DType, nil
	}
	for _, r := range c.Rules {
		if r.Pattern.MatchString(t.Name) {
			return fit(r.Type, t.Shape.Last())
		}
	}
	if !c.Most.Quantized() {
		return c.Most, nil
	}
	d, err := c.standard(t)
	if err != nil {
		return d, err
	}
	return fit(d, t.Shape.Last())
}

// standard returns the mix's choice, whatever the length of rows.
func (c *chooser) standard(t tensor.Tensor) (tensor.DType, error) {
	switch p := part(t.Name); {
	case p == "output" || p == "embedding" && c.tied:
		if c.frugal() || c.Name == "MXFP4_MOE" || c.Most == tensor.Q8_0 || t.Shape.Last()%c.Most.BlockSize() != 0 {
			return tensor.Q8_0, nil
		}
		if c.isLow() || c.Name == "IQ3_XXS" {
			return tensor.Q5_K, nil
		}
		return tensor.Q6_K, nil
	case c.Name == "MXFP4_MOE":
		if len(t.Shape) > 2 && t.Shape[len(t.Shape)-3] > 1 {
			return tensor.MXFP4, nil
		}
		return tensor.Q8_0, nil
	case p == "embedding":
		return c.embedding(), nil
	case c.isLow():
		return c.low(p), nil
	case p == "attn_v":
		c.value++
		return c.attnV(c.value - 1), nil
	case p == "attn_k" && c.Experts == 8:
		return tensor.Q8_0, nil
	case p == "attn_k" || p == "attn_q":
		return c.attnQK(), nil
	case p == "ffn_down":
		layer, err := c.layer(t.Name, &c.downed)
		return c.ffnDown(layer), err
	case p == "ffn_up":
		layer, err := c.layer(t.Name, &c.upped)
		return c.ffnUp(layer), err
	case p == "ffn_gate":
		layer, err := c.layer(t.Name, &c.gated)
		return c.ffnUp(layer), err
	case p == "attn_output":
		return c.attnOutput(), nil
	}
	return c.Most, nil
}

// layer returns the layer of a weight: the count of similar weights before, or with experts, several in a layer, the
// number in the name.
func (c *chooser) layer(name string, count *int) (layer int, err error) {
	layer, *count = *count, *count+1
	if c.Experts > 1 {
		if layer = layerOf(name); layer < 0 || layer >= c.Layers {
			return 0, fmt.Errorf("its layer is none of the model's %d", c.Layers)
		}
	}
	return layer, nil
}

// isLow reports whether the mix has about two bits or fewer, with rules of their own.
func (m Mix) isLow() bool {
	return strings.HasPrefix(m.Name, "IQ1_") || strings.HasPrefix(m.Name, "IQ2_")
}

// better returns the type for important weights in low mixes.
func (c *chooser) better() tensor.DType {
	if c.Name == "IQ2_S" || c.Name == "IQ2_M" {
		return tensor.IQ3_S
	}
	return tensor.Q2_K
}

// embedding returns the type of an embedding that is not the head.
func (c *chooser) embedding() tensor.DType {
	switch {
	case c.isLow():
		return c.better()
	case c.Name == "IQ3_XXS":
		return tensor.IQ3_S
	case c.Name == "TQ1_0", c.Name == "TQ2_0", c.Name == "Q2_0":
		return tensor.Q4_K
	}
	return c.Most
}

// low returns the choice of a low mix.
func (c *chooser) low(part string) tensor.DType {
	switch {
	case part == "attn_v" && (c.Group >= 4 || c.Experts >= 4), part == "attn_k" && c.Experts == 8:
		return tensor.Q4_K
	case part == "attn_v":
		return c.better()
	case part == "ffn_down":
		if c.downed++; c.downed <= c.Layers/8 {
			return c.better()
		}
	case part == "attn_output" && c.Experts == 8:
		return tensor.Q5_K
	case part == "attn_output" && c.Most == tensor.IQ1_S, part == "attn_output" && c.Most == tensor.IQ1_M:
		return tensor.IQ2_XXS
	case part == "attn_output" && c.better() == tensor.IQ3_S:
		return tensor.IQ3_S
	}
	return c.Most
}

// attnQK returns the type of a weight of queries or keys.
func (c *chooser) attnQK() tensor.DType {
	switch c.Name {
	case "IQ3_XS":
		return tensor.IQ3_XXS
	case "IQ3_XXS":
		return tensor.IQ2_S
	}
	return c.Most
}

// ffnUp returns the type of the two weights before the activation.
func (c *chooser) ffnUp(layer int) tensor.DType {
	if c.Name == "IQ3_XS" && layer >= c.Layers/8 && layer < 7*c.Layers/8 {
		return tensor.IQ3_XXS
	}
	return c.Most
}

// more reports whether a layer gets more bits: the first and last eighth, and every third of the others.
func more(layer, layers int) bool {
	return layer < layers/8 || layer >= 7*layers/8 || (layer-layers/8)%3 == 2
}

// attnV returns the type of a layer's weight of values: small, and worth more.
func (c *chooser) attnV(layer int) tensor.DType {
	d := c.Most
	switch {
	case c.Name == "Q2_K" && c.Group < 4:
		d = tensor.Q3_K
	case c.Name == "Q2_K", c.Name == "Q3_K_M" && layer >= 2, c.Name == "IQ3_M",
		c.Group >= 4 && slices.Contains([]string{"Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"}, c.Name):
		d = tensor.Q4_K
	case c.Name == "IQ3_XXS" && !c.Weighed:
		d = tensor.IQ3_S
	case c.Name == "Q3_K_M", c.Name == "Q3_K_L", (c.Name == "IQ4_NL" || c.Name == "IQ4_XS") && c.Group >= 4,
		c.Name == "Q4_K_S" && layer < 4:
		d = tensor.Q5_K
	case (c.Name == "Q4_K_M" || c.Name == "Q5_K_M") && more(layer, c.values):
		d = tensor.Q6_K
	}
	// Models of 70 B: eight heads of queries share a head of values.
	if f := registry.Find(c.Arch); f != nil && f.Seventy != nil && f.Seventy(c.Layers, c.Group) &&
		(d == tensor.Q3_K || d == tensor.Q4_K) {
		d = tensor.Q5_K
	}
	if c.Experts == 8 {
		d = tensor.Q8_0
	}
	return d
}

// frugal reports whether the family has mixes that spare bits.
func (c *chooser) frugal() bool {
	f := registry.Find(c.Arch)
	return f != nil && f.Frugal
}

func (c *chooser) ffnDown(layer int) tensor.DType {
	first := layer < c.Layers/8
	switch few := c.frugal() && layer >= c.Layers/16; {
	case few && c.Name == "Q3_K_M" && !more(layer, c.Layers), c.frugal() && c.Name == "Q4_K_S":
		return c.Most
	case c.frugal() && c.Name == "Q3_K_L":
		return tensor.Q4_K
	case few && c.Name == "Q4_K_M" && more(layer, c.Layers):
		return tensor.Q5_K
	case c.Name == "Q2_K":
		return tensor.Q3_K
	case c.Name == "Q3_K_M" && layer >= c.Layers/16, c.Name == "Q2_K_S" && first,
		c.Name == "IQ3_XXS" && first && !c.Weighed,
		c.Name == "IQ3_M" && (first || c.Experts == 8 && more(layer, c.Layers)):
		return tensor.Q4_K
	case c.Name == "IQ3_XXS" && !c.Weighed:
		return tensor.Q3_K
	case c.Name == "Q3_K_M", c.Name == "Q3_K_L":
		return tensor.Q5_K
	case (c.Name == "Q4_K_M" || c.Name == "Q5_K_M") && more(layer, c.Layers):
		return tensor.Q6_K
	case c.Name == "Q4_K_S" && first, (c.Name == "IQ4_NL" || c.Name == "IQ4_XS") && first && !c.Weighed:
		return tensor.Q5_K
	case c.Name == "Q4_0" && first && c.Weighed:
		return tensor.Q4_1
	case c.Name == "Q5_0" && first && c.Weighed:
		return tensor.Q5_1
	}
	return c.Most
}

func (c *chooser) attnOutput() tensor.DType {
	switch c.Name {
	case "Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS", "IQ3_XS", "IQ3_XXS", "IQ3_S", "IQ3_M":
		if c.Experts == 8 {
			return tensor.Q5_K
		}
	}
	switch {
	case c.frugal() && c.Name == "Q3_K_L":
		return tensor.Q4_K
	case c.frugal(), c.Experts == 8:
	case c.Name == "Q2_K":
		return tensor.Q3_K
	case c.Name == "Q3_K_M", c.Name == "IQ3_M":
		return tensor.Q4_K
	case c.Name == "IQ3_XXS":
		return tensor.IQ3_S
	case c.Name == "Q3_K_L":
		return tensor.Q5_K
	}
	return c.Most
}

// narrow lists the types that replace others, for rows that their blocks do not divide.
var narrow = map[tensor.DType]tensor.DType{
	tensor.Q2_K: tensor.Q4_0, tensor.Q3_K: tensor.Q4_0, tensor.Q4_K: tensor.Q5_0, tensor.Q5_K: tensor.Q5_1,
	tensor.Q6_K: tensor.Q8_0, tensor.IQ4_XS: tensor.IQ4_NL, tensor.IQ3_S: tensor.IQ4_NL, tensor.IQ3_XXS: tensor.IQ4_NL,
	tensor.IQ2_S: tensor.IQ4_NL, tensor.IQ2_XS: tensor.IQ4_NL, tensor.IQ2_XXS: tensor.IQ4_NL,
	tensor.IQ1_M: tensor.IQ4_NL, tensor.IQ1_S: tensor.IQ4_NL, tensor.Q2_0: tensor.Q4_0, tensor.TQ2_0: tensor.Q4_0,
	tensor.TQ1_0: tensor.Q4_0,
}

// fit returns d, or the type that replaces it for rows of k.
func fit(d tensor.DType, k int) (tensor.DType, error) {
	if k%d.BlockSize() == 0 {
		return d, nil
	}
	other, ok := narrow[d]
	switch {
	case !ok:
		return d, fmt.Errorf("its rows of %d are no multiple of %v's block of %d", k, d, d.BlockSize())
	case k%other.BlockSize() != 0:
		return tensor.F16, nil
	}
	return other, nil
}

// Of reads the basis of the choice from a file's metadata.
func Of(m gguf.Metadata) (Model, error) {
	arch, err := m.String("general.architecture")
	if err == nil && arch == "clip" { // a part for pictures: llama-quantize reads no settings of its files
		return Model{Arch: arch}, nil
	}
	if err == nil && registry.Find(arch) == nil {
		err = fmt.Errorf("general.architecture %q: only the mixes of %s are known", arch,
			strings.Join(registry.Names(), ", "))
	}
	if err != nil {
		return Model{}, err
	}
	layers, err := m.Uint(arch + ".block_count")
	number := func(key string, absent uint64) (n uint64) { // the first error stays
		if err == nil {
			n, err = first(m, arch+key, absent)
		}
		return n
	}
	heads := number(".attention.head_count", 1)
	kv := number(".attention.head_count_kv", heads)
	experts := number(".expert_count", 0)
	const most = 1 << 20
	if err == nil && max(layers, heads, kv, experts) > most {
		err = fmt.Errorf("%d layers, %d heads, %d heads of keys, %d experts, want up to %d", layers, heads, kv,
			experts, most)
	}
	if err != nil {
		return Model{}, err
	}
	model := Model{Arch: arch, Layers: int(layers), Experts: int(experts)}
	if kv > 0 {
		model.Group = int(heads / kv)
	}
	return model, nil
}

// first returns an integer, or the first of an array by layer, or absent without the key.
func first(m gguf.Metadata, key string, absent uint64) (uint64, error) {
	v, ok := m.Lookup(key)
	switch {
	case !ok:
		return absent, nil
	case v.Type() == gguf.Array:
		all, err := m.Ints(key)
		if err == nil && (len(all) == 0 || all[0] < 0) {
			err = errors.New("no first number from 0")
		}
		if err != nil {
			return 0, fmt.Errorf("key %q: %w", key, err)
		}
		return uint64(all[0]), nil
	}
	return m.Uint(key)
}

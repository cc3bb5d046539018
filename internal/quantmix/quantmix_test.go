package quantmix_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/synth"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

var peer = flag.String("peer", "", "path of llama-quantize, whose choices are written to testdata anew")

// shape is a model whose types are chosen.
type shape struct {
	name, arch                                 string
	layers, hidden, ff, heads, kv, dim, vocab  int
	untied, fused                              bool
	experts, sharedKV, keysAreValues, perLayer int
}

var shapes = []shape{
	{name: "tied", arch: "llama", layers: 16, hidden: 2048, ff: 8192, heads: 32, kv: 8, dim: 64, vocab: 1024},
	{name: "untied", arch: "llama", layers: 32, hidden: 512, ff: 1024, heads: 8, kv: 8, dim: 64, vocab: 1024, untied: true},
	{name: "65b", arch: "llama", layers: 80, hidden: 512, ff: 1024, heads: 8, kv: 8, dim: 64, vocab: 1024, untied: true},
	{name: "70b", arch: "llama", layers: 80, hidden: 512, ff: 1024, heads: 8, kv: 1, dim: 64, vocab: 1024, untied: true},
	{name: "8x7b", arch: "llama", layers: 32, hidden: 512, ff: 1024, heads: 8, kv: 2, dim: 64, vocab: 1024, untied: true, experts: 8},
	{name: "narrow", arch: "llama", layers: 4, hidden: 288, ff: 320, heads: 9, kv: 3, dim: 32, vocab: 1024, untied: true},
	{name: "72b", arch: "qwen2", layers: 80, hidden: 512, ff: 1024, heads: 8, kv: 1, dim: 64, vocab: 1024, untied: true},
	{name: "0.5b", arch: "qwen2", layers: 24, hidden: 896, ff: 4864, heads: 14, kv: 2, dim: 64, vocab: 1024},
	{name: "0.6b", arch: "qwen3", layers: 28, hidden: 1024, ff: 3072, heads: 16, kv: 8, dim: 128, vocab: 1024},
	{name: "1b", arch: "gemma3", layers: 26, hidden: 1152, ff: 6912, heads: 4, kv: 1, dim: 256, vocab: 1024},
	{name: "tiny", arch: "gemma3", layers: 6, hidden: 160, ff: 416, heads: 4, kv: 1, dim: 64, vocab: 1024},
	{name: "e2b", arch: "gemma4", layers: 35, hidden: 1536, ff: 6144, heads: 8, kv: 1, dim: 256, vocab: 1024, sharedKV: 20, perLayer: 256},
	{name: "a4b", arch: "gemma4", layers: 30, hidden: 2816, ff: 2112, heads: 16, kv: 8, dim: 256, vocab: 1024, experts: 128, keysAreValues: 6},
	{name: "3-mini", arch: "phi3", layers: 32, hidden: 768, ff: 2048, heads: 8, kv: 8, dim: 96, vocab: 1024, untied: true, fused: true},
	{name: "4-mini", arch: "phi3", layers: 32, hidden: 768, ff: 2048, heads: 6, kv: 2, dim: 128, vocab: 1024, fused: true},
	{name: "4", arch: "phi3", layers: 40, hidden: 1280, ff: 4480, heads: 20, kv: 5, dim: 64, vocab: 1024, untied: true, fused: true},
	{name: "3b", arch: "mistral3", layers: 26, hidden: 768, ff: 2304, heads: 8, kv: 2, dim: 128, vocab: 1024},
	{name: "14b", arch: "mistral3", layers: 40, hidden: 1280, ff: 4096, heads: 8, kv: 2, dim: 128, vocab: 1024, untied: true},
}

func (s shape) metadata() []gguf.KeyValue {
	all := []gguf.KeyValue{{Key: "general.architecture", Value: s.arch}}
	n := func(key string, value int) {
		all = append(all, gguf.KeyValue{Key: s.arch + "." + key, Value: uint32(value)})
	}
	n("block_count", s.layers)
	n("context_length", 4096)
	n("embedding_length", s.hidden)
	n("feed_forward_length", s.ff)
	n("attention.head_count", s.heads)
	n("attention.key_length", s.dim)
	n("attention.value_length", s.dim)
	if s.arch == "gemma4" {
		kv := make([]int32, s.layers)
		for i := range kv {
			kv[i] = int32(s.kv)
		}
		all = append(all, gguf.KeyValue{Key: "gemma4.attention.head_count_kv", Value: kv},
			gguf.KeyValue{Key: "gemma4.attention.sliding_window_pattern", Value: make([]bool, s.layers)})
		n("attention.shared_kv_layers", s.sharedKV)
		n("embedding_length_per_layer_input", s.perLayer)
		n("attention.key_length_swa", s.dim)
		n("attention.value_length_swa", s.dim)
		n("expert_feed_forward_length", 704)
	} else {
		n("attention.head_count_kv", s.kv)
	}
	if strings.HasPrefix(s.arch, "gemma") {
		n("attention.sliding_window", 512)
	}
	if s.experts > 0 {
		n("expert_count", s.experts)
		n("expert_used_count", 2)
	}
	return append(all, gguf.KeyValue{Key: s.arch + ".attention.layer_norm_rms_epsilon", Value: float32(1e-6)})
}

// tensors are in another order than llama-quantize has them in.
func (s shape) tensors() (all []tensor.Tensor) {
	add := func(d tensor.DType, name string, shape ...int) {
		all = append(all, tensor.Tensor{Name: name, DType: d, Shape: shape})
	}
	weight := func(name string, shape ...int) { add(tensor.BF16, name+".weight", shape...) }
	for i := range s.layers {
		p := fmt.Sprintf("blk.%d.", i)
		weight(p+"ffn_down", s.hidden, s.ff)
		weight(p+"attn_output", s.hidden, s.heads*s.dim)
		add(tensor.F32, p+"attn_norm.weight", s.hidden)
		if s.fused {
			weight(p+"ffn_up", 2*s.ff, s.hidden)
			weight(p+"attn_qkv", (s.heads+2*s.kv)*s.dim, s.hidden)
			continue
		}
		weight(p+"ffn_up", s.ff, s.hidden)
		weight(p+"ffn_gate", s.ff, s.hidden)
		weight(p+"attn_q", s.heads*s.dim, s.hidden)
		if i < s.layers-s.sharedKV {
			weight(p+"attn_k", s.kv*s.dim, s.hidden)
			if s.keysAreValues == 0 || i%s.keysAreValues != 5 {
				weight(p+"attn_v", s.kv*s.dim, s.hidden)
			}
		}
		if s.perLayer > 0 {
			weight(p+"inp_gate", s.perLayer, s.hidden)
			weight(p+"proj", s.hidden, s.perLayer)
		}
		if s.experts > 0 {
			add(tensor.F32, p+"ffn_gate_inp.weight", s.experts, s.hidden)
			weight(p+"ffn_gate_up_exps", s.experts, 1408, s.hidden)
			weight(p+"ffn_down_exps", s.experts, s.hidden, 704)
			add(tensor.F32, p+"ffn_down_exps.scale", s.experts)
		}
	}
	if s.untied {
		weight("output", s.vocab, s.hidden)
	}
	if s.perLayer > 0 {
		weight("per_layer_token_embd", s.vocab, s.layers*s.perLayer)
		weight("per_layer_model_proj", s.layers*s.perLayer, s.hidden)
	}
	weight("token_embd", s.vocab, s.hidden)
	add(tensor.F32, "output_norm.weight", s.hidden)
	return all
}

func (s shape) model() quantmix.Model {
	return quantmix.Model{Arch: s.arch, Layers: s.layers, Experts: s.experts, Group: s.heads / s.kv}
}

// sample is a model whose types are chosen.
type sample struct {
	name     string
	metadata []gguf.KeyValue
	tensors  []tensor.Tensor
}

// lines tell which types tensors have in each mix, without an importance matrix and with one: how many have each, and a hash of all.
func (s sample) lines(choose func(mix string, weighed bool) map[string]string) (all []string) {
	for _, mix := range quantmix.Names() {
		for _, weighed := range []bool{false, true} {
			types := choose(mix, weighed)
			counts, sum := map[string]int{}, sha256.New()
			for _, name := range slices.SortedFunc(maps.Keys(types), quantmix.Compare) {
				counts[types[name]]++
				fmt.Fprintln(sum, name, types[name])
			}
			text := fmt.Sprintf("%s %s importance=%v", s.name, mix, weighed)
			for _, d := range slices.Sorted(maps.Keys(counts)) {
				text += fmt.Sprintf(" %s:%d", d, counts[d])
			}
			all = append(all, fmt.Sprintf("%s %x", text, sum.Sum(nil)[:8]))
		}
	}
	return all
}

// digest is one line for all.
func (s sample) digest(lines []string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return fmt.Sprintf("%s %x", s.name, sum[:8])
}

// none are the choices where a mix has no type for some rows.
var none = map[string]string{"no fallback": "error"}

// ours are this package's choices.
func (s sample) ours(t *testing.T) []string {
	model, err := of(t, s.metadata)
	if err != nil {
		t.Fatal(err)
	}
	return s.lines(func(mix string, weighed bool) map[string]string {
		m, ok := quantmix.Find(strings.ToLower(mix))
		if m.Weighed = weighed; !ok {
			t.Fatalf("no mix %s", mix)
		}
		types, err := m.Types(model, s.tensors)
		if err != nil && strings.Contains(err.Error(), "no multiple of Q1_0's block") {
			return none
		}
		if err != nil {
			t.Fatal(err)
		}
		chosen := map[string]string{}
		for i, d := range types {
			chosen[s.tensors[i].Name] = d.String()
		}
		return chosen
	})
}

// of is quantmix.Of of a file with the metadata.
func of(t *testing.T, metadata []gguf.KeyValue) (quantmix.Model, error) {
	var b bytes.Buffer
	if err := gguf.Write(&b, metadata, nil); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return quantmix.Of(f.Metadata)
}

// TestTypes compares with the choices of llama-quantize.
func TestTypes(t *testing.T) {
	var ours, theirs []string
	for _, shape := range shapes {
		s := sample{shape.arch + "/" + shape.name, shape.metadata(), shape.tensors()}
		ours = append(ours, s.ours(t)...)
		if *peer != "" {
			theirs = append(theirs, s.theirs(t)...)
		}
	}
	compare(t, "testdata/types.txt.gz", ours, theirs)
}

// unknown are shapes of architectures that llama-quantize does not know.
var unknown = []string{"olmo-hybrid/7b"}

// unasked are shapes of which llama-quantize was not asked yet: the file has no line of theirs, TestUnasked has some.
var unasked = []string{"exaone/7.8b", "phi2/2.7b"}

// TestFamilies compares those for each published shape of synth, of which the file has a hash of all mixes.
func TestFamilies(t *testing.T) {
	var ours, theirs []string
	for _, arch := range synth.Archs() {
		for _, shape := range synth.Shapes(arch) {
			if strings.HasPrefix(shape, "tiny") { // llama.cpp knows some families' models by their layers
				continue
			}
			metadata, tensors, err := synth.Header(synth.Options{Arch: arch, Shape: shape, Type: "BF16"})
			if err != nil {
				t.Fatal(err)
			}
			s := sample{arch + "/" + shape, metadata, tensors}
			all := s.ours(t)
			if slices.Contains(unknown, s.name) || *peer == "" && slices.Contains(unasked, s.name) {
				continue
			}
			ours = append(ours, s.digest(all))
			if *peer != "" {
				peers := s.theirs(t)
				for i := range all {
					if all[i] != peers[i] {
						t.Errorf("%s, llama-quantize's\n%s", all[i], peers[i])
					}
				}
				theirs = append(theirs, s.digest(peers))
			}
		}
	}
	compare(t, "testdata/families.txt.gz", ours, theirs)
}

// TestUnasked compares the types of the shapes that llama-quantize was not asked about with its rules
// (llama_tensor_get_type_impl), written again for models of 32 layers with an output of their own, without experts and
// without an importance matrix. No rule there is for these architectures alone.
func TestUnasked(t *testing.T) {
	for _, name := range unasked {
		arch, shape, _ := strings.Cut(name, "/")
		metadata, tensors, err := synth.Header(synth.Options{Arch: arch, Shape: shape, Type: "BF16"})
		if err != nil {
			t.Fatal(err)
		}
		model, err := of(t, metadata)
		if err != nil {
			t.Fatal(err)
		}
		for _, mix := range strings.Fields("Q4_0 Q8_0 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ4_XS") {
			m, ok := quantmix.Find(mix)
			types, err := m.Types(model, tensors)
			if !ok || err != nil {
				t.Fatal(mix, ok, err)
			}
			seen := 0
			for i, x := range tensors {
				if len(x.Shape) != 2 {
					continue
				}
				layer := 0
				fmt.Sscanf(x.Name, "blk.%d.", &layer)
				if got, want := types[i].String(), byRule(mix, x.Name, layer, model.Group >= 4); got != want {
					t.Errorf("%s in %s: %s is %s, want %s", name, mix, x.Name, got, want)
				}
				seen++
			}
			if seen < 32*6 {
				t.Errorf("%s: %d matrices", name, seen)
			}
		}
	}
}

// byRule is the type of a matrix by llama-quantize's rules.
func byRule(mix, name string, layer int, grouped bool) string {
	most, size, _ := strings.Cut(strings.Replace(mix, "_K_", "_K ", 1), " ")
	more := layer < 4 || layer >= 28 || (layer-4)%3 == 2
	choose := func(larger bool, a, b string) string {
		if larger {
			return a
		}
		return b
	}
	end := name[strings.LastIndex(strings.TrimSuffix(name, ".weight"), ".")+1:]
	switch strings.TrimSuffix(end, ".weight") {
	case "output":
		return choose(name == "output.weight" && mix != "Q8_0", "Q6_K", most)
	case "attn_v":
		switch {
		case mix == "Q2_K":
			return choose(grouped, "Q4_K", "Q3_K")
		case mix == "Q3_K_M":
			return choose(layer < 2, "Q5_K", "Q4_K")
		case mix == "Q3_K_L", mix == "IQ4_XS" && grouped, mix == "Q4_K_S" && layer < 4:
			return "Q5_K"
		case size == "M" && more:
			return "Q6_K"
		}
	case "ffn_down":
		switch {
		case mix == "Q2_K":
			return "Q3_K"
		case mix == "Q3_K_M":
			return choose(layer < 2, "Q5_K", "Q4_K")
		case mix == "Q3_K_L", (mix == "Q4_K_S" || mix == "IQ4_XS") && layer < 4:
			return "Q5_K"
		case size == "M" && more:
			return "Q6_K"
		}
	case "attn_output":
		return map[string]string{"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}[mix] + choose(mix == "Q2_K" || mix == "Q3_K_M" || mix == "Q3_K_L", "", most)
	}
	return most
}

// compare compares lines with those of a file, which llama-quantize's lines become first, if there are any.
func compare(t *testing.T, path string, ours, theirs []string) {
	t.Helper()
	if theirs != nil {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		io.WriteString(w, strings.Join(theirs, "\n")+"\n")
		w.Close()
		if err := os.WriteFile(path, packed.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(ours) != len(want) {
		t.Fatalf("%d lines, want %d", len(ours), len(want))
	}
	for i := range want {
		if ours[i] != want[i] {
			t.Errorf("%s, llama-quantize's\n%s", ours[i], want[i])
		}
	}
}

// says is what llama-quantize prints of a tensor.
var says = regexp.MustCompile(`(?m)^\[ *\d+/ *\d+\] +(\S+) .* type = +(\w+), size = +[0-9.]+ MiB(?: -> +[0-9.]+ MiB \((\w+)\))?`)

// theirs are llama-quantize's choices, of a file whose tensors are holes.
func (s sample) theirs(t *testing.T) []string {
	dir := t.TempDir()
	imatrix := filepath.Join(dir, "imatrix.gguf")
	err := gguf.WriteFile(imatrix, func(w io.Writer) error {
		return gguf.Write(w, []gguf.KeyValue{{Key: "general.type", Value: "imatrix"}, {Key: "imatrix.datasets", Value: []string{"x"}}, {Key: "imatrix.chunk_count", Value: uint32(1)}, {Key: "imatrix.chunk_size", Value: uint32(1)}},
			[]tensor.Tensor{{Name: "x.in_sum2", DType: tensor.F32, Shape: tensor.Shape{1, 1}, Data: make([]byte, 4)}, {Name: "x.counts", DType: tensor.F32, Shape: tensor.Shape{1, 1}, Data: make([]byte, 4)}})
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.gguf")
	var header bytes.Buffer
	if _, err := gguf.NewWriter(&header, s.metadata, s.tensors); err != nil {
		t.Fatal(err)
	}
	size := int64(header.Len())
	for _, x := range s.tensors {
		n, _ := tensor.Bytes(x.DType, x.Shape)
		size += int64(n+31) &^ 31
	}
	if err := os.WriteFile(path, header.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return s.lines(func(mix string, weighed bool) map[string]string {
		args := []string{"--dry-run", path, mix}
		if weighed {
			args = append([]string{"--imatrix", imatrix}, args...)
		}
		text, err := exec.Command(*peer, args...).CombinedOutput()
		if err != nil && strings.Contains(string(text), "no tensor type fallback") {
			return none
		}
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", s.name, mix, err, text)
		}
		types := map[string]string{}
		for _, m := range says.FindAllStringSubmatch(string(text), -1) {
			types[m[1]] = strings.ToUpper(cmp.Or(m[3], m[2]))
		}
		if len(types) != len(s.tensors) {
			t.Fatalf("%s %s: %d tensors\n%s", s.name, mix, len(types), text)
		}
		return types
	})
}

// TestFiles compares with the types, and the order, in files of llama-quantize.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Shared(t, "goldens/gguf"), "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, path := range files {
		name, kind, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".gguf"), ".")
		m, ok := quantmix.Find(kind)
		from := filepath.Join(filepath.Dir(path), name+".bf16.gguf")
		if _, err := os.Stat(from); err != nil || !ok || kind == "bf16" {
			continue
		}
		compared++
		t.Run(name+"."+kind, func(t *testing.T) {
			f, err := gguf.Open(from)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			g, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			model, err := quantmix.Of(f.Metadata)
			if err != nil {
				t.Fatal(err)
			}
			types, err := m.Types(model, f.Tensors())
			if err != nil {
				t.Fatal(err)
			}
			for i, from := range f.Tensors() {
				if want, _ := g.Tensor(from.Name); types[i] != want.DType {
					t.Errorf("%s: %v, llama-quantize's is %v", from.Name, types[i], want.DType)
				}
			}
			if !slices.IsSortedFunc(g.Tensors(), func(a, b tensor.Tensor) int { return quantmix.Compare(a.Name, b.Name) }) {
				t.Error("its tensors are in another order")
			}
			if n, err := g.Metadata.Uint("general.file_type"); n != uint64(m.FileType) || err != nil {
				t.Errorf("general.file_type %d, %v, ours %d", n, err, m.FileType)
			}
		})
	}
	if compared == 0 {
		t.Error("no files")
	}
}

func TestRules(t *testing.T) {
	m, _ := quantmix.Find("q4_k_m")
	m.Rules = []quantmix.Rule{{regexp.MustCompile(`ffn_(up|gate)`), tensor.Q3_K}, {regexp.MustCompile(`up|norm`), tensor.Q8_0}}
	s := shapes[0]
	all := s.tensors()
	types, err := m.Types(s.model(), all)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range all {
		up := strings.Contains(x.Name, "ffn_up") || strings.Contains(x.Name, "ffn_gate")
		if up != (types[i] == tensor.Q3_K) || x.DType == tensor.F32 && types[i] != tensor.F32 || types[i] == tensor.Q8_0 {
			t.Errorf("%s: %v", x.Name, types[i])
		}
	}
	m.Rules = []quantmix.Rule{{regexp.MustCompile(`attn_q`), tensor.Q4_0}}
	_, err = m.Types(s.model(), []tensor.Tensor{{Name: "blk.0.attn_q.weight", DType: tensor.F16, Shape: tensor.Shape{4, 100}}})
	if want := `tensor "blk.0.attn_q.weight": its rows of 100 are no multiple of Q4_0's block of 32`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	m, _ = quantmix.Find("Q6_K")
	types, err = m.Types(s.model(), []tensor.Tensor{{Name: "blk.0.attn_q.weight", DType: tensor.BF16, Shape: tensor.Shape{4, 100}}})
	if err != nil || types[0] != tensor.F16 {
		t.Errorf("rows of 100: %v, %v", types, err)
	}
	_, err = m.Types(quantmix.Model{Layers: 2, Experts: 4}, []tensor.Tensor{{Name: "blk.2.ffn_down.weight", DType: tensor.BF16, Shape: tensor.Shape{4, 256}}})
	if want := `tensor "blk.2.ffn_down.weight": its layer is none of the model's 2`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestOf(t *testing.T) {
	shape := shapes[slices.IndexFunc(shapes, func(s shape) bool { return s.name == "a4b" })]
	read := func(change func(all []gguf.KeyValue) []gguf.KeyValue) (quantmix.Model, error) {
		return of(t, change(shape.metadata()))
	}
	set := func(key string, value any) func(all []gguf.KeyValue) []gguf.KeyValue {
		return func(all []gguf.KeyValue) (kept []gguf.KeyValue) {
			for _, kv := range all {
				if kv.Key != key {
					kept = append(kept, kv)
				} else if value != nil {
					kept = append(kept, gguf.KeyValue{Key: key, Value: value})
				}
			}
			return kept
		}
	}
	if m, err := read(set("", nil)); err != nil || m != shape.model() {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := read(set("gemma4.attention.head_count_kv", nil)); err != nil || m.Group != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	for _, c := range []struct {
		key   string
		value any
		want  string
	}{
		{"general.architecture", nil, `key "general.architecture"`},
		{"general.architecture", "mamba", "only the mixes of " + strings.Join(registry.Names(), ", ") + " are known"},
		{"gemma4.block_count", nil, `gemma4.block_count`},
		{"gemma4.block_count", uint32(1 << 30), `want up to 1048576`},
		{"gemma4.attention.head_count", "x", `gemma4.attention.head_count`},
		{"gemma4.attention.head_count_kv", []int32{}, `no first number from 0`},
		{"gemma4.attention.head_count_kv", []int32{-1}, `no first number from 0`},
		{"gemma4.attention.head_count_kv", []string{"x"}, `gemma4.attention.head_count_kv`},
		{"gemma4.expert_count", int32(-1), `gemma4.expert_count`},
	} {
		if _, err := read(set(c.key, c.value)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %v: error %v, want %s", c.key, c.value, err, c.want)
		}
	}
}

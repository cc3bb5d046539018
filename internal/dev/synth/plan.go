package synth

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// files holds a file for each family: {"common": {...}, "shapes": {"1b": {...}}}. The settings of config.json that a
// shape has are those of "common" and its own.
//
//go:embed shapes
var files embed.FS

// types are the mixes that files are made of.
var types = []string{"BF16", "F16", "IQ1_M", "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_S", "IQ3_XXS", "IQ4_XS",
	"MXFP4_MOE", "Q2_0", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "TQ1_0", "TQ2_0"}

// Types lists the names of the mixes.
func Types() []string { return slices.Clone(types) }

// Archs lists the families that have shapes.
func Archs() (names []string) {
	all, _ := files.ReadDir("shapes") // embedded
	for _, f := range all {
		names = append(names, strings.TrimSuffix(f.Name(), ".json"))
	}
	return names
}

// list is a file of shapes.
type list struct {
	Common  map[string]any            `json:"common"`
	Pooling *uint32                   `json:"pooling"` // GGUF's pooling_type of encoders
	Shapes  map[string]map[string]any `json:"shapes"`
}

// read returns the shapes of a family, none of an unknown one.
func read(arch string) (l list) {
	b, err := files.ReadFile(path.Join("shapes", arch+".json"))
	if err == nil {
		err = json.Unmarshal(b, &l)
		if err != nil {
			panic(fmt.Sprintf("shapes of %s: %v", arch, err)) // a test reads all
		}
	}
	return l
}

// Shapes lists the names of a family's shapes.
func Shapes(arch string) []string { return slices.Sorted(maps.Keys(read(arch).Shapes)) }

// plan is a file to be written, without its tokenizer and its values.
type plan struct {
	family   *family.Family
	vocab    int
	metadata []gguf.KeyValue
	tensors  []tensor.Tensor
	factors  map[string][]float32 // of tensors of divisors, by name
}

// newPlan makes the plan of o, with a vocabulary of another size than the shape's if vocab is not 0.
func newPlan(o Options, vocab int) (*plan, error) {
	if err := Check(o); err != nil {
		return nil, err
	}
	l := read(o.Arch)
	settings := maps.Clone(l.Common)
	maps.Copy(settings, l.Shapes[o.Shape])
	if vocab > 0 {
		settings["vocab_size"] = vocab
	}
	config, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.Configured(config)
	if err != nil {
		return nil, err
	}
	p := &plan{family: c.Family, vocab: int(c.Setting("vocab_size").(float64)), factors: map[string][]float32{}}
	if err := p.header(c, o, l.Pooling); err != nil {
		return nil, err
	}
	return p, p.weights(c, o)
}

// header sets the metadata, and adds the tensors of divisors.
func (p *plan) header(c *checkpoint.Checkpoint, o Options, pooling *uint32) error {
	own, factors, err := c.MetadataGGUF()
	if err != nil {
		return err
	}
	mix, _ := quantmix.Find(o.Type) // Check found it
	p.metadata = append([]gguf.KeyValue{
		{Key: "general.architecture", Value: o.Arch},
		{Key: "general.type", Value: "model"},
		// llama.cpp wants Phi-3's tokens of a file with that in its name
		{Key: "general.name", Value: "Random " + o.Shape},
		{Key: "general.file_type", Value: mix.FileType},
		{Key: "general.quantization_version", Value: uint32(2)},
	}, own...)
	for _, f := range factors {
		name := f.Name + ".weight"
		p.factors[name] = f.Values
		p.tensors = append(p.tensors, tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{len(f.Values)}})
	}
	if pooling == nil {
		return nil
	}
	put := func(key string, n int) {
		p.metadata = append(p.metadata, gguf.KeyValue{Key: o.Arch + "." + key, Value: uint32(n)})
	}
	put("pooling_type", int(*pooling))
	in := int(c.Setting("hidden_size").(float64))
	out := 4 * in // as wide between dense layers as four vectors
	for i := range p.family.Model.Dense() {
		name := fmt.Sprintf("dense_%d", i+2)
		put(name+"_feat_in", in)
		put(name+"_feat_out", out)
		p.tensors = append(p.tensors, tensor.Tensor{Name: name + ".weight", DType: tensor.BF16,
			Shape: tensor.Shape{out, in}})
		in, out = out, in
	}
	return nil
}

// weights adds the tensors that the model reads, and chooses the types of all.
func (p *plan) weights(c *checkpoint.Checkpoint, o Options) error {
	tensors, err := arch.Planned(c)
	if err != nil {
		return err
	}
	for _, t := range tensors {
		if len(t.Shape) == 3 && t.Shape[0] == 1 { // one expert of all tokens is a matrix
			t.Shape = t.Shape[1:]
		}
		p.tensors = append(p.tensors, convert.GGUFTensor(c, t, tensor.BF16))
	}
	metadata, err := gguf.MetadataOf(p.metadata)
	if err != nil {
		return err
	}
	model, err := quantmix.Of(metadata)
	if err != nil {
		return err
	}
	mix, _ := quantmix.Find(o.Type)
	chosen, err := mix.Types(model, p.tensors)
	for i := range chosen {
		p.tensors[i].DType = chosen[i]
	}
	return err
}

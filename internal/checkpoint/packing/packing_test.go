package packing

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// module makes a layer of a packing, [48, 64], and a part of its neighbors.
func layer(t *testing.T, name string) (config []byte, parts map[string]tensor.Tensor) {
	t.Helper()
	i := slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == name })
	if i < 0 {
		t.Fatalf("no packing %s", name)
	}
	p := packed.All[i]
	w := make([]float32, 48*64)
	for i := range w {
		w[i] = float32(i*2654435761%1009)/1009 - 0.4
	}
	parts = map[string]tensor.Tensor{}
	all, _ := p.Pack(w, 48, 64)
	for _, part := range all {
		part.Name = "m.q_proj." + part.Name
		parts[part.Name] = part
	}
	config, err := json.Marshal(map[string]json.RawMessage{p.Key: json.RawMessage(p.Config)})
	if err != nil {
		t.Fatal(err)
	}
	return config, parts
}

// apply reads parts, in the order of their names.
func apply(config []byte, parts map[string]tensor.Tensor) ([]tensor.Tensor, error) {
	p, err := Of(config, nothing)
	if err != nil {
		return nil, err
	}
	var all []tensor.Tensor
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		all = append(all, parts[name])
	}
	u, err := p.Apply(all, inOne, never)
	return u.Tensors, err
}

// nothing has no file beside config.json.
func nothing(string) ([]byte, error) { return nil, nil }

// never has no matrices as [in, out].
func never(string) bool { return false }

// inOne has all tensors in a file.
func inOne(string) string { return "model.safetensors" }

// TestSpoiled takes each part of each packing away, turns it, cuts it, gives it another type and moves it to another
// module: all are errors that name the part or its weight.
func TestSpoiled(t *testing.T) {
	for _, p := range packed.All {
		config, whole := layer(t, p.Name)
		if list, err := apply(config, whole); err != nil || len(list) != 1 {
			t.Errorf("%s: %d tensors, %v", p.Name, len(list), err)
		}
		for name := range whole {
			ending := name[strings.LastIndexByte(name, '.')+1:]
			if kinds[ending] == ofActivations {
				continue
			}
			for how, spoil := range map[string]func(x tensor.Tensor) (tensor.Tensor, bool){
				"missing": func(x tensor.Tensor) (tensor.Tensor, bool) { return x, false },
				"turned": func(x tensor.Tensor) (tensor.Tensor, bool) {
					if len(x.Shape) == 2 {
						x.Shape = tensor.Shape{x.Shape[1], x.Shape[0]}
					} else {
						x.Shape = append(tensor.Shape{3}, x.Shape...)
					}
					return x, true
				},
				"moved": func(x tensor.Tensor) (tensor.Tensor, bool) {
					x.Name = strings.Replace(x.Name, "q_proj", "k_proj", 1)
					return x, true
				},
				"typed": func(x tensor.Tensor) (tensor.Tensor, bool) { x.DType = tensor.F64; return x, true },
			} {
				parts := maps.Clone(whole)
				x, stays := spoil(parts[name])
				delete(parts, name)
				if stays {
					parts[x.Name] = x
				}
				if whole[name].Shape.Size() == 1 && how == "turned" || ending == "g_idx" && how == "missing" && !strings.Contains(p.Name, "act") {
					continue
				}
				if how == "turned" && (slices.Equal(x.Shape, whole[name].Shape) || x.DType == tensor.F8_E4M3) {
					continue // of one block: the model's shape tells
				}
				if _, err := apply(config, parts); err == nil {
					t.Errorf("%s: %s %s: no error", p.Name, ending, how)
				} else if !strings.Contains(err.Error(), "_proj") {
					t.Errorf("%s: %s %s: %v", p.Name, ending, how, err)
				}
			}
		}
		for _, extra := range []string{"weight_scale_inv", "weight_scale_2", "biases", "g_idx", "weight_g_idx", "qzeros"} {
			parts := maps.Clone(whole)
			name := "m.q_proj." + extra
			if _, has := parts[name]; has || extra == "g_idx" && strings.HasPrefix(p.Name, "gptq") ||
				extra == "weight_g_idx" && strings.HasPrefix(p.Name, "ct-int") {
				continue
			}
			parts[name] = tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)}
			if _, err := apply(config, parts); err == nil || !strings.Contains(err.Error(), "claims") {
				t.Errorf("%s: extra %s: %v", p.Name, extra, err)
			}
		}
	}
}

// TestRefused names the methods that are not read, and what to take.
func TestRefused(t *testing.T) {
	for config, want := range map[string]string{
		`{"quant_method": "bitsandbytes", "load_in_4bit": true}`:                                                  "bitsandbytes",
		`{"quant_method": "hqq"}`:                                                                                 "hqq",
		`{"quant_method": "aqlm"}`:                                                                                "codebooks",
		`{"quant_method": "exl3", "bits": 4}`:                                                                     "trellis",
		`{"quant_method": "exl3", "bits": 3.5, "tensor_storage": {}}`:                                             "trellis",
		`{"quant_method": "exl2", "bits": 4.0}`:                                                                   "ExLlama",
		`{"load_in_8bit": true}`:                                                                                  "bitsandbytes",
		`{"quant_method": "bitsandbytes_8bit"}`:                                                                   "nested scales",
		`{"quant_method": "quip_sharp"}`:                                                                          "rotations",
		`{"quant_method": "gptq", "bits": 4, "group_size": -5}`:                                                   "group_size is -5",
		`{"quant_method": "awq", "bits": 4, "group_size": -5}`:                                                    "group_size is -5",
		`{"quant_method": "exl2"}`:                                                                                "ExLlama",
		`{"quant_method": "new", "bits": 4}`:                                                                      `"new" is not read`,
		`{"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:exllamav2"}`:                     `packing_format "auto_round:exllamav2" of auto-round is not read, auto_round:auto_gptq and auto_round:auto_awq are`,
		`{"bits": "four"}`:                                                                                        "quantization_config",
		`{"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}`:                                                  "W4A8_AWQ",
		`{"quant_method": "awq", "bits": 4, "version": "gemv"}`:                                                   "gemv",
		`{"method": "awq", "format": "llm-awq"}`:                                                                  "llm-awq",
		`{"quant_method": "gptq", "bits": 5}`:                                                                     "bits is 5",
		`{"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}`:                                      "marlin",
		`{"quant_method": "compressed-tensors", "transform_config": {"config_groups": {}}}`:                       "transform_config",
		`{"quant_method": "compressed-tensors", "config_groups": {"a": {"format": "marlin-24"}}}`:                 "marlin-24",
		`{"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}}`:              "sparse-24",
		`{"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 64}}}}`:           "64 bits",
		`{"quant_method": "compressed-tensors", "config_groups": {"a": null}}`:                                    "null",
		`{"quant_method": "fp8", "weight_scale_semantics": "inverse"}`:                                            "divide",
		`{"quant_method": "gptq", "bits": 3, "format": "gptq_p"}`:                                                 "gptq_p",
		`{"quant_method": "fp8", "weight_block_size": [128]}`:                                                     "weight_block_size",
		`{"quant_method": "fp8", "weight_block_size": [0, 128]}`:                                                  "weight_block_size",
		`{"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4, "type": 7}}}}`: "config.json",
	} {
		_, err := Of([]byte(`{"quantization_config": `+config+`}`), nothing)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestTargets: a module's name tells before a pattern, and a pattern before a class; ignored modules are not packed.
func TestTargets(t *testing.T) {
	of := func(groups, ignore string) error {
		_, parts := layer(t, "ct-int4-group")
		_, err := apply([]byte(`{"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
			"ignore": [`+ignore+`], "config_groups": {`+groups+`}}}`), parts)
		return err
	}
	const four = `"weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32}}`
	const eight = `"weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"}}`
	for _, groups := range []string{`"a": {"targets": ["Linear"], ` + four,
		`"a": {"targets": ["Linear"], ` + eight + `, "b": {"targets": ["re:.*q_proj$"], ` + four,
		`"a": {"targets": ["re:m.*"], ` + eight + `, "b": {"targets": ["m.q_proj"], ` + four,
		`"a": {"targets": ["Embedding"], ` + eight + `, "b": {"targets": ["Linear"], ` + four,
		`"a": {"targets": ["re:m.q.*"], ` + eight + `, "b": {"targets": ["re:.*_proj"], ` + four,
		`"a": {"targets": ["Attention"], ` + eight + `, "b": {"targets": ["Linear"], ` + four} {
		if err := of(groups, `"lm_head"`); err != nil {
			t.Errorf("%s: %v", groups, err)
		}
	}
	for groups, ignore := range map[string]string{
		`"a": {"targets": ["re:.*q_proj"], ` + eight + `, "b": {"targets": ["Linear"], ` + four: ``,
		`"a": {"targets": ["Embedding"], ` + four:                                               ``,
		`"a": {"targets": ["k_proj.x"], ` + four:                                                ``,
		`"a": {"targets": ["Linear"], ` + four:                                                  `"re:.*q_proj"`,
	} {
		if err := of(groups, ignore); err == nil {
			t.Errorf("%s: no error", groups)
		}
	}
}

var update = flag.Bool("update", false, "write the fuzz corpus")

// seeds returns an input for each packing: the layer's packing, a part and its rows, and a configuration.
func seeds() map[string][]byte {
	all := map[string][]byte{}
	for _, p := range packed.All {
		all[p.Name] = fmt.Appendf(nil, `%s 9 0 {"%s": %s}`, p.Name, p.Key, p.Config)
		all["empty "+p.Name] = fmt.Appendf(nil, `%s 0 0 {"%s": %s}`, p.Name, p.Key, p.Config)
		all["spoiled "+p.Name] = fmt.Appendf(nil, `%s 1 32 {"%s": %s}`, p.Name, p.Key, p.Config)
		all["large "+p.Name] = fmt.Appendf(nil, `%s 9 0 {"%s": %s}`, p.Name, p.Key, large.ReplaceAllString(p.Config, "${1}"+
			strconv.Itoa(math.MaxInt64)))
	}
	all["beside gptq"] = []byte(`gptq 9 0 {"bits": 4, "group_size": 32, "desc_act": false}`)
	all["beside modelopt"] = []byte(`modelopt-nvfp4 9 0 {"producer": {}, "quantization": {"quant_algo": "NVFP4"}}`)
	return all
}

// large matches sizes of groups and blocks.
var large = regexp.MustCompile(`("group_size": |size": \[|\[\d+, )-?\d+`)

func TestCorpus(t *testing.T) { golden.Corpus(t, "FuzzPacking", seeds(), *update) }

// FuzzPacking reads any configuration, also as a file beside config.json, with a layer of any packing, of which a part has another shape. What is read can
// be decoded.
func FuzzPacking(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		words := strings.SplitN(string(in), " ", 4)
		if len(words) < 4 {
			return
		}
		i := slices.IndexFunc(packed.All, func(p packed.Packing) bool { return p.Name == words[0] })
		of, _ := strconv.Atoi(words[1])
		rows, _ := strconv.Atoi(words[2])
		p, err := Of([]byte(words[3]), func(string) ([]byte, error) { return []byte(words[3]), nil })
		if i < 0 || err != nil {
			return
		}
		parts, _ := packed.All[i].Pack(slices.Repeat([]float32{0.5, -1}, 16*64/2), 16, 64)
		for j := range parts {
			parts[j].Name = "q_proj." + parts[j].Name
			if n := parts[j].Shape; j == of && len(n) == 2 && rows > 0 && n.Size()%rows == 0 {
				parts[j].Shape = tensor.Shape{rows, n.Size() / rows}
			} else if j == of && len(n) == 2 && rows == 0 {
				parts[j].Shape, parts[j].Data = tensor.Shape{0, n[1]}, nil
			}
		}
		u, err := p.Apply(parts, inOne, never)
		if err != nil {
			return
		}
		for _, x := range u.Tensors {
			if x.Source != nil && x.Shape.Size() < 1<<16 {
				if _, err := x.Whole(); err != nil && x.Shape.Size() > 0 {
					t.Fatal(err)
				}
				if c, ok := x.Coded(); ok {
					if _, err := c.Whole(); err != nil {
						t.Fatal(err)
					}
				}
				v, ok := x.Source.(interface {
					Eights(from, to, k int, order func(row int) int) *simd.Eights
				})
				if !ok || x.Rows() == 0 {
					continue
				}
				if e := v.Eights(0, x.Rows(), x.Shape.Last(), nil); e != nil {
					for row := range x.Rows() {
						simd.LoadE4M3Row(make([]float32, e.K), e, row)
					}
				}
			}
		}
	})
}

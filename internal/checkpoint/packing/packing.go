// Package packing reads weights that Hugging Face folders hold as codes with scales: FP8, and the packings of
// compressed-tensors, AWQ, GPTQ, Quark and MLX.
//
// Of reads a folder's packing from config.json or a file beside it, and Apply makes a single tensor of the parts of
// each weight. Values are decoded when they are read; nothing of the files is copied. Every part of a folder belongs to
// a weight: a scale, a zero point or an index that no weight claims is an error.
//
// Files in reading order: packing.go; the methods: compressed.go, modelopt.go, fp8.go, mlx.go, gptq.go, plain.go,
// refused.go; and the weights of methods: matrix.go, blocks.go, module.go, codes.go, grid.go.
package packing

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/tensor"
)

// Packing tells how a folder's weights are packed.
type Packing struct {
	method
	at string // the file and the key that describe the packing
}

// method reads the weights of a way of packing.
type method interface {
	// validate checks the settings, which encoding/json has read.
	validate() error
	// weight returns the weight of a module with parts, after reading all parts about the weight.
	weight(m *module) (tensor.Tensor, error)
	// Name returns the names of the method and its settings, for people.
	Name() string
	// says lists the settings about a module.
	says(module string) string
}

// besides lists the files that describe a packing where config.json does not, and their methods where they name none:
// of AutoGPTQ and GPTQModel (auto_gptq/quantization/config.py), AutoAWQ, and ModelOpt (convert_hf_config.py).
var besides = []struct{ file, method string }{{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"},
	{"hf_quant_config.json", "modelopt"}}

// Of returns the packing described in a config.json, or in a file beside it. Read returns the contents of such a file,
// nil for none. An unknown method is an error.
func Of(config []byte, read func(name string) ([]byte, error)) (*Packing, error) {
	var c struct {
		Quantization json.RawMessage `json:"quantization_config"`
		Compression  json.RawMessage `json:"compression_config"`
		MLX          json.RawMessage `json:"quantization"`
		Text         struct {
			Quantization json.RawMessage `json:"quantization_config"`
		} `json:"text_config"`
	}
	if json.Unmarshal(config, &c) != nil {
		return &Packing{method: &plain{}}, nil // the reading of settings has the error
	}
	for _, at := range []struct {
		key string
		raw json.RawMessage
	}{{"quantization", c.MLX}, {"quantization_config", c.Quantization}, {"compression_config", c.Compression},
		{"text_config.quantization_config", c.Text.Quantization}} {
		if !isNull(at.raw) {
			return inFile("config.json", at.key)(parse(at.raw, at.key, ""))
		}
	}
	for _, at := range besides {
		raw, err := read(at.file)
		if err != nil {
			return nil, err
		}
		if !isNull(raw) {
			return inFile(at.file, "")(parse(raw, "", at.method))
		}
	}
	return &Packing{method: &plain{}}, nil
}

// inFile returns a function that notes the file and the key of a packing, and names the file of an error.
func inFile(file, key string) func(*Packing, error) (*Packing, error) {
	return func(p *Packing, err error) (*Packing, error) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		p.at = strings.TrimSuffix(file+", "+key, ", ")
		return p, nil
	}
}

// description holds what tells the methods apart.
type description struct {
	Method  string `json:"quant_method"`
	Code    string `json:"method"` // the same, in GPTQModel's files
	Bits    any
	Group   any             `json:"group_size"`
	Algo    string          `json:"quant_algo"`
	Format  string          `json:"packing_format"`
	Version string          // of AWQ
	Data    string          `json:"data_type"`           // of auto-round
	Nested  json.RawMessage `json:"quantization"`        // of ModelOpt
	Inner   json.RawMessage `json:"quantization_config"` // of compressed-tensors, in older files
	In4     any             `json:"load_in_4bit"`        // of bitsandbytes, whose older files name no method
	In8     any             `json:"load_in_8bit"`

	Rotation  any // of GPTQModel; of auto-round are the others
	Rotations any `json:"rotation_config"`
	Spins     any `json:"spinquant_config"`
}

// parse reads the object that describes a packing, the value of a key. Method names the packing where the object does
// not.
func parse(raw json.RawMessage, key, method string) (*Packing, error) {
	d := description{}
	err := jsonerr.Unmarshal(raw, &d, key)
	if d.Method = cmp.Or(d.Method, d.Code, method); err == nil && !isNull(d.Nested) {
		raw, key = d.Nested, strings.TrimPrefix(key+".quantization", ".")
		err = jsonerr.Unmarshal(raw, &d, key)
	}
	inner := d.Inner // beside settings of sparsity
	if err == nil && !isNull(inner) {
		err = jsonerr.Unmarshal(inner, &d, key+".quantization_config")
	}
	if err != nil {
		return nil, err
	}
	m, err := d.method()
	if err == nil {
		if err = jsonerr.Unmarshal(raw, m, key); err == nil && !isNull(inner) {
			err = jsonerr.Unmarshal(inner, m, key+".quantization_config")
		}
		if err != nil {
			return nil, err
		}
		err = m.validate()
	}
	if err != nil && key != "" {
		err = fmt.Errorf("%s: %w", key, err)
	}
	return &Packing{method: m}, err
}

// method returns the method named, without its settings.
func (d *description) method() (method, error) {
	kind, round := strings.ToLower(d.Method), ""
	if kind = strings.TrimPrefix(kind, "intel/"); kind == "auto-round" {
		round = d.Format // absent of floats of 8 bits: save_quantized in export/formats/backends/autoround.py
		if round == "" && !strings.HasPrefix(d.Data, "fp") {
			round = "auto_round:auto_gptq"
		}
	}
	for key, v := range map[string]any{"rotation": d.Rotation, "rotation_config": d.Rotations,
		"spinquant_config": d.Spins} {
		if text := fmt.Sprint(v); !slices.Contains([]string{"<nil>", "", "map[]", "[]", "false"}, text) {
			return nil, fmt.Errorf("%s is %.80s: rotations of activations are not computed; %s", key, text, advice)
		}
	}
	switch {
	case kind == "mxfp4": // gpt-oss: the parts' names tell
		return &plain{described: true}, nil
	case slices.Contains([]string{"fp8", "fbgemm_fp8", "mxfp8"}, kind),
		kind == "auto-round" && slices.Contains([]string{"", "auto_round:fp8", "auto_round:fp8_static"}, round):
		return &fp8{}, nil
	case kind == "quark":
		return &quark{}, nil
	case strings.HasPrefix(kind, "modelopt"), kind == "" && d.Algo != "":
		return &modelOpt{}, nil
	case kind == "compressed-tensors", round == "auto_round:llm_compressor":
		return &compressed{}, nil
	case kind == "awq", kind == "gptq" && strings.EqualFold(d.Version, "gemm"),
		strings.HasSuffix(round, "awq"):
		return &awq{}, nil
	case kind == "gptq", strings.HasSuffix(round, "gptq"), exactZeros(round):
		return &gptq{}, nil
	case round != "":
		return nil, fmt.Errorf("packing_format %q of %s is not read, auto_round:auto_gptq and auto_round:auto_awq "+
			"are; "+advice, round, d.Method)
	case kind == "" && (d.In4 != nil || d.In8 != nil):
		return nil, refuse("bitsandbytes", "")
	case kind == "" && d.Group != nil && d.Bits != nil:
		return &mlx{}, nil
	}
	return nil, refuse(d.Method, d.Algo)
}

// exactZeros reports whether auto-round's packing holds zero points as they are (GPTQ_FORMAT_NO_ZP in
// auto_round/inference/backend.py).
func exactZeros(round string) bool { return round == "auto_round" || round == "auto_round:gptqmodel" }

// maxErrors bounds the report on a folder all of whose weights fail.
const maxErrors = 3

// Unpacked holds a folder's tensors, with a single tensor in place of each packed weight's parts. Scales of
// activations, which are computed in floating point here, are set aside.
type Unpacked struct {
	Tensors []tensor.Tensor
	Name    string // of the packing; "" where no weight is packed
	Aside   int    // number of scales set aside
	Scales  []Scales
}

// Scales are the scales of a weight, in sound folders greater than 0, or where Signed is set other than 0.
type Scales struct {
	tensor.Tensor
	Signed bool
}

// Apply makes the weights of a folder's tensors. File returns the name of the file with a tensor, for errors; turned
// reports whether a tensor of matrices outside modules has these as [in, out].
func (p *Packing) Apply(all []tensor.Tensor, file func(name string) string, turned func(name string) bool) (
	u Unpacked, err error) {
	if p, ok := p.method.(*plain); ok {
		return p.apply(all, file)
	}
	modules, split := map[string]*module{}, splitter(all)
	for _, t := range all {
		if name, ending := split(t.Name); ending != "" {
			if modules[name] == nil {
				modules[name] = &module{name: name, parts: map[string]tensor.Tensor{}, read: map[string]bool{}}
			}
			m := modules[name]
			m.parts[ending] = t
			if t.Name == name {
				m.bare, m.turned = true, turned(name)
			}
		}
	}
	var errs []error
	said := map[string]bool{}
	for _, t := range all {
		name, ending := split(t.Name)
		m := modules[name]
		if ending == "" || kinds[ending] == codesPart && m.plain() {
			u.Tensors = append(u.Tensors, t)
		} else if kinds[ending] == codesPart {
			w, err := p.weight(m)
			if err != nil {
				err = fmt.Errorf("%s: tensor %s: %w", file(t.Name), name, err)
				if says := p.says(name); !errors.As(err, new(damage)) && !said[says] {
					said[says] = true
					err = fmt.Errorf("%w (%s says %s: take weights and settings of one publisher)", err, p.at, says)
				}
				errs, m.failed = append(errs, err), true
			}
			u.Tensors, u.Scales, u.Name = append(u.Tensors, w), append(u.Scales, m.scales...), p.Name()
		} else if k := kinds[ending]; k == ofCache || k == ofActivations && m.packed() {
			u.Aside++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m := modules[name]
		for _, ending := range m.unread() {
			of := m.parts[ending].Name
			errs = append(errs, fmt.Errorf("%s: tensor %s: no weight claims it%s", file(of), of, m.owner()))
		}
	}
	return u, joinErrors(errs)
}

// damage is an error about a number of a part, whatever the settings.
type damage struct{ error }

func damaged(format string, args ...any) error { return damage{fmt.Errorf(format, args...)} }

// joinErrors returns the first errors, in a line, and the number of the others.
func joinErrors(errs []error) error {
	var texts []string
	for i, err := range errs {
		if i == maxErrors {
			texts = append(texts, fmt.Sprintf("and %d errors more", len(errs)-i))
			break
		}
		texts = append(texts, err.Error())
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

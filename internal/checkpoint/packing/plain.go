package packing

import (
	"fmt"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// plain is the method of folders that describe none. Names tell of their packed weights, if any: blocks and scales of
// MXFP4 (Mxfp4Config in transformers/quantizers/quantizer_mxfp4.py).
type plain struct {
	described bool // config.json names MXFP4
}

func (p *plain) validate() error { return nil }

func (p *plain) Name() string { return "MXFP4" }

func (p *plain) says(string) string { return "nothing" }

func (p *plain) weight(m *module) (t tensor.Tensor, err error) {
	if p.described {
		return t, fmt.Errorf("it is packed as %s, and not as blocks and scales, which quant_method mxfp4 of "+
			"config.json has: take the publisher's files", m.guess())
	}
	return t, fmt.Errorf("the weight is packed as %s, but config.json has no quantization_config, and no "+
		"quantize_config.json, quant_config.json or hf_quant_config.json is beside it: take the publisher's files",
		m.guess())
}

// apply joins the bytes of NAME_blocks and NAME_scales into a tensor NAME.
func (p *plain) apply(all []tensor.Tensor, file func(name string) string) (u Unpacked, err error) {
	bytes, scaled := map[string]tensor.Tensor{}, map[string]bool{}
	for _, t := range all {
		name, ending := split(t.Name)
		if kinds[ending] == ofCodes {
			scaled[name] = true
		}
		if method := ofParts[t.Name[strings.LastIndexByte(t.Name, '.')+1:]]; method != "" {
			return u, fmt.Errorf("%s: tensor %s: %w", file(t.Name), t.Name, refuse(method, ""))
		}
		if t.DType == tensor.U8 {
			bytes[t.Name] = t
		}
	}
	for _, t := range all {
		name, blocks := strings.CutSuffix(t.Name, "_blocks")
		if scales, ok := bytes[name+"_scales"]; ok && blocks {
			w, err := microscaled(name, t, scales)
			if err != nil {
				return u, fmt.Errorf("%s: tensor %s: %w", file(t.Name), t.Name, err)
			}
			t, u.Name = w, p.Name()
		}
		if name, ok := strings.CutSuffix(t.Name, "_scales"); ok && bytes[name+"_blocks"].Shape != nil {
			continue
		}
		if of, ending := split(t.Name); kinds[ending] == codesPart && scaled[of] && !t.DType.Float() {
			_, err := p.weight(moduleOf(of, all))
			return u, fmt.Errorf("%s: tensor %s: %w", file(t.Name), t.Name, err)
		}
		u.Tensors = append(u.Tensors, t)
	}
	return u, nil
}

// microscaled returns the tensor of blocks [.., columns/32, 16], whose byte j holds weights 2j and 2j+1, and of scales
// [.., columns/32].
func microscaled(name string, blocks, scales tensor.Tensor) (t tensor.Tensor, err error) {
	last := len(blocks.Shape) - 1
	if last < 2 || blocks.Shape[last] != 16 {
		return t, fmt.Errorf("shape %v, expected blocks of 16 bytes", []int(blocks.Shape))
	}
	blocks.Shape = append(blocks.Shape[:last-1:last-1], blocks.Shape[last-1]*16)
	m := &module{parts: map[string]tensor.Tensor{"weight": blocks, "weight_scale": scales}, read: map[string]bool{}}
	if t, err = readFours(m, blocks, 32, ""); err != nil {
		return t, fmt.Errorf("with %s: %w", scales.Name, err)
	}
	t.Name = name
	return t, nil
}

// moduleOf returns a module with its parts.
func moduleOf(name string, all []tensor.Tensor) *module {
	m := &module{name: name, parts: map[string]tensor.Tensor{}}
	for _, t := range all {
		if of, ending := split(t.Name); of == name {
			m.parts[ending] = t
		}
	}
	return m
}

package packing

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/karat-run/karat/internal/tensor"
)

// fp8 reads 8-bit floats with a scale for each block, each row or the whole, as in transformers
// (quantizer_finegrained_fp8.py, quantizer_fbgemm_fp8.py) and NVIDIA's ModelOpt. A weight is code * scale, whatever the
// name weight_scale_inv suggests.
type fp8 struct {
	Block   []int  `json:"weight_block_size"`
	Meaning string `json:"weight_scale_semantics"` // of GPTQModel, whose weight is code / scale (qlinear/fp8.py)
}

func (p *fp8) validate() error {
	if p.Meaning != "" {
		return fmt.Errorf("weight_scale_semantics is %q: scales that divide are not read; %s", p.Meaning, advice)
	}
	return checkBlock("weight_block_size", p.Block)
}

// checkBlock checks the size of a block, perhaps absent.
func checkBlock(key string, block []int) error {
	if len(block) > 0 && (len(block) != 2 || min(block[0], block[1]) < 1) {
		return fmt.Errorf("%s is %v, expected rows and columns", key, block)
	}
	return nil
}

func (p *fp8) Name() string {
	if len(p.Block) == 2 {
		return fmt.Sprintf("FP8, blocks of %dx%d", p.Block[0], p.Block[1])
	}
	return "FP8"
}

func (p *fp8) says(string) string {
	if len(p.Block) == 0 {
		return "fp8 without weight_block_size"
	}
	return fmt.Sprintf("weight_block_size %v", p.Block)
}

func (p *fp8) weight(m *module) (tensor.Tensor, error) {
	w, ok := m.part("weight")
	if !ok {
		return w, m.other("FP8")
	}
	if err := wants("weight", w, []tensor.DType{tensor.F8_E4M3, tensor.F8_E5M2}, w.Shape); err != nil {
		return w, err
	}
	ending := "weight_scale_inv"
	_, inv := m.parts[ending]
	if _, ok := m.parts["weight_scale"]; ok && inv {
		return w, errors.New("it claims one of weight_scale_inv and weight_scale, which are both there")
	} else if ok {
		ending = "weight_scale"
	}
	return readScaled(m, w, findValues(w.DType), ending, p.Block)
}

// quark reads exports of AMD's Quark (quark/torch/export): FP8 with a scale of the whole or of each row, and MXFP4. The
// type of codes tells them apart.
type quark struct {
	rotates bool
}

// online matches settings of rotations that no weight holds. (R3 turns queries and keys alike.)
var online = regexp.MustCompile(`"(r4|online_\w+)"\s*:\s*true`)

// UnmarshalJSON looks for rotations, wherever algo_config lies.
func (p *quark) UnmarshalJSON(b []byte) error {
	p.rotates = online.Match(b)
	return nil
}

func (p *quark) validate() error {
	if p.rotates {
		return errors.New("algo_config has r4 or an online rotation: rotations of activations are not computed; " +
			advice)
	}
	return nil
}

func (p *quark) Name() string { return "Quark" }

func (p *quark) says(string) string { return "quant_method quark" }

func (p *quark) weight(m *module) (tensor.Tensor, error) {
	w, ok := m.part("weight")
	switch {
	case !ok:
		return w, m.other("Quark")
	case w.DType == tensor.U8:
		return readFours(m, w, 32, "")
	}
	if err := wants("weight", w, []tensor.DType{tensor.F8_E4M3, tensor.U8}, w.Shape); err != nil {
		return w, err
	}
	return readScaled(m, w, e4m3, "weight_scale", nil)
}

// findValues returns the values of a type's bytes, nil for other types.
func findValues(d tensor.DType) *[256]float32 {
	return map[tensor.DType]*[256]float32{tensor.F8_E4M3: e4m3, tensor.F8_E5M2: e5m2, tensor.I8: integers}[d]
}

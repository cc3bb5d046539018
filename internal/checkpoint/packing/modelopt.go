package packing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// modelOpt reads the exports of NVIDIA's ModelOpt (modelopt/torch/export/quant_utils.py).
type modelOpt struct {
	algorithm
	Layers map[string]algorithm `json:"quantized_layers"` // of MIXED_PRECISION, by module
}

// algorithm tells how a module is packed.
type algorithm struct {
	Algo  string `json:"quant_algo"`
	Group int    `json:"group_size"`
}

// mixed names the algorithm of folders with a table of layers.
const mixed = "MIXED_PRECISION"

// validate checks the algorithms. None at all is that of folders whose cache alone is quantized.
func (p *modelOpt) validate() error {
	if p.Algo == "" {
		return nil
	}
	if !strings.EqualFold(p.Algo, mixed) {
		return p.algorithm.validate()
	}
	if len(p.Layers) == 0 {
		return errors.New("quant_algo is MIXED_PRECISION, but quantized_layers is empty")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Layers)) {
		if err := p.Layers[name].validate(); err != nil {
			return fmt.Errorf("quantized_layers.%s: %w", name, err)
		}
	}
	return nil
}

// validate refuses algorithms that are not read.
func (a algorithm) validate() error {
	switch strings.ToUpper(a.Algo) {
	case "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "FP8_PB_REAL", "W8A16", "W8A8_SQ_PER_CHANNEL":
		return nil
	case "NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8":
		return a.checkGroup(16)
	case "MXFP4", "MXFP8", "W4A8_MXFP4_FP8":
		return a.checkGroup(32)
	}
	return refuse("modelopt", a.Algo)
}

func (a algorithm) checkGroup(want int) error {
	if a.Group != 0 && a.Group != want {
		return fmt.Errorf("group_size is %d, %s has groups of %d", a.Group, a.Algo, want)
	}
	return nil
}

func (p *modelOpt) Name() string {
	if strings.EqualFold(p.Algo, mixed) {
		var all []string
		for _, a := range p.Layers {
			all = append(all, a.Algo)
		}
		slices.Sort(all)
		return "ModelOpt " + strings.Join(slices.Compact(all), " and ")
	}
	return "ModelOpt " + strings.ToUpper(p.Algo)
}

// of returns a module's form: in a table that of the longest name of it or of a module around it.
func (p *modelOpt) of(module string) (algorithm, error) {
	if !strings.EqualFold(p.Algo, mixed) {
		return p.algorithm, nil
	}
	for name := module; ; {
		if a, ok := p.Layers[name]; ok {
			return a, nil
		}
		i := strings.LastIndexByte(name, '.')
		if i < 0 {
			return algorithm{}, errors.New("it is packed, but quantized_layers does not have it")
		}
		name = name[:i]
	}
}

func (p *modelOpt) says(module string) string {
	a, err := p.of(module)
	if err != nil {
		return "quant_algo " + p.Algo
	}
	return fmt.Sprintf("quant_algo %q", a.Algo)
}

func (p *modelOpt) weight(m *module) (tensor.Tensor, error) {
	w, ok := m.part("weight")
	if !ok {
		return w, m.other("ModelOpt")
	}
	a, err := p.of(m.name)
	if err != nil {
		return w, err
	}
	want := tensor.F8_E4M3
	block := []int(nil)
	switch algo := strings.ToUpper(a.Algo); algo {
	case "NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8":
		return readFours(m, w, 16, "weight_scale_2")
	case "MXFP4", "W4A8_MXFP4_FP8":
		return readFours(m, w, 32, "")
	case "MXFP8":
		block = []int{1, 32}
	case "W8A16", "W8A8_SQ_PER_CHANNEL":
		want = tensor.I8
	case "FP8_PB_WO", "FP8_PB_REAL": // scales [rows/128, 1, columns/128, 1]
		block = []int{128, 128}
		if s, ok := m.parts["weight_scale"]; ok && len(s.Shape) == 4 && s.Shape[1] == 1 && s.Shape[3] == 1 {
			s.Shape = tensor.Shape{s.Shape[0], s.Shape[2]}
			m.parts["weight_scale"] = s
		}
	case "":
		return w, errors.New("it is packed, but quant_algo names no algorithm")
	}
	if err := wants("weight", w, []tensor.DType{want}, w.Shape); err != nil {
		return w, err
	}
	return readScaled(m, w, findValues(want), "weight_scale", block)
}

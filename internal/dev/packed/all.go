package packed

import (
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// of returns the packing of a module.
func (p Packing) of(module string) Packing {
	for ending, name := range p.Others {
		if strings.HasSuffix(module, ending) {
			all := slices.Concat(floats, integers)
			return all[slices.IndexFunc(all, func(p Packing) bool { return p.Name == name })]
		}
	}
	return p
}

// All are the packings that folders are written in.
var All = slices.Concat(floats, integers, mixes)

// mixes are packings whose modules differ.
var mixes = []Packing{{Name: "mlx-mixed", Key: "quantization", Embeds: true, Columns: 64,
	Config: `{"group_size": 64, "bits": 4, "lm_head": false}`, Pack: mlx(4, 64, tensor.BF16).Pack,
	Others: map[string]string{"down_proj": "mlx-6-bits", "q_proj": "mlx-8-bits", "v_proj": "mlx-mxfp4",
		"embed_tokens": "mlx-mxfp4"}}}

package panel

import (
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

// grids holds the formats with grids, by type. The fields are after a block's float16 scale, in IQ1_M of the whole
// block. See package quant for the layouts.
var grids = func() (grids [tensor.IQ3_S + 1]*simd.Grid) {
	for d, f := range map[tensor.DType]simd.GridFormat{
		tensor.IQ1_S: {Low: field(0, 8, 32, 8), High: field(256, 3, 16, 3), Sign: field(271, 1, 16, 0),
			Scale: field(268, 3, 64, 16)},
		tensor.IQ1_M: {Low: field(0, 8, 32, 8), High: field(256, 3, 16, 4), Sign: field(259, 1, 16, 4),
			Scale: field(384, 3, 16, 3)},
		tensor.IQ2_XXS: {Low: field(0, 8, 64, 8), Sign: field(32, 7, 64, 7), Scale: field(60, 4, 256, 64)},
		tensor.IQ2_XS: {Low: field(0, 8, 64, 16), High: field(8, 1, 64, 16), Sign: field(9, 7, 64, 16),
			Scale: field(512, 4, 16, 4)},
		tensor.IQ2_S: {Low: field(0, 8, 32, 8), High: field(512, 2, 8, 2), Sign: field(256, 8, 32, 8),
			Scale: field(576, 4, 16, 4)},
		tensor.IQ3_XXS: {Low: field(0, 8, 64, 8), Sign: field(512, 7, 32, 7), Scale: field(540, 4, 128, 32)},
		tensor.IQ3_S: {Low: field(0, 8, 64, 8), High: field(512, 1, 8, 1), Sign: field(576, 8, 32, 8),
			Scale: field(832, 4, 16, 4)},
	} {
		f.Points, f.Codes = quant.Grid(d)
		f.Four = d == tensor.IQ3_XXS || d == tensor.IQ3_S
		f.Groups, f.Bytes, f.Unit = d.BlockSize()/quant.GroupSize(d), d.BlockBytes()&^3, quant.Unit(d)
		grids[d] = simd.NewGrid(&f)
	}
	return grids
}()

func field(bit, width, unit, point int) simd.Field {
	return simd.Field{Bit: bit, Width: width, Unit: unit, Point: point}
}

// wovenBytes returns the bytes of a block of a panel with the file's bytes, 0 for planes.
func wovenBytes(d tensor.DType) int {
	if d == tensor.TQ1_0 {
		return 4*simd.PanelRows + simd.DigitBytes
	}
	if g := gridOf(d); g != nil {
		return g.Bytes()
	}
	return 0
}

// gridOf returns the grid of panels of the type, or nil.
func gridOf(d tensor.DType) *simd.Grid {
	if int(d) < len(grids) && simd.HasGrids() {
		return grids[d]
	}
	return nil
}

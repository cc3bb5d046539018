package packing

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// refused explains methods that are not read, by how their names in config.json begin.
var refused = map[string]string{
	"bitsandbytes": "its codes are one line, with blocks and nested scales of that library",
	"hqq":          "its codes and zero points are tensors of that library",
	"aqlm":         "its weights are sums of vectors of codebooks",
	"vptq":         "its weights are vectors of codebooks",
	"quip":         "its weights are vectors of codebooks, behind rotations",
	"exl2":         "its rows have different numbers of bits, in an order of ExLlama's kernels",
	"exl3":         "its codes are walks of a trellis, behind rotations",
	"spqr":         "its outliers are a sparse matrix",
	"torchao":      "its tensors are subclasses of PyTorch's, which safetensors files name but do not describe",
	"quanto":       "its tensors are subclasses of PyTorch's",
	"eetq":         "its codes are in an order of that library's kernels",
	"higgs":        "its weights are vectors of grids, behind rotations",
	"fp_quant":     "its weights lie behind rotations of activations",
	"bitnet":       "its weights are ternary, and activations are 8-bit integers",
	"gemv":         "its codes are in an order of that kernel",
}

// ofParts has the methods that are not read, by endings of parts that only they have.
var ofParts = map[string]string{"absmax": "bitsandbytes", "quant_map": "bitsandbytes", "SCB": "bitsandbytes",
	"W_q": "hqq", "codebooks": "aqlm", "q_invperm": "exl2", "q_scale_max": "exl2", "trellis": "exl3"}

// refuse returns the error about a method that is not read.
func refuse(method, algo string) error {
	if method == "" {
		return fmt.Errorf("it names no quant_method; %s", advice)
	}
	why := "it is unknown here"
	for name, is := range refused {
		if strings.HasPrefix(strings.ToLower(method), name) {
			why = is
		}
	}
	if algo != "" {
		method += ", " + algo
	}
	return fmt.Errorf("quant_method %q is not read: %s; %s", method, why, advice)
}

// advice names the alternatives.
const advice = "take the model's folder without quantization, one in FP8, compressed-tensors, AWQ, GPTQ or MLX, " +
	"or a GGUF file"

// Misreadings of packed weights, as engines have them.
const (
	Unscaled     = "without scales"    // codes without scales
	OneScale     = "one scale"         // the first scale for all blocks
	TurnedScales = "turned scales"     // the array of scales by columns
	ZeroAbove    = "zero points above" // by 1
	ZeroBelow    = "zero points below" // by 1
	OtherOrder   = "other order"       // codes of a byte exchanged, or in AWQ the rows in sequence
)

// Misread returns the Source of the weight's values in F32 under a misreading, nil where these are the same.
func (x *matrix) Misread(how string) io.ReaderAt {
	y := *x
	y.inBF16, y.coded = false, nil
	groups := max(1, upTo(x.columns, x.group))
	switch tall := max(1, x.tall); {
	case how == Unscaled:
		y.scale = constant(1)
	case how == OneScale:
		y.scale = constant(x.scale(0, 0))
	case how == TurnedScales && x.groups == nil:
		rows := upTo(x.rows, tall)
		y.scale = func(row, group int) float32 {
			i := group*rows + row/tall
			return x.scale(min(i/groups*tall, x.rows-1), i%groups)
		}
	case how == ZeroAbove && x.zero != nil:
		y.zero = func(row, group int) float32 { return x.zero(row, group) + 1 }
	case how == ZeroBelow && x.zero != nil:
		y.zero = func(row, group int) float32 { return x.zero(row, group) - 1 }
	case how == OtherOrder:
		c, ok := x.codes.(*codes)
		if !ok || c.bits != 4 || x.columns%2 != 0 {
			return nil
		}
		if y.codes = (*exchanged)(c); c.order != nil {
			natural := *c
			natural.order, y.codes = nil, &natural
		}
	default:
		return nil
	}
	was, is := make([]float32, x.columns), make([]float32, x.columns)
	for _, row := range []int{0, 1 % x.rows, x.rows / 2, x.rows - 1} {
		x.decode(was, row, 0)
		y.decode(is, row, 0)
		if !slices.Equal(was, is) {
			return &y
		}
	}
	return nil
}

// exchanged reads codes of four bits with the two codes of each byte in the other order.
type exchanged codes

func (c *exchanged) read(q []byte, row, from int) {
	for j := range q {
		q[j] = (*codes)(c).at(row, (from+j)^1)
	}
}

package packing

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/packed"
	"github.com/karat-run/karat/internal/tensor"
)

// values returns the values of the layer's weight in float32.
func values(t *testing.T, config string, parts map[string]tensor.Tensor) []float32 {
	t.Helper()
	list, err := apply([]byte(config), parts)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %d tensors, %v", config, len(list), err)
	}
	x := ToF32(list[0])
	if x, err = x.Whole(); err != nil {
		t.Fatal(err)
	}
	v := make([]float32, x.Shape.Size())
	for i := range v {
		v[i] = number(tensor.F32)(x.Data, i)
	}
	return v
}

// fails requires an error about the layer that has a word.
func fails(t *testing.T, config string, parts map[string]tensor.Tensor, word string) {
	t.Helper()
	if _, err := apply([]byte(config), parts); err == nil || !strings.Contains(err.Error(), word) {
		t.Errorf("%s: %v, expected an error with %q", config, err, word)
	}
}

// TestOverrides reads modules whose settings of MLX differ from the settings of all: nothing of these is inherited.
func TestOverrides(t *testing.T) {
	for _, c := range []struct{ name, all, module string }{
		{"mlx-8-bits", `"group_size": 32, "bits": 4, "mode": "mxfp4"`, `{"group_size": 32, "bits": 8}`},
		{"mlx-4-bits", `"group_size": 16, "bits": 4, "mode": "nvfp4"`, `{}`},
		{"mlx-mxfp4", `"group_size": 64, "bits": 6`, `{"mode": "mxfp4"}`},
		{"mlx-nvfp4", `"group_size": 32, "bits": 8, "mode": "mxfp8"`, `{"mode": "nvfp4"}`},
	} {
		plain, parts := layer(t, c.name)
		mixed := fmt.Sprintf(`{"quantization": {%s, "m.q_proj": %s}}`, c.all, c.module)
		if !slices.Equal(values(t, mixed, parts), values(t, string(plain), parts)) {
			t.Errorf("%s differs", mixed)
		}
	}
}

// TestModes refuses bits and groups that a mode of MLX has not, where shapes would fit.
func TestModes(t *testing.T) {
	for _, c := range []struct {
		bits, group int
		mode        string
	}{{8, 32, "mxfp4"}, {4, 16, "mxfp4"}, {4, 32, "mxfp8"}, {8, 16, "nvfp4"}, {4, 32, "nvfp4"}, {7, 32, "new"}} {
		_, parts := layer(t, "mlx-mxfp4")
		columns := 8 * 32 / c.bits
		n := 48 * columns / c.group
		parts["m.q_proj.scales"] = tensor.Tensor{Name: "m.q_proj.scales", DType: tensor.U8,
			Shape: tensor.Shape{48, columns / c.group}, Data: make([]byte, n)}
		fails(t, fmt.Sprintf(`{"quantization": {"group_size": %d, "bits": %d, "mode": %q}}`, c.group, c.bits, c.mode),
			parts, "mode")
	}
}

// TestEmpty refuses tensors without rows, columns or groups.
func TestEmpty(t *testing.T) {
	for name, endings := range map[string][]string{
		"gptq": {"qweight", "scales"}, "gptq-v2-3-bits": {"qweight", "scales"}, "awq": {"qweight", "scales"},
		"mlx-4-bits": {"weight"}, "ct-int4-group": {"weight_packed"}, "ct-int8-bytes": {"weight"}, "ct-nvfp4": {"weight_packed"},
		"fp8-block": {"weight"}, "fp8-tensor-static": {"weight"}, "modelopt-nvfp4": {"weight"},
	} {
		for _, ending := range endings {
			for _, shape := range []tensor.Shape{{0, 48}, {48, 0}, {0, 0}, {0, 48, 8}} {
				config, parts := layer(t, name)
				x := parts["m.q_proj."+ending]
				x.Shape, x.Data = shape, nil
				parts[x.Name] = x
				fails(t, string(config), parts, "shape [")
				if name == "gptq" {
					fails(t, `{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1,
						"dynamic": {"a": {}}}}`, parts, "shape [")
				}
			}
		}
	}
}

// TestLargeGroups reads groups and blocks of more columns than there are, up to the greatest integer, as one.
func TestLargeGroups(t *testing.T) {
	for name, change := range map[string][2]string{
		"gptq-8-bits": {`64`, `%d`}, "fp8-block": {`[128, 128]`, `[%d, %[1]d]`},
		"ct-float-block":  {`[128, 128]`, `[%d, %[1]d]`},
		"ct-int8-channel": {`"channel"`, `"group", "group_size": %d`},
		"ct-int8-bytes":   {`"channel"`, `"group", "group_size": %d`},
		"gptq-v2-3-bits":  {`-1`, `%d`},
	} {
		plain, parts := layer(t, name)
		want := values(t, string(plain), parts)
		for _, n := range []int{65, 128, math.MaxInt64 / 32, math.MaxInt64 - 1, math.MaxInt64} {
			with := strings.Replace(string(plain), strings.ReplaceAll(change[0], ", ", ","), fmt.Sprintf(change[1], n), 1)
			if with == string(plain) {
				t.Fatal(with)
			}
			if !slices.Equal(values(t, with, parts), want) {
				t.Errorf("%s differs", with)
			}
		}
	}
	for name, change := range map[string][2]string{
		"awq": {`32`, ``}, "ct-int4-group": {`32`, ``}, "mlx-4-bits": {`64`, ``}, "gptq": {`32`, ``}, "ct-int4-actorder": {`32`, ``},
	} {
		for _, n := range []string{"9223372036854775807", "9223372036854775800", "4611686018427387904"} {
			config, parts := layer(t, name)
			fails(t, strings.Replace(string(config), change[0], n, 1), parts, "shape [")
		}
	}
}

// TestFewRows reads weights of a row and of eight, in each number of bits.
func TestFewRows(t *testing.T) {
	for _, p := range packed.All {
		for _, rows := range []int{1, 2, 8} {
			if p.Name == "awq" && rows < 8 {
				continue
			}
			w := make([]float32, rows*64)
			for i := range w {
				w[i] = float32(i*2654435761%1009)/1009 - 0.4
			}
			all, want := p.Pack(w, rows, 64)
			parts := map[string]tensor.Tensor{}
			for _, part := range all {
				part.Name = "m.q_proj." + part.Name
				parts[part.Name] = part
			}
			if got := values(t, fmt.Sprintf(`{%q: %s}`, p.Key, p.Config), parts); !slices.Equal(got, want) {
				t.Errorf("%s of %d rows differs", p.Name, rows)
			}
		}
	}
}

// configure returns a configuration of compressed-tensors with a format and the fields of weights.
func configure(format, weights string) string {
	return fmt.Sprintf(`{"quantization_config": {"quant_method": "compressed-tensors", "format": %q,
		"config_groups": {"a": {"targets": ["Linear"], "weights": {%s}}}}}`, format, weights)
}

// TestAsymmetric requires zero points of every scheme that is not symmetric. Schemes are symmetric by default.
func TestAsymmetric(t *testing.T) {
	for name, weights := range map[string]string{
		"ct-int8-bytes":   `"num_bits": 8, "type": "int", "strategy": "channel"`,
		"ct-int8-channel": `"num_bits": 8, "type": "int", "strategy": "channel"`,
		"ct-int4-group":   `"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32`,
	} {
		config, parts := layer(t, name)
		fails(t, configure("int-quantized", weights+`, "symmetric": false`), parts, "weight_zero_point is missing")
		if !slices.Equal(values(t, configure("", weights), parts), values(t, string(config), parts)) {
			t.Errorf("%s differs by default", name)
		}
	}
}

// TestSymmetric takes zero points that are zero beside symmetric schemes, and refuses others.
func TestSymmetric(t *testing.T) {
	for name, zero := range map[string]tensor.Tensor{
		"ct-int8-bytes":    {DType: tensor.I8, Shape: tensor.Shape{48, 1}, Data: make([]byte, 48)},
		"ct-float-channel": {DType: tensor.F8_E4M3, Shape: tensor.Shape{48, 1}, Data: make([]byte, 48)},
		"ct-int4-group":    {DType: tensor.I32, Shape: tensor.Shape{6, 2}, Data: bytes.Repeat([]byte{0x88}, 48)},
		"ct-int4-actorder": {DType: tensor.I8, Shape: tensor.Shape{48, 2}, Data: make([]byte, 96)},
	} {
		config, parts := layer(t, name)
		want := values(t, string(config), parts)
		zero.Name = "m.q_proj.weight_zero_point"
		parts[zero.Name] = zero
		if !slices.Equal(values(t, string(config), parts), want) {
			t.Errorf("%s differs with zero points of 0", name)
		}
		zero.Data[len(zero.Data)-1] ^= 0x41
		fails(t, string(config), parts, "tensor m.q_proj: weight_zero_point has others than 0, but "+
			"config_groups.group_0.weights.symmetric")
	}
}

// TestOffTheMiddle refuses zero points of GPTQ that are all the same and off the middle, where config.json has sym.
func TestOffTheMiddle(t *testing.T) {
	config, parts := layer(t, "gptq-8-bits")
	want := values(t, string(config), parts)
	sym := func(format string) string {
		return `{"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 64, "sym": true,
			"checkpoint_format": "` + format + `"}}`
	}
	if !slices.Equal(values(t, sym("gptq"), parts), want) {
		t.Error("sym differs")
	}
	fails(t, sym("gptq_v2"), parts, "qzeros stand for 127 throughout, but sym is true, with zero points of 128: "+
		"checkpoint_format is perhaps gptq")
	zeros := parts["m.q_proj.qzeros"]
	zeros.Data = bytes.Repeat([]byte{128}, len(zeros.Data))
	parts[zeros.Name] = zeros
	fails(t, sym("gptq"), parts, "checkpoint_format is perhaps gptq_v2")
	if !slices.Equal(values(t, sym("gptq_v2"), parts), want) {
		t.Error("the other format differs")
	}
	zeros.Data[1] = 127 // asymmetric, whatever config.json says
	values(t, sym("gptq"), parts)
}

// TestScheme refuses weights of another type, or of other bits, than their scheme has.
func TestScheme(t *testing.T) {
	for _, c := range []struct{ name, weights string }{
		{"ct-int8-bytes", `"num_bits": 8, "type": "float", "strategy": "channel"`},
		{"ct-int8-channel", `"num_bits": 8, "type": "float", "strategy": "channel"`},
		{"ct-int4-group", `"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32`},
		{"ct-float-channel", `"num_bits": 8, "type": "int", "strategy": "channel"`},
		{"ct-float-channel", `"num_bits": 4, "type": "float", "strategy": "channel"`},
		{"ct-nvfp4", `"num_bits": 4, "type": "int", "strategy": "group", "group_size": 16`},
		{"ct-nvfp4", `"num_bits": 8, "type": "float", "strategy": "group", "group_size": 16`},
		{"ct-mxfp4", `"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32`},
		{"ct-mxfp4", `"num_bits": 4, "type": "new", "strategy": "group", "group_size": 32`},
	} {
		_, parts := layer(t, c.name)
		fails(t, configure("", c.weights), parts, "weight")
	}
	_, parts := layer(t, "ct-int8-bytes")
	fails(t, `{"quantization_config": {"quant_method": "fp8"}}`, parts, "weight has type I8, expected F8_E4M3 or F8_E5M2")
}

// TestWeightShape holds weight_shape against the codes by all of its bits.
func TestWeightShape(t *testing.T) {
	for _, bit := range []int{2, 4, 5, 7, 10, 12, 14, 15} {
		config, parts := layer(t, "ct-int4-group")
		x := parts["m.q_proj.weight_shape"]
		x.Data = slices.Clone(x.Data)
		x.Data[bit] = 128
		parts[x.Name] = x
		fails(t, string(config), parts, "weight_shape is [")
	}
}

// TestScales refuses scales of whole weights that are not finite and positive.
func TestScales(t *testing.T) {
	for name, ending := range map[string]string{"ct-nvfp4": "weight_global_scale", "modelopt-nvfp4": "weight_scale_2",
		"fp8-tensor-static": "weight_scale"} {
		for word, value := range map[string]float64{"+Inf": math.Inf(1), "-Inf": math.Inf(-1), "-5": -5, "NaN": math.NaN(),
			"0": 0} {
			config, parts := layer(t, name)
			x := parts["m.q_proj."+ending]
			x.DType, x.Data = tensor.F32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(value)))
			parts[x.Name] = x
			fails(t, string(config), parts, "tensor m.q_proj: "+ending+" is "+word+", want")
		}
	}
}

// TestLeftOut reads schemes of compressed-tensors with fields left out, or with other words for the same, as the library
// does (QuantizationArgs in compressed_tensors/quantization/quant_args.py).
func TestLeftOut(t *testing.T) {
	for _, c := range []struct{ name, weights string }{
		{"ct-int4-group", `"num_bits": 4, "group_size": 32`},
		{"ct-int4-group", `"num_bits": 4, "group_size": 32, "actorder": "weight", "strategy": "GROUP", "type": "INT"`},
		{"ct-int4-group", `"num_bits": 4, "group_size": 32, "actorder": "static"`},
		{"ct-int4-group", `"num_bits": 4, "group_size": 32, "actorder": false, "block_structure": null`},
		{"ct-int4-actorder", `"num_bits": 4, "group_size": 32, "actorder": "dynamic"`},
		{"ct-int4-actorder", `"num_bits": 4, "group_size": 32, "actorder": true`},
		{"ct-int8-channel", `"group_size": -1`}, {"ct-int8-bytes", `"group_size": -1, "dynamic": false`},
		{"ct-int8-channel", `"strategy": "channel"`},
		{"ct-float-block", `"type": "float", "strategy": "block", "block_structure": "128x128"`},
		{"fp8-tensor-static", `"type": "float"`},
	} {
		plain, parts := layer(t, c.name)
		if !slices.Equal(values(t, configure("", c.weights), parts), values(t, string(plain), parts)) {
			t.Errorf("%s: %s differs", c.name, c.weights)
		}
	}
}

// TestWords refuses words that the library does not know, naming the field and the value, and patterns that are none.
func TestWords(t *testing.T) {
	_, parts := layer(t, "ct-int4-group")
	for weights, want := range map[string]string{
		`"num_bits": 4, "group_size": 32, "actorder": "row"`:           `weights.actorder: row is none of`,
		`"num_bits": 4, "group_size": 32, "actorder": 1`:               `weights.actorder: 1 is none of`,
		`"num_bits": 4, "group_size": 32, "type": "posit"`:             `weights.type: "posit" is neither`,
		`"num_bits": 4, "group_size": 32, "strategy": "token"`:         `weights.strategy: "token" is none of`,
		`"num_bits": 4, "group_size": 32, "strategy": "channel"`:       `weights.group_size: 32 contradicts strategy "channel"`,
		`"num_bits": 4, "group_size": -2`:                              `weights.group_size: -2 contradicts`,
		`"num_bits": 4, "strategy": "group"`:                           `weights.group_size is missing, for strategy`,
		`"num_bits": 4, "group_size": 32, "block_structure": [1, 2]`:   `weights.block_structure: [1, 2] contradicts`,
		`"num_bits": 4, "strategy": "block"`:                           `weights.block_structure is missing`,
		`"num_bits": 4, "strategy": "block", "block_structure": [1]`:   `weights.block_structure: [1], expected rows`,
		`"num_bits": 4, "strategy": "block", "block_structure": "axb"`: `weights.block_structure: "axb", expected rows`,
		`"num_bits": 4, "actorder": "group"`:                           `weights.actorder: group contradicts`,
		`"num_bits": 4, "group_size": 32, "symmetric": "yes"`:          `config_groups.a.weights.symmetric: "yes" is neither true nor false`,
		`"num_bits": 40`: `weights.num_bits: 40 bits`,
	} {
		fails(t, configure("", weights), parts, want)
	}
	const good = `"weights": {"num_bits": 4, "group_size": 32}`
	of := func(groups, ignore string) string {
		return fmt.Sprintf(`{"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {%s},
			"ignore": [%s]}}`, groups, ignore)
	}
	fails(t, of(`"a": {"targets": ["re:(x"], `+good+`}`, ``), parts, `config_groups.a.targets: "re:(x" is no pattern`)
	fails(t, of(`"a": {"targets": ["Linear"], `+good+`}`, `"re:*x"`), parts, `ignore: "re:*x" is no pattern`)
	fails(t, of(`"a": {"targets": ["re:m(?=x)"], `+good+`}, "b": {"targets": ["Linear"], `+good+`}`, ``), parts,
		`config_groups.a.targets: "re:m(?=x)" looks around, which is read at the start alone`)
	if _, err := apply([]byte(of(`"a": {"targets": ["re:(?!x).*"], `+good+`}`, `"re:.*(?<=x)"`)), parts); err != nil {
		t.Error(err)
	}
}

// TestPatterns compares looks ahead with Python's re.match.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want, looks   bool
	}{
		{`^(?!.*experts).*`, "model.layers.0.mlp.experts.1", false, false}, {`^(?!.*experts).*`, "lm_head", true, false},
		{`^(?!mtp\.).*layers\.\d+\.mlp$`, "mtp.layers.0.mlp", false, false},
		{`^(?!mtp\.).*layers\.\d+\.mlp$`, "model.layers.0.mlp", true, false},
		{`(?!a)(?!b)[^)]`, "b", false, false}, {`(?!a)(?!b)[^)]`, "c", true, false},
		{`(?!x[])(\]]y)x`, "x)y", false, false}, {`(?!x(a|b))x`, "xb", false, false}, {`(?!x(a|b))x`, "xc", true, false},
		{`(?!(?!a))b`, "b", false, true}, {`(?!a)b|a`, "a", false, true}, {`a(?!b)`, "a", false, true},
		{`a(?=b)`, "a", false, true}, {`(?!a`, "b", false, true}, {`(?<=a)b`, "b", false, true}, {`a|b`, "b", true, false},
	} {
		p, looks, err := parsePattern(c.pattern)
		if looks != c.looks || (err != nil) != c.looks {
			t.Errorf("%s: looks %v, %v", c.pattern, looks, err)
		} else if err == nil && p.matches(c.name) != c.want {
			t.Errorf("%s of %s: %v", c.pattern, c.name, !c.want)
		}
	}
}

// TestFinite refuses scales of which one is NaN or infinite, wherever it lies, and counts those not greater than 0.
func TestFinite(t *testing.T) {
	odd := map[tensor.DType][][]byte{tensor.F32: {{0, 0, 0x80, 0x7f}, {0, 0, 0x80, 0xff}, {1, 0, 0xc0, 0x7f}},
		tensor.F16: {{0, 0x7c}, {0, 0xfc}, {1, 0x7e}}, tensor.BF16: {{0x80, 0x7f}, {0x80, 0xff}, {0xc0, 0x7f}},
		tensor.F8_E4M3: {{0x7f}, {0xff}}, tensor.F8_E8M0: {{0xff}}, tensor.U8: {{0xff}}}
	for _, p := range packed.All {
		for _, ending := range []string{"weight_scale", "weight_scale_inv", "scales", "biases"} {
			config, parts := layer(t, p.Name)
			x, ok := parts["m.q_proj."+ending]
			if !ok {
				continue
			}
			n, size, sound := x.Shape.Size(), x.DType.BlockBytes(), x.Data
			for _, at := range []int{0, 1, n / 2, n - 2, n - 1} {
				for _, value := range odd[x.DType] {
					x.Data = slices.Clone(sound)
					copy(x.Data[max(0, min(at, n-1))*size:], value)
					parts[x.Name] = x
					fails(t, string(config), parts, "model.safetensors: tensor m.q_proj: "+ending)
				}
			}
			if x.DType == tensor.F8_E8M0 || x.DType == tensor.U8 || p.Name[:3] == "mlx" {
				continue
			}
			x.Data = slices.Clone(sound)
			clear(x.Data[(n-1)*size:])
			parts[x.Name] = x
			q, err := Of(config, nothing)
			if err != nil {
				t.Fatal(err)
			}
			u, err := q.Apply(slices.Collect(maps.Values(parts)), inOne, never)
			if n == 1 {
				continue // refused
			}
			if err != nil || len(u.Scales) != 1 {
				t.Fatal(p.Name, err, len(u.Scales))
			}
			if odd, first := CountOdd(u.Scales[0]); odd != 1 || first != n-1 {
				t.Errorf("%s: %d odd numbers, first %d of %d", p.Name, odd, first, n)
			}
		}
	}
}

// TestHeld wants weights in quantized types with few more bytes than the files have, or decoded from the files' bytes, of
// which nothing is kept, as they are read.
func TestHeld(t *testing.T) {
	held := map[string]string{"ct-mxfp4": "MXFP4", "mlx-mxfp4": "MXFP4", "mlx-nvfp4": "NVFP4", "ct-int4-group": "Q4_0",
		"ct-int4-asymmetric": "Z4_32", "ct-int8-channel": "Q8_0", "ct-int8-bytes": "Q8_0", "gptq": "Z4_32",
		"gptq-v2-3-bits": "Z3_64", "gptq-8-bits": "Q8_0", "awq": "Z4_32", "mlx-2-bits": "M2_32", "mlx-3-bits": "M3_64",
		"mlx-4-bits": "M4_64", "mlx-6-bits": "M6_64", "mlx-8-bits": "M8_32", "mlx-mixed": "M4_64",
		"fp8-block-e8m0": "BF16", "modelopt-mxfp8": "BF16"}
	for _, p := range packed.All {
		config, parts := layer(t, p.Name)
		list, err := apply(config, parts)
		if err != nil {
			t.Fatal(err)
		}
		x, want := &list[0], held[p.Name]
		if want == "" {
			want = "F32"
		}
		if x.DType.String() != want || !x.IsDecoded() || x.Data != nil {
			t.Errorf("%s: %v, want %v", p.Name, x.DType, want)
		}
		if n := x.Size(); x.DType.Quantized() && float64(n) > 1.15*float64(x.Stored()) {
			t.Errorf("%s: %d bytes of %d", p.Name, n, x.Stored())
		}
	}
}

// TestOwnForms reads GPTQ modules whose bits and groups are their own, and other names of the method.
func TestOwnForms(t *testing.T) {
	for name, configs := range map[string][]string{
		"gptq-8-bits": {`{"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:.*q_proj": {"bits": 8}}}`,
			`{"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": {"m.q_proj": {"bits": 8, "group_size": 64}}}`,
			`{"method": "gptq", "format": "gptq", "bits": 8, "group_size": 64}`},
		"awq": {`{"method": "awq", "format": "gemm", "group_size": 32}`,
			`{"quant_method": "auto-round", "packing_format": "auto_round:auto_awq", "group_size": 32}`,
			`{"quant_method": "intel/auto-round", "packing_format": "auto_round:auto_awq", "group_size": 32}`},
	} {
		plain, parts := layer(t, name)
		for _, config := range configs {
			if !slices.Equal(values(t, `{"quantization_config": `+config+`}`, parts), values(t, string(plain), parts)) {
				t.Errorf("%s differs", config)
			}
		}
	}
}

// TestQuark reads Quark's weights of 4-bit floats, whose names are those of other floats.
func TestQuark(t *testing.T) {
	plain, parts := layer(t, "ct-mxfp4")
	want := values(t, string(plain), parts)
	x := parts["m.q_proj.weight_packed"]
	delete(parts, x.Name)
	x.Name = "m.q_proj.weight"
	parts[x.Name] = x
	const quark = `{"quantization_config": {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}}`
	if !slices.Equal(values(t, quark, parts), want) {
		t.Error("Quark's values differ")
	}
	x.DType = tensor.I8
	parts[x.Name] = x
	fails(t, quark, parts, "weight has type I8, expected F8_E4M3 or U8")
	delete(parts, x.Name)
	parts["m.q_proj.qweight"] = tensor.Tensor{Name: "m.q_proj.qweight", DType: tensor.I32, Shape: tensor.Shape{6, 64}, Data: make([]byte, 1536)}
	fails(t, quark, parts, "codes of another packing than Quark")
}

// TestRotations refuses packings whose activations rotate, whatever their codes.
func TestRotations(t *testing.T) {
	_, parts := layer(t, "gptq")
	for key, value := range map[string]string{"rotation": `"hadamard"`, "rotation_config": `{"hadamard_type": "random_hadamard"}`,
		"spinquant_config": `{"r4": true}`} {
		fails(t, fmt.Sprintf(`{"quantization_config": {"quant_method": "gptq", "group_size": 32, %q: %s}}`, key, value), parts,
			"quantization_config: "+key+" is ")
	}
	values(t, `{"quantization_config": {"quant_method": "gptq", "group_size": 32, "rotation": false, "rotation_config": {}, "spinquant_config": null}}`, parts)
	for _, algo := range []string{`{"name": "rotation", "r1": true, "r4": true}`, `{"name": "quarot", "online_had" : true}`} {
		fails(t, `{"quantization_config": {"quant_method": "quark", "algo_config": [`+algo+`]}}`, parts, "algo_config has r4 or an online rotation")
	}
	fails(t, `{"quantization_config": {"quant_method": "auto-round", "packing_format": "auto_round:mlx"}}`, parts,
		`packing_format "auto_round:mlx" of auto-round is not read`)
}

// TestSuspects names the part that is wrong: scales of too few rows or groups, and not the zero points that fit.
func TestSuspects(t *testing.T) {
	for _, name := range []string{"gptq", "gptq-8-bits", "awq"} {
		for _, shape := range []tensor.Shape{{1, 48}, {2, 40}, {4, 24}} {
			config, parts := layer(t, name)
			x := parts["m.q_proj.scales"]
			x.Shape, x.Data = shape, make([]byte, 2*shape.Size())
			parts[x.Name] = x
			if name == "gptq-8-bits" && shape[0] == 1 {
				continue // sound
			}
			_, err := apply(config, parts)
			if err == nil || !strings.Contains(err.Error(), "tensor m.q_proj: scales has shape") || strings.Contains(err.Error(), "qzeros") {
				t.Errorf("%s %v: %v", name, shape, err)
			}
		}
	}
}

// FuzzPattern reads patterns: one without a look ahead is Go's.
func FuzzPattern(f *testing.F) {
	f.Add("^(?!.*experts).*", "lm_head")
	f.Add("(?!x[])(\\]]y)(?!a(b|c))x", "xz")
	f.Fuzz(func(t *testing.T, text, name string) {
		p, looks, err := parsePattern(text)
		if looks && err == nil {
			t.Fatal("it looks around, and is no error")
		}
		plain, bad := regexp.Compile("^(?:" + text + ")")
		if bad == nil && (err != nil || p.matches(name) != plain.MatchString(name)) {
			t.Fatalf("%q of %q: %v", text, name, err)
		}
		if err == nil {
			p.matches(name)
		}
	})
}

// TestHostileSettings: every error names the file, the key and the value, and of shapes the settings that they follow from.
func TestHostileSettings(t *testing.T) {
	const q = "config.json: quantization_config"
	says := func(s string) string {
		return " (config.json, quantization_config says " + s + ": take weights and settings of one publisher)"
	}
	for _, c := range []struct{ name, from, to, want string }{
		{"fp8-block", `[128,128]`, `64`, q + ".weight_block_size: 64 is no list"},
		{"fp8-block", `[128,128]`, `"NaN"`, q + `.weight_block_size: "NaN" is no list`},
		{"fp8-block", `[128,128]`, `[128]`, q + ": weight_block_size is [128], expected rows and columns"},
		{"fp8-block", `[128,128]`, `[-1,128]`, q + ": weight_block_size is [-1 128], expected rows and columns"},
		{"fp8-block", `[128,128]`, `[99999999999999999999,1]`, q + ".weight_block_size[0]: 99999999999999999999 is no whole number"},
		{"fp8-block", `[128,128]`, strings.Repeat("[", 900) + strings.Repeat("]", 900), q + ".weight_block_size[0]: [[["},
		{"fp8-block", `[128,128]`, `[16,16]`, "tensor m.q_proj: weight_scale_inv has shape [1 1], expected [3 4]" + says("weight_block_size [16 16]")},
		{"fp8-tensor-static", `"fp8"`, `"fp8","weight_block_size":[16,16]`, says("weight_block_size [16 16]")},
		{"gptq", `"group_size":32`, `"group_size":[32]`, q + ".group_size: [32] is no whole number"},
		{"gptq", `"group_size":32`, `"group_size":-5`, q + ": group_size is -5, expected columns, or -1 for all"},
		{"gptq", `"group_size":32`, `"group_size":16`, says("bits 4, group_size 16, desc_act false")},
		{"gptq", `"group_size":32`, `"group_size":32,"bits":8`, says("bits 8, group_size 32, desc_act false")},
		{"gptq", `"sym":false`, `"sym":"no"`, q + `.sym: "no" is neither true nor false`},
		{"awq", `"group_size":32`, `"group_size":64`, says("bits 4, group_size 64")},
		{"mlx-4-bits", `"bits":4`, `"bits":-4`, " (config.json, quantization says bits -4, group_size 64, mode affine: take"},
		{"mlx-4-bits", `"group_size":64`, `"group_size":16`, " (config.json, quantization says bits 4, group_size 16, mode affine: take"},
		{"ct-int4-group", `"group_size":32`, `"group_size":128`, says("in config_groups.group_0 num_bits 4, type int, strategy group, group_size 128")},
		{"ct-int4-group", `"targets":["Linear"]`, `"targets":"Linear"`, q + `.config_groups.group_0.targets: "Linear" is no list`},
		{"ct-float-block", `[128,128]`, `[16,16]`, says("in config_groups.group_0 num_bits 8, type float, strategy block, block_structure [16 16]")},
		{"modelopt-nvfp4", `"NVFP4"`, `"FP8"`, says(`quant_algo "FP8"`)},
		{"modelopt-nvfp4", `"modelopt"`, `"awq"`, "it has codes of another packing than AWQ: of ModelOpt's NVFP4 (its parts are weight, weight_scale, weight_scale_2)" + says("bits 4, group_size 128")},
	} {
		config, parts := layer(t, c.name)
		with := strings.Replace(string(config), c.from, c.to, 1)
		if with == string(config) {
			t.Fatalf("%s has no %s", with, c.from)
		}
		fails(t, with, parts, c.want)
	}
}

// TestUndescribed names the packing of a folder's weights that nothing describes.
func TestUndescribed(t *testing.T) {
	for name, want := range map[string]string{"fp8-block": "FP8", "ct-int4-group": "compressed-tensors", "ct-nvfp4": "compressed-tensors",
		"modelopt-nvfp4": "ModelOpt's NVFP4", "gptq": "GPTQ", "gptq-8-bits": "GPTQ", "awq": "AWQ", "mlx-4-bits": "MLX", "mlx-mxfp4": "MLX",
		"ct-int8-bytes": "compressed-tensors' int-quantized"} {
		_, parts := layer(t, name)
		fails(t, `{}`, parts, "the weight is packed as "+want+" (its parts are ")
	}
	for ending, want := range map[string]string{"weight.absmax": "bitsandbytes", "SCB": "bitsandbytes", "W_q": "hqq", "codebooks": "aqlm",
		"q_invperm": "exl2", "trellis": "exl3"} {
		name := "m.q_proj." + ending
		fails(t, `{}`, map[string]tensor.Tensor{name: {Name: name, DType: tensor.F32, Shape: tensor.Shape{1}, Data: make([]byte, 4)}},
			"tensor "+name+`: quant_method "`+want+`" is not read`)
	}
}

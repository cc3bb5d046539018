package check

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// ways are ways to spoil a file of any family, as converters and broken copies do. One that finds nothing to spoil
// reports false.
var ways = []struct {
	name  string
	alone bool // found without the source; of the others the values are as plausible as the right ones
	edit  func(m *model) bool
}{
	{"a tensor is missing", true, func(m *model) bool {
		m.tensors = slices.Delete(m.tensors, len(m.tensors)/2, len(m.tensors)/2+1)
		return true
	}},
	{"two tensors are exchanged", false, func(m *model) bool {
		a, b := alike(m)
		if b == nil {
			return false
		}
		a.Data, b.Data = b.Data, a.Data
		return true
	}},
	{"a square matrix is transposed", false, func(m *model) bool {
		x := square(m)
		if x == nil {
			return false
		}
		n, v := x.Shape[0], values(m.t, x)
		turned := make([]float32, len(v))
		for i := range v {
			turned[i%n*n+i/n] = v[i]
		}
		x.Data = slices.Clone(x.Data)
		store(x, turned)
		return true
	}},
	{"another matrix is transposed", true, func(m *model) bool {
		for i := range m.tensors {
			if x := &m.tensors[i]; len(x.Shape) == 2 && x.Shape[0] != x.Shape[1] && x.DType == tensor.BF16 && strings.HasPrefix(x.Name, "blk.") {
				x.Shape = tensor.Shape{x.Shape[1], x.Shape[0]}
				return true
			}
		}
		return false
	}},
	{"the rotary base is halved", false, func(m *model) bool { return m.times(".rope.freq_base", 0.5) }},
	{"the epsilon is 1e-3", true, func(m *model) bool {
		return m.replace(".attention.layer_norm_rms_epsilon", float32(1e-3)) || m.replace(".attention.layer_norm_epsilon", float32(1e-3))
	}},
	{"the norms lack their offset", true, func(m *model) bool {
		for _, h := range registry.Find(m.arch()).Habits {
			if h.Plus != 0 {
				m.add("norm.weight", -h.Plus)
				return true
			}
		}
		return false
	}},
	{"rows of queries are permuted", false, func(m *model) bool {
		x := first(m, "attn_q.weight", "attn_qkv.weight", "attn_q_b.weight")
		if x == nil {
			return false
		}
		row := len(x.Data) / x.Shape[0]
		head := slices.Clone(x.Data[:16*row])
		for i := range 16 { // what lay half a head apart lies side by side
			copy(x.Data[(i%8*2+i/8)*row:], head[i*row:(i+1)*row])
		}
		return true
	}},
	{"the embedding is multiplied by 4", false, func(m *model) bool {
		m.alter("token_embd", func(_ int, v float32) float32 { return 4 * v })
		return true
	}},
	{"a matrix is multiplied by 10000", true, func(m *model) bool {
		if x := square(m); x != nil {
			m.alter(x.Name, func(i int, v float32) float32 {
				if i < x.Shape[0] {
					return 10000 * v
				}
				return v
			})
			return true
		}
		return false
	}},
	{"the end of a matrix was never written", true, func(m *model) bool {
		x := first(m, "ffn_up.weight", "ffn_up_exps.weight", "attn_output.weight", "ssm_out.weight")
		clear(x.Data[len(x.Data)/2:])
		return true
	}},
	{"the tokens are shifted by one", true, func(m *model) bool {
		tokens := m.strs("tokenizer.ggml.tokens")
		m.set("tokenizer.ggml.tokens", append(tokens[1:len(tokens):len(tokens)], tokens[0]))
		return true
	}},
	{"EOS is an ordinary token", true, func(m *model) bool { m.set("tokenizer.ggml.eos_token_id", uint32(100)); return true }},
	{"a value is not a number", true, func(m *model) bool {
		m.alter("token_embd", func(i int, v float32) float32 {
			if i == 7 {
				return float32(math.NaN())
			}
			return v
		})
		return true
	}},
	{"the attention scale is not said", true, func(m *model) bool {
		for _, k := range registry.Find(m.arch()).Keys {
			if k.Scale != nil {
				m.set("."+k.GGUF, nil)
				return true
			}
		}
		return false
	}},
	{"a layer is missing", true, func(m *model) bool { return m.times(".block_count", 2) }},
}

// alike finds two matrices of one shape, of two layers.
func alike(m *model) (a, b *tensor.Tensor) {
	for i := range m.tensors {
		x := &m.tensors[i]
		if a == nil && strings.HasPrefix(x.Name, "blk.0.") && len(x.Shape) == 2 && x.DType == tensor.BF16 {
			a = x
		}
		if _, rest, _ := strings.Cut(strings.TrimPrefix(x.Name, "blk."), "."); a != nil && a != x && "blk.0."+rest == a.Name && slices.Equal(a.Shape, x.Shape) {
			return a, x
		}
	}
	return nil, nil
}

// square finds a square matrix.
func square(m *model) *tensor.Tensor {
	for i := range m.tensors {
		if x := &m.tensors[i]; len(x.Shape) == 2 && x.Shape[0] == x.Shape[1] && x.DType == tensor.BF16 {
			return x
		}
	}
	return nil
}

// first finds the first tensor with one of the ends, with data of its own.
func first(m *model, ends ...string) *tensor.Tensor {
	for i := range m.tensors {
		for _, end := range ends {
			if x := &m.tensors[i]; strings.HasSuffix(x.Name, end) {
				x.Data = slices.Clone(x.Data)
				return x
			}
		}
	}
	return nil
}

// replace sets a key that is there.
func (m *model) replace(key string, v any) bool {
	for i := range m.meta {
		if m.meta[i].Key == m.arch()+key {
			m.meta[i].Value = v
			return true
		}
	}
	return false
}

// times multiplies a number that is there.
func (m *model) times(key string, by float64) bool {
	for i := range m.meta {
		if m.meta[i].Key != m.arch()+key {
			continue
		}
		switch v := m.get(m.meta[i].Key).(type) {
		case float32:
			m.meta[i].Value = float32(by * float64(v))
		case uint32:
			m.meta[i].Value = uint32(by * float64(v))
		}
		return true
	}
	return false
}

// TestEveryFamily spoils a file of each family in every way that it can be, ten at least: each is found, by the file
// alone or, where nothing in it can tell, beside its source.
func TestEveryFamily(t *testing.T) {
	for _, name := range golden.Sample(slices.Concat(golden.Families(t), golden.Encoders(t), golden.Rerankers(t))) {
		t.Run(name, func(t *testing.T) {
			folder, file := golden.Model(t, name), filepath.Join(t.TempDir(), name+".gguf")
			if _, err := convert.Convert(t.Context(), folder, file, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			good, spoiled := read(t, file), 0
			for _, w := range ways {
				m := good.clone(t)
				if !w.edit(m) {
					continue
				}
				spoiled++
				path := m.write()
				r, err := Run(t.Context(), path, Options{})
				base := name == "olmo3" || name == "nomicbert" // the first has it twice, the other's half is below all
				alone := w.alone || base && strings.Contains(w.name, "base")
				if err == nil && r.Clean() == alone {
					t.Errorf("%s: found by the file alone: %v, want %v", w.name, !r.Clean(), alone)
				}
				if err == nil && r.Clean() {
					r, err = Run(t.Context(), path, Options{Against: folder})
				}
				if err != nil || r.Clean() {
					t.Errorf("%s: not found, %v", w.name, err)
				}
			}
			if spoiled < 10 {
				t.Errorf("%d ways were found to spoil it", spoiled)
			}
		})
	}
}

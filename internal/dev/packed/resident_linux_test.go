package packed

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tensor"
)

// wide are packings in groups as publishers choose them.
var wide = []Packing{
	{Name: "gptq", Key: quantization, Config: `{"quant_method": "gptq", "bits": 4, "group_size": 128}`,
		Pack: gptq(4, 128, 1, false), Columns: 128},
	{Name: "gptq-3-bits", Key: quantization, Config: `{"quant_method": "gptq", "bits": 3, "group_size": 128}`,
		Pack: gptq(3, 128, 1, false), Columns: 128},
	{Name: "gptq-act-order", Key: quantization,
		Config: `{"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true}`,
		Pack:   gptq(4, 128, 1, true), Columns: 128},
	mlx(2, 64, tensor.F16), mlx(4, 64, tensor.BF16), named("fp8-block"), named("ct-nvfp4"),
}

// named returns a packing by its name.
func named(name string) Packing {
	return All[slices.IndexFunc(All, func(p Packing) bool { return p.Name == name })]
}

// TestResident loads folders, and wants at most 15 % more memory than the packed bytes once weights lie as products read
// them. A folder that seems to take more is loaded again: at first loads the runtime's own tables grow, and the program's
// code comes to memory.
func TestResident(t *testing.T) {
	if os.Getenv("KARAT_SLOW") == "" {
		t.Skip("a minute: .ci/long runs it, with KARAT_SLOW")
	}
	src := filepath.Join(t.TempDir(), "src")
	large(t, golden.Model(t, "tiny-llama"), src)
	for _, p := range wide {
		t.Run(p.Name, func(t *testing.T) {
			dir := t.TempDir()
			here := filepath.Join(dir, "packed")
			if err := Folders(src, here, filepath.Join(dir, "plain"), p, nil); err != nil {
				t.Fatal(err)
			}
			os.RemoveAll(filepath.Join(dir, "plain"))
			i, err := os.Stat(filepath.Join(here, "model.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				more := growth(t, here)
				t.Logf("%d bytes for %d", more, i.Size())
				if float64(more) <= 1.15*float64(i.Size()) {
					return
				}
			}
			t.Errorf("more than 1.15 times its %d bytes in memory, each time", i.Size())
		})
	}
}

// growth returns how many bytes of memory a folder's model takes after some steps, when weights lie as products read them.
func growth(t *testing.T, dir string) int64 {
	t.Helper()
	debug.FreeOSMemory()
	before := resident(t)
	m, err := karat.Load(t.Context(), dir, karat.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 12 {
		if _, err := m.Logits(t.Context(), []int{5}); err != nil {
			t.Fatal(err)
		}
	}
	debug.FreeOSMemory()
	return resident(t) - before
}

// BenchmarkToken computes the logits of a token with a thread, of large folders, and reports the time of a processor.
func BenchmarkToken(b *testing.B) {
	src := filepath.Join(b.TempDir(), "src")
	large(b, golden.Model(b, "tiny-llama"), src)
	four := Packing{Name: "ct-int4-group", Key: quantization, Pack: packInts(4, 128, true, false), Columns: 128,
		Config: compressed("pack-quantized",
			`"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 128`)}
	all := append([]Packing{four, named("ct-float-channel"), named("modelopt-mxfp8"), named("mlx-mxfp4"), mlx(6, 64, tensor.BF16),
		mlx(8, 64, tensor.BF16)}, wide...)
	for _, p := range all {
		b.Run(p.Name, func(b *testing.B) {
			here := filepath.Join(b.TempDir(), "packed")
			if err := Folders(src, here, filepath.Join(b.TempDir(), "plain"), p, nil); err != nil {
				b.Fatal(err)
			}
			m, err := karat.Load(b.Context(), here, karat.Options{Threads: 1})
			if err != nil {
				b.Fatal(err)
			}
			defer m.Close()
			step := func(ids ...int) {
				if _, err := m.Logits(b.Context(), ids); err != nil {
					b.Fatal(err)
				}
			}
			for range 12 { // until weights lie as products read them
				step(5)
			}
			for _, rows := range []int{1, 128} {
				ids := make([]int, rows)
				b.Run(fmt.Sprint(rows), func(b *testing.B) {
					before := processor(b)
					for b.Loop() {
						step(ids...)
					}
					b.ReportMetric(float64((processor(b)-before).Microseconds())/float64(b.N*rows), "cpu-us/token")
				})
			}
		})
	}
}

// processor returns the time that processors spent for the process.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// large writes a folder of tiny-llama's form with matrices of some size.
func large(t testing.TB, src, dst string) {
	t.Helper()
	if err := os.CopyFS(dst, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]any{}
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	const d, ff, layers = 1024, 4096, 4
	keys["hidden_size"], keys["intermediate_size"], keys["num_hidden_layers"] = d, ff, layers
	keys["num_attention_heads"], keys["num_key_value_heads"], keys["head_dim"] = 8, 8, 128
	vocab := int(keys["vocab_size"].(float64))
	r := rand.New(rand.NewPCG(1, 2))
	tensors := map[string]tensor.Tensor{}
	add := func(name string, shape ...int) {
		v := make([]float32, tensor.Shape(shape).Size())
		for i := range v {
			v[i] = float32(r.NormFloat64()) / 32
		}
		data, _ := rounded(tensor.BF16, v)
		tensors[name] = tensor.Tensor{DType: tensor.BF16, Shape: shape, Data: data}
	}
	add("model.embed_tokens.weight", vocab, d)
	add("model.norm.weight", d)
	if tied, _ := keys["tie_word_embeddings"].(bool); !tied {
		add("lm_head.weight", vocab, d)
	}
	for i := range layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		for _, name := range strings.Fields("self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj") {
			add(layer+name+".weight", d, d)
		}
		add(layer+"mlp.gate_proj.weight", ff, d)
		add(layer+"mlp.up_proj.weight", ff, d)
		add(layer+"mlp.down_proj.weight", d, ff)
		add(layer+"input_layernorm.weight", d)
		add(layer+"post_attention_layernorm.weight", d)
	}
	config, err := json.Marshal(keys)
	if err == nil {
		err = os.RemoveAll(dst)
	}
	if err == nil {
		err = write(src, dst, config, tensors)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// resident returns the bytes of the process in memory.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

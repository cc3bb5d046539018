package convert_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

var peer = flag.String("peer", "", "path of llama-quantize, which writes testdata/quantized.txt anew")

// TestQuantizeFiles makes llama-quantize's files of the bfloat16 ones, byte for byte.
func TestQuantizeFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Shared(t, "goldens/gguf"), "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		name, kind, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".gguf"), ".")
		from := filepath.Join(filepath.Dir(path), name+".bf16.gguf")
		if _, err := os.Stat(from); err != nil || kind == "bf16" {
			continue
		}
		t.Run(name+"."+kind, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.gguf")
			if _, err := convert.Quantize(context.Background(), from, out, convert.QuantizeOptions{Type: kind}); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %d want", len(got), len(want))
			}
		})
	}
}

// random writes in.gguf, random weights of experts and rows that are no multiple of
// 256, and imatrix.gguf, in a folder of its own that it goes to.
func random(t *testing.T) {
	t.Helper()
	header, err := os.ReadFile("testdata/random.header.gz")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	writeRandom(t, header, "in.gguf")
	f, err := gguf.Open("in.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := imatrix.Matrix{Datasets: []string{"text"}, Chunks: 3, ChunkSize: 512, Entries: map[string]*imatrix.Entry{}}
	for i, x := range f.Tensors() {
		if quantmix.Keeps(x) || x.Name == "token_embd.weight" || i%11 == 0 {
			continue
		}
		matrices := 1
		if len(x.Shape) == 3 {
			matrices = x.Shape[0]
		}
		e := &imatrix.Entry{Sums: make([]float64, matrices*x.Shape.Last()), Counts: make([]float64, matrices)}
		for j := range e.Sums {
			e.Sums[j] = float64((i+1)*(j*j%97)%89) / 8
		}
		for j := range e.Counts {
			e.Counts[j] = float64(3 * j)
		}
		m.Entries[x.Name] = e
	}
	if err := gguf.WriteFile("imatrix.gguf", m.Write); err != nil {
		t.Fatal(err)
	}
}

// writeRandom writes the file of a header, whose weights are random: near 0.02, norms 1. llama-quantize's hashes in
// testdata hold for these bytes.
func writeRandom(t *testing.T, header []byte, path string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(header))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(append(b, make([]byte, 6794112)...)) // the size of the data
	if err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte([]byte("karat synth" + strings.Repeat("\x00", 13) + "\x05\x00\x00\x00\x00\x00\x00\x00")))
	for _, x := range f.Tensors() {
		data := make([]byte, x.Size())
		random16 := func(mask, low uint16, shift int) {
			random.Read(data)
			for i := 0; i < len(data); i += 2 {
				v := binary.LittleEndian.Uint16(data[i:])
				binary.LittleEndian.PutUint16(data[i:], v&mask|(low+v>>shift&3)<<shift)
			}
		}
		switch x.DType {
		case tensor.BF16:
			random16(0x807f, 118, 7)
		case tensor.F16:
			random16(0x83ff, 6, 10)
		default:
			for i := 0; i < len(data); i += 4 {
				v := float32(1)
				if x.Name == "rope_freqs.weight" && i >= len(data)/4 {
					v = 1e30
				}
				binary.LittleEndian.PutUint32(data[i:], math.Float32bits(v))
			}
		}
		b = append(b, data...)
		b = append(b, make([]byte, -len(b)&31)...)
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestQuantizeMixes makes every mix, with importance and without, and compares the
// hashes of the files with those of llama-quantize's.
func TestQuantizeMixes(t *testing.T) {
	const file = "testdata/quantized.txt"
	raw, err := os.ReadFile(file)
	if err != nil && *peer == "" {
		t.Fatal(err)
	}
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	random(t)
	var lines []string
	quick := []string{"Q4_0", "Q5_1", "Q3_K_M", "Q4_K_M", "Q6_K"} // the long ring makes the others as well
	for _, kind := range quantmix.Names()[:20] {                  // quantmix and quant have hashes of the other mixes' types and blocks
		for _, im := range []string{"", "imatrix.gguf"} {
			if im != "" && !slices.Contains(quick, kind) && !golden.Slow() && *peer == "" {
				lines = append(lines, "")
				continue
			}
			o := convert.QuantizeOptions{Type: kind, Imatrix: im, Threads: 2}
			if *peer != "" {
				err = llamaQuantize("out.gguf", o)
			} else {
				_, err = convert.Quantize(t.Context(), "in.gguf", "out.gguf", o)
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile("out.gguf")
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s imatrix=%v %d %x\n", kind, im != "", len(b), sha256.Sum256(b)))
		}
	}
	if *peer != "" {
		if err := os.WriteFile(filepath.Join(home, file), []byte(strings.Join(lines, "")), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := strings.SplitAfter(string(raw), "\n")
	for i, line := range lines {
		if line != "" && (i >= len(want) || line != want[i]) {
			t.Errorf("%sllama-quantize's: %s", line, want[min(i, len(want)-1)])
		}
	}
}

func llamaQuantize(out string, o convert.QuantizeOptions) error {
	var args []string
	if o.Imatrix != "" {
		args = []string{"--imatrix", o.Imatrix}
	}
	text, err := exec.Command(*peer, append(args, "in.gguf", out, o.Type, "2")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// TestQuantizeRefusals: what cannot be is an error, and leaves nothing.
func TestQuantizeRefusals(t *testing.T) {
	random(t)
	find := func(pattern string, d tensor.DType) []quantmix.Rule {
		return []quantmix.Rule{{Pattern: regexp.MustCompile(pattern), Type: d}}
	}
	nan := reweigh(t, func(name string, i int, x float32) float32 {
		if name == "blk.1.attn_q.weight" && i == 300 {
			return float32(math.NaN())
		}
		return x
	})
	large := reweigh(t, func(name string, i int, x float32) float32 {
		if name == "blk.2.ffn_up.weight" && i == 300 {
			return 1e30
		}
		return x
	})
	for _, c := range []struct {
		from, want string
		o          convert.QuantizeOptions
	}{
		{"in.gguf", `type "Q9", want F32, F16`, convert.QuantizeOptions{Type: "Q9"}},
		{"in.gguf", `threads: -1, want 1 or more`, convert.QuantizeOptions{Type: "Q8_0", Threads: -1}},
		{"in.gguf", `I32 cannot be written`, convert.QuantizeOptions{Type: "Q8_0", Rules: find("attn", tensor.I32)}},
		{"in.gguf", `no weight has a name with attn_x, which is to be Q4_K`, convert.QuantizeOptions{Type: "Q8_0", Rules: find("attn_x", tensor.Q4_K)}},
		{"in.gguf", `no weight has a name with output_norm`, convert.QuantizeOptions{Type: "Q8_0", Rules: find("output_norm", tensor.Q4_K)}},
		{"in.gguf", `nowhere.gguf`, convert.QuantizeOptions{Type: "Q8_0", Imatrix: "nowhere.gguf"}},
		{"in.gguf", `not an importance matrix`, convert.QuantizeOptions{Type: "Q8_0", Imatrix: "in.gguf"}},
		{nan, `tensor blk.1.attn_q.weight: element 300 is NaN`, convert.QuantizeOptions{Type: "Q4_K_M"}},
		{large, `tensor blk.2.ffn_up.weight: Q5_K: no scale of binary16 (at most 65504) holds weights 0 to 255 of row 1`, convert.QuantizeOptions{Type: "Q5_K_M"}},
	} {
		_, err := convert.Quantize(t.Context(), c.from, "out.gguf", c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %s", c.o, err, c.want)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	o := convert.QuantizeOptions{Type: "Q8_0", Progress: func(done, _ int64) {
		if done > 100_000 {
			stop()
		}
	}}
	if _, err := convert.Quantize(ctx, "in.gguf", "out.gguf", o); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	left, err := filepath.Glob("out.gguf*")
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// reweigh is in.gguf with other weights.
func reweigh(t *testing.T, change func(name string, i int, x float32) float32) string {
	t.Helper()
	return rewrite(t, "in.gguf", func(keys []gguf.KeyValue, tensors []tensor.Tensor) ([]gguf.KeyValue, []tensor.Tensor) {
		for i, x := range tensors {
			if x.DType != tensor.BF16 {
				continue
			}
			data := bytes.Clone(x.Data)
			for j := range len(data) / 2 {
				v := math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*j:])) << 16)
				binary.LittleEndian.PutUint16(data[2*j:], uint16(math.Float32bits(change(x.Name, j, v))>>16))
			}
			tensors[i].Data = data
		}
		return keys, tensors
	})
}

// TestQuantizeSplit: the parts of a model become one file, the same as of the whole.
func TestQuantizeSplit(t *testing.T) {
	random(t)
	run(t, "in.gguf", "parts.gguf", convert.Options{Split: 500_000})
	parts, err := filepath.Glob("parts-00001-of-*.gguf")
	if err != nil || len(parts) != 1 {
		t.Fatal(parts, err)
	}
	for from, to := range map[string]string{"in.gguf": "a.gguf", parts[0]: "b.gguf"} {
		if _, err := convert.Quantize(t.Context(), from, to, convert.QuantizeOptions{Type: "Q4_0"}); err != nil {
			t.Fatal(err)
		}
	}
	a, err := os.ReadFile("a.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile("b.gguf"); err != nil || !bytes.Equal(a, b) {
		t.Errorf("%d and %d bytes, %v", len(a), len(b), err)
	}
}

// TestOneRow: matrices of one row are vectors in files of llama-quantize, and here. They are read as matrices.
func TestOneRow(t *testing.T) {
	for name, one := range map[string]string{"xlm-roberta-reranker": "cls.output.weight", "qwen35moe": "blk.0.ffn_gate_inp_shexp.weight", "granitehybrid": "blk.0.ssm_norm.weight"} {
		src, file, _ := thereAndBack(t, name)
		small, back := filepath.Join(t.TempDir(), "small.gguf"), filepath.Join(t.TempDir(), "back")
		if _, err := convert.Quantize(t.Context(), file, small, convert.QuantizeOptions{Type: "Q4_K_M"}); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(small)
		if err != nil {
			t.Fatal(err)
		}
		if x, ok := f.Tensor(one); !ok || len(x.Shape) != 1 {
			t.Errorf("%s: %s: %v", name, one, x.Shape)
		}
		f.Close()
		run(t, small, back, convert.Options{Type: "BF16"})
		want, got := folder(t, src), folder(t, back)
		for tensorName, x := range want {
			if y := got[tensorName]; !slices.Equal(x.Shape, y.Shape) {
				t.Errorf("%s: %s: %v became %v", name, tensorName, x.Shape, y.Shape)
			}
		}
	}
}

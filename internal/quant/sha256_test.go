package quant

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

var update = flag.Bool("update", false, "write testdata/blocks.json from the shared GGUF files")

// TestSHA256 dequantizes every tensor that llama.cpp's table of hashes lists, of
// all 21 files where there is a shared folder, else of the embedded demo model.
func TestSHA256(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(golden.Dir(t), "gguf", "dequantized.sha256.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table map[string]map[string]string
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	full := golden.Dir(t) != golden.Repo(t)
	if full && len(table) != 21 {
		t.Errorf("the table lists %d files, want 21", len(table))
	}
	examples := map[tensor.DType]example{}
	for file, want := range table {
		t.Run(file, func(t *testing.T) {
			path := filepath.Join(golden.Dir(t), "gguf", file)
			if !full {
				path = filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf")
			}
			checkFile(t, path, want, examples)
		})
	}
	if *update {
		golden.Shared(t, "goldens/gguf")
		if t.Failed() {
			t.Fatal("testdata/blocks.json is not written: a hash differs")
		}
		writeExamples(t, examples)
	}
}

// checkFile compares the tensors of a file with their hashes, each of which must
// be used, and keeps an example of each type. Only bfloat16 tensors have none.
func checkFile(t *testing.T, path string, want map[string]string, examples map[tensor.DType]example) {
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := 0
	for _, x := range f.Tensors() {
		w := make([]float32, x.Shape.Size())
		if err := Dequantize(x.DType, w, x.Data); err != nil {
			t.Errorf("%s: %v", x.Name, err)
			continue
		}
		sum, ok := want[x.Name]
		if !ok {
			if x.DType != tensor.BF16 {
				t.Errorf("%s: %v and not in the table", x.Name, x.DType)
			}
			continue
		}
		found++
		if got := hash(w); got != sum {
			t.Errorf("%s: %v %v: SHA-256 %s, llama.cpp's %s", x.Name, x.DType, x.Shape, got, sum)
			continue
		}
		if e := newExample(filepath.Base(path), x, w); x.DType.Quantized() && e.better(examples[x.DType]) {
			examples[x.DType] = e
		}
	}
	if found != len(want) {
		t.Errorf("%d tensors found, the table lists %d", found, len(want))
	}
}

// hash is the SHA-256 of the values as little-endian float32.
func hash(w []float32) string {
	b := make([]byte, 4*len(w))
	for i, v := range w {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// An example is three blocks of a tensor and their weights. It is written only
// after the tensor's SHA-256 was found to be llama.cpp's.
type example struct {
	Type    string    `json:"type"`
	From    string    `json:"from"`
	Blocks  string    `json:"blocks"` // hexadecimal
	Weights []float32 `json:"weights"`
}

// newExample takes the first, a middle and the last block.
func newExample(file string, x tensor.Tensor, w []float32) example {
	size, bytes, n := x.DType.BlockSize(), x.DType.BlockBytes(), len(w)/x.DType.BlockSize()
	e := example{Type: x.DType.String(), From: file + " " + x.Name}
	var blocks []byte
	for _, i := range []int{0, n / 2, n - 1} {
		blocks = append(blocks, x.Data[i*bytes:(i+1)*bytes]...)
		e.Weights = append(e.Weights, w[i*size:(i+1)*size]...)
	}
	e.Blocks = hex.EncodeToString(blocks)
	return e
}

// better prefers the later name, so that the choice does not depend on the order of files.
func (e example) better(old example) bool { return e.From > old.From }

func writeExamples(t *testing.T, examples map[tensor.DType]example) {
	var types []tensor.DType
	for d := range examples {
		types = append(types, d)
	}
	slices.Sort(types)
	out := []byte("[\n")
	for i, d := range types {
		b, err := json.Marshal(examples[d])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
		if i < len(types)-1 {
			out = append(out, ',')
		}
		out = append(out, '\n')
	}
	if err := os.WriteFile("testdata/blocks.json", append(out, "]\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
}

package karat_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/safetensors"
)

// encoderRecord is what PyTorch made of texts in float64.
type encoderRecord struct {
	Texts  []string
	IDs    [][]int
	Values [][]float32 // of each text
}

// readEncoder reads the record of an encoder.
func readEncoder(t *testing.T, name string) (r encoderRecord) {
	t.Helper()
	dir := filepath.Join(golden.Repo(t), "encoders", name)
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var prompts []struct {
		Index int
		Text  string
		IDs   []int
	}
	if err := json.Unmarshal(b, &prompts); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(golden.Tensors(t, filepath.Join(dir, "golden.safetensors")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range prompts {
		r.Texts, r.IDs = append(r.Texts, p.Text), append(r.IDs, p.IDs)
		r.Values = append(r.Values, floatsOf(f, fmt.Sprintf("%d.embedding", p.Index)))
	}
	return r
}

// floatsOf are the values of an F32 tensor.
func floatsOf(f *safetensors.File, name string) (v []float32) {
	for _, x := range f.Tensors {
		if x.Name == name {
			for b := range slices.Chunk(x.Data, 4) {
				v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
			}
		}
	}
	return v
}

// TestEncoders: vectors are PyTorch's in float64 and float32, of the folder and of the GGUF file, and those of a text are
// the same bits beside any others.
func TestEncoders(t *testing.T) {
	for _, name := range golden.Encoders(t) {
		r := readEncoder(t, name)
		folder := golden.Model(t, name)
		file := filepath.Join(t.TempDir(), name+".gguf")
		if _, err := convert.Convert(t.Context(), folder, file, convert.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
			file = ""
		}
		for _, path := range []string{folder, file} {
			for _, p := range []karat.Precision{karat.Float64, karat.Float32} {
				if path == "" {
					continue
				}
				t.Run(filepath.Base(path)+"/"+string(p), func(t *testing.T) {
					m, err := karat.Load(t.Context(), path, karat.Options{Precision: p})
					if err != nil {
						t.Fatal(err)
					}
					defer m.Close()
					compareEncoder(t, m, r)
					if p == karat.Float32 {
						for _, err := range m.Generate(t.Context(), "x", karat.GenerateOptions{}) {
							if err == nil || !strings.Contains(err.Error(), "it is an encoder, which makes vectors and no text") {
								t.Errorf("Generate: %v", err)
							}
						}
						s := m.NewSession()
						for _, err := range s.Score(t.Context(), []int{1, 2}, karat.GenerateOptions{}) {
							if err == nil || !strings.Contains(err.Error(), "it is an encoder, which makes vectors and no text") {
								t.Errorf("Score: %v", err)
							}
						}
						s.Close()
						sameAlone(t, m, r.Texts, karat.EmbedOptions{})
					}
				})
			}
		}
	}
}

func compareEncoder(t *testing.T, m *karat.Model, r encoderRecord) {
	t.Helper()
	for i, text := range r.Texts {
		if ids, err := m.Tokenize(t.Context(), text, karat.TokenizeOptions{}); err != nil || !slices.Equal(ids, r.IDs[i]) {
			t.Errorf("text %d: ids %v, %v, want %v", i, ids, err, r.IDs[i])
		}
	}
	got, err := m.Embed(t.Context(), r.Texts, karat.EmbedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	worst, least := 0., 1.
	for i, want := range r.Values {
		if len(got[i]) != len(want) {
			t.Fatalf("text %d: %d features, want %d", i, len(got[i]), len(want))
		}
		var ab, aa, bb float64
		for j, v := range want {
			a, b := float64(got[i][j]), float64(v)
			worst = max(worst, math.Abs(a-b))
			ab, aa, bb = ab+a*b, aa+a*a, bb+b*b
		}
		least = min(least, ab/math.Sqrt(aa*bb))
	}
	t.Logf("largest difference %.2g, 1 - least cosine %.2g", worst, 1-least)
	if !(worst <= 1e-6 && least >= 1-1e-9) {
		t.Errorf("largest difference %.3g, want at most 1e-6; least cosine %.12f", worst, least)
	}
}

package convert_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// published makes of gpt-oss's folder one as OpenAI published it: experts as NAME_blocks and
// NAME_scales, of the MXFP4 tensors of a GGUF file.
func published(t *testing.T, src string, file *gguf.File) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "published")
	if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	mx := map[string]tensor.Tensor{}
	for _, x := range file.Tensors() {
		mx[x.Name] = x
	}
	all := folder(t, src)
	for _, name := range slices.Collect(maps.Keys(all)) {
		layer, role, ok := strings.Cut(strings.TrimPrefix(name, "model.layers."), ".mlp.experts.")
		if !ok || strings.HasSuffix(role, "_bias") {
			continue
		}
		delete(all, name)
		of := map[string][]string{"gate_up_proj": {"gate", "up"}, "down_proj": {"down"}}[role]
		var from []tensor.Tensor
		for _, part := range of {
			from = append(from, mx["blk."+layer+".ffn_"+part+"_exps.weight"])
		}
		blocks, scales := apart(from)
		blocks.Name, scales.Name = name+"_blocks", name+"_scales"
		all[blocks.Name], all[scales.Name] = blocks, scales
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := safetensors.NewWriter(f, slices.Collect(maps.Values(all)), map[string]string{"format": "pt"})
	for i := 0; err == nil && i < len(w.Tensors); i++ {
		_, err = w.Write(all[w.Tensors[i].Name].Data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// apart weaves the rows of MXFP4 tensors, and takes scales and codes apart: weights 2j and
// 2j+1 to byte j, where GGUF has weights j and j+16.
func apart(from []tensor.Tensor) (blocks, scales tensor.Tensor) {
	shape := from[0].Shape
	experts, rows, per := shape[0], shape[1]*len(from), shape[2]/32
	blocks = tensor.Tensor{DType: tensor.U8, Shape: tensor.Shape{experts, rows, per, 16}}
	scales = tensor.Tensor{DType: tensor.U8, Shape: tensor.Shape{experts, rows, per}}
	for r := range experts * rows {
		row := from[r%len(from)].Row(r / len(from))
		for b := range per {
			block := row[17*b : 17*b+17]
			scales.Data = append(scales.Data, block[0])
			var codes [32]byte
			for j, c := range block[1:] {
				codes[j], codes[j+16] = c&15, c>>4
			}
			for j := range 16 {
				blocks.Data = append(blocks.Data, codes[2*j]|codes[2*j+1]<<4)
			}
		}
	}
	return blocks, scales
}

// TestMicroscaled opens a folder whose experts are MXFP4 in transformers' form: converted, they have
// the bytes of the file that they come from, and both forms compute the same bits.
func TestMicroscaled(t *testing.T) {
	src, tmp := golden.Model(t, "gpt-oss"), t.TempDir()
	quantized := filepath.Join(tmp, "quantized.gguf")
	run(t, src, quantized, convert.Options{Type: "MXFP4_MOE"})
	want, err := gguf.Open(quantized)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	dir, file := published(t, src, want), filepath.Join(tmp, "published.gguf")
	if r := run(t, dir, file, convert.Options{}); r.Types["MXFP4"] != 12 || r.Types["BF16"] == 0 {
		t.Errorf("types %v", r.Types)
	}
	got, err := gguf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if n, _ := got.Metadata.Uint("general.file_type"); n != 38 {
		t.Errorf("file type %d", n)
	}
	for _, x := range want.Tensors() {
		i := slices.IndexFunc(got.Tensors(), func(y tensor.Tensor) bool { return y.Name == x.Name })
		if y := got.Tensors()[i]; x.DType == tensor.MXFP4 && !bytes.Equal(x.Data, y.Data) {
			t.Errorf("%s differs", x.Name)
		}
	}
	r := golden.Record(t, "gpt-oss")
	here, _ := logits(t, dir, r)
	there, _ := logits(t, file, r)
	for i := range here {
		if d := distance(here[i], there[i]); d > 0 {
			t.Errorf("prompt %d: the forms differ by %g", i, d)
		}
	}
	back := filepath.Join(tmp, "back")
	run(t, file, back, convert.Options{})
	again, _ := logits(t, back, r)
	for i := range here {
		if d := distance(here[i], again[i]); d > 0 {
			t.Errorf("prompt %d: the folder of floats differs by %g", i, d)
		}
	}
}

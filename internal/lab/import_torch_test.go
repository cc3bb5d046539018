package lab

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// tapsOf prints the taps of a prompt with their shapes and first and last values.
func tapsOf(p *Prompt) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(p.Taps)) {
		r := rowsOf(p.Taps[name])
		first, last := make([]float64, r.width), make([]float64, r.width)
		r.read(first, 0)
		r.read(last, r.n-1)
		all = append(all, fmt.Sprintf("%s %v %v..%v", name, []int(p.Taps[name].Shape), first[0], last[r.width-1]))
	}
	return all
}

// TestImportTorch reads files with the layout of torch.save's, made by Python's pickle: a dict as a hook gathers it, and
// SGLang's folder.
func TestImportTorch(t *testing.T) {
	want := []string{"model.layers.0 [3 4] 0..11", "model.layers.1.mlp [3 4] 0..11", "model.norm [1 4] 1..4", "more.x [2 2] 4..7"}
	for _, path := range []string{"testdata/torch/dict.pt", "testdata/torch/dict4.pt"} { // of two protocols
		in, all := importAll(t, path, "")
		if got := tapsOf(all[0]); in.Form != FormTorch || !slices.Equal(got, want) || !slices.Equal(all[0].IDs, []int32{7, 8, 9}) {
			t.Errorf("%s: %q, %v", path, got, all[0].IDs)
		}
	}
	value, err := os.ReadFile("testdata/torch/value.pt")
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string][]byte{
		"forward_pass_id=1___rank=0___name=q_rope___dump_index=9___layer_id=2.pt":  value,
		"forward_pass_id=1___rank=0___name=q_rope___dump_index=10___layer_id=2.pt": []byte("not read"),
		"forward_pass_id=1___rank=1___name=q_rope___dump_index=1___layer_id=3.pt":  value,
		"forward_pass_id=3___rank=0___name=resid1___dump_index=1___layer_id=0.pt":  value,
		"notes.txt": nil,
	})
	in, all := importAll(t, dir, "")
	if len(all) != 2 || len(in.Notes) != 1 || !slices.Equal(tapsOf(all[0]), []string{"q_rope.2 [3 4] 0..11"}) || !slices.Equal(tapsOf(all[1]), []string{"resid1.0 [3 4] 0..11"}) {
		t.Errorf("%d prompts, %q", len(all), in.Notes)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"old.pt": {[]byte("\x80\x02\x8a\nl\xfc\x9c"), "since version 1.6"}, "empty.pt": {nil, "since version 1.6"}, "cut.pt": {value[:len(value)-30], "1.6"},
		"bad.pt": {bytes.Replace(value, []byte("_rebuild_tensor_v2"), []byte("_rebuild_tensor_v9"), 1), "checksum|no tensors"},
	} {
		path := filepath.Join(folder(t, map[string][]byte{name: c.data}), name)
		if _, err := OpenImport(path, ""); err == nil || !slices.ContainsFunc(strings.Split(c.want, "|"), func(s string) bool { return strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dict, err := os.ReadFile("testdata/torch/dict.pt")
	if err != nil {
		t.Fatal(err)
	}
	big := folder(t, map[string][]byte{"big.pt": bytes.Replace(dict, []byte("little"), []byte("biggie"), 1)})
	if _, err := OpenImport(filepath.Join(big, "big.pt"), ""); err == nil || !strings.Contains(err.Error(), `byteorder "biggie"`) {
		t.Error(err)
	}
	d := torchDump{record: &Record{}}
	call := &pickleCall{"torch._utils._rebuild_qtensor"}
	err = d.take(nil, &pickleDict{[]any{"a", 7, "b"}, []any{call, &pickleDict{}, &pickleList{[]any{call}}}}, "", "x", 0)
	if want := `values that are not read: 3, the first is "a", made by "torch._utils._rebuild_qtensor"`; err != nil || d.left("") != want {
		t.Errorf("%q, %v", d.left(""), err)
	}
	if _, err := OpenImport("testdata/torch/loop.pt", ""); err == nil || !strings.Contains(err.Error(), "inside themselves") {
		t.Error(err)
	}
}

// saved writes a safetensors file.
func saved(t *testing.T, tensors ...tensor.Tensor) string {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, tensors, nil); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder(t, map[string][]byte{"x.safetensors": b.Bytes()}), "x.safetensors")
}

// TestImportTensors reads files with the layouts of vLLM's connector, and of tensors with names of taps.
func TestImportTensors(t *testing.T) {
	ids := tensor.Tensor{Name: "token_ids", DType: tensor.I64, Shape: tensor.Shape{2}, Data: []byte{5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0}}
	states := floats(tensor.F32, nil, 1, 2, 3, 4, 5, 6, 7, 8)
	states.Name, states.Shape = "hidden_states", tensor.Shape{2, 2, 2}
	rest := floats(tensor.F32, nil, 10, 10, 10, 10, 20, 20, 20, 20)
	rest.Name, rest.Shape = "residual", tensor.Shape{2, 2, 2}
	path := saved(t, ids, *states)
	in, err := OpenImport(path, "", 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if strings.Contains(in.Notes[0], "residual added") {
		t.Errorf("without a residual: %q", in.Notes)
	}
	p, err := in.prompt(0)
	want := []string{"model.embed_tokens.out [2 2] 1..6", "model.layers.2.out [2 2] 3..8"}
	if got := tapsOf(p); err != nil || in.Form != FormVLLM || !slices.Equal(got, want) || !slices.Equal(p.IDs, []int32{5, 6}) {
		t.Errorf("%q, %v", got, p.IDs)
	}
	if in, err = OpenImport(saved(t, ids, *states, *rest), "", 1, 2); err != nil {
		t.Fatal(err)
	}
	p, err = in.prompt(0)
	if want = []string{"model.layers.0.out [2 2] 11..26", "model.layers.1.out [2 2] 13..28"}; err != nil || !slices.Equal(tapsOf(p), want) {
		t.Errorf("%q", tapsOf(p))
	}
	in.Close()
	if _, err := OpenImport(path, "", 1); err == nil || !strings.Contains(err.Error(), "hidden_states of 2 layers: --hidden-layers wants as many numbers") {
		t.Error(err)
	}
	if _, err := OpenImport(path, "", 3, 3); err == nil || !strings.Contains(err.Error(), "--hidden-layers 3: state 1") {
		t.Error(err)
	}
	x, tap := floats(tensor.F32, nil, 1, 2), floats(tensor.F32, nil, 3, 4)
	x.Name, tap.Name, x.Shape, tap.Shape = "x", "tap.x", tensor.Shape{1, 2}, tensor.Shape{1, 2}
	if _, err := OpenImport(saved(t, *x, *tap), ""); err == nil || !strings.Contains(err.Error(), `"tap.x": "0.tap.x", which "x" is`) && !strings.Contains(err.Error(), `"x": "0.tap.x", which "tap.x" is`) {
		t.Error(err)
	}
	states.Name, states.Shape = "model.layers[1].output", tensor.Shape{2, 4}
	in, all := importAll(t, saved(t, ids, *states), "")
	if in.Form != FormTensors || !slices.Equal(tapsOf(all[0]), []string{"model.layers[1].output [2 4] 1..8"}) || !slices.Equal(all[0].IDs, []int32{5, 6}) {
		t.Errorf("%s: %q", in.Form, tapsOf(all[0]))
	}
	l := newPlacer(loadGraph(t, golden.Model(t, "tiny-llama")), &Prompt{})
	for _, name := range []string{"model.layers[1].output", "model.layers.1.out"} {
		if s := l.hf(name); s.node == nil || s.node.Name != "blk.1.out" {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if s := l.hf("model.layers[1].mlp.down_proj.input"); s.node == nil || s.node != l.hf("model.layers.1.mlp.down_proj.in").node {
		t.Errorf("%+v", s)
	}
}

// TestImportCallbackText: the text of llama.cpp's example says why it cannot be read.
func TestImportCallbackText(t *testing.T) {
	text := "ggml_debug:               norm-0 = (f32)   RMS_NORM(inp_embd{4, 2, 1, 1}, }) = {4, 2, 1, 1}\n"
	path := filepath.Join(folder(t, map[string][]byte{"log.txt": []byte(text)}), "log.txt")
	if _, err := OpenImport(path, ""); err == nil || !strings.Contains(err.Error(), "hook --print llama.cpp") {
		t.Error(err)
	}
}

// FuzzUnpickle wants values or an error of any bytes.
func FuzzUnpickle(f *testing.F) {
	for _, name := range []string{"dict", "dict4", "value", "loop"} {
		data, err := os.ReadFile("testdata/torch/" + name + ".pt")
		if err != nil {
			f.Fatal(err)
		}
		pkl, err := torchFile(data, "/data.pkl")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(pkl)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := unpickle(data)
		if err != nil {
			return
		}
		d := torchDump{record: &Record{}}
		if err := d.take([]byte("no archive"), v, "", "x", 0); err == nil && len(d.arrays) > 0 {
			t.Errorf("tensors without storages")
		}
	})
}

// TestSteps: passes of one token beside a longer one are said to be steps of decoding.
func TestSteps(t *testing.T) {
	one, three := &Prompt{IDs: []int32{1}}, &Prompt{IDs: []int32{1, 2, 3}}
	for _, c := range []struct {
		prompts []*Prompt
		notes   int
	}{{[]*Prompt{three, one, one}, 1}, {[]*Prompt{one}, 0}, {[]*Prompt{three, three}, 0}, {[]*Prompt{{}, {}}, 0}} {
		if got := steps(&Record{Prompts: c.prompts}); len(got) != c.notes {
			t.Errorf("%d prompts: %q", len(c.prompts), got)
		}
	}
}

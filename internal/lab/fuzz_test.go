package lab

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"testing"

	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// FuzzRecord reads a record of any bytes, compares it with itself and prints the
// comparison. What is inside with no distance allowed must have had none.
func FuzzRecord(f *testing.F) {
	file := func(tensors ...*tensor.Tensor) []byte {
		var b bytes.Buffer
		var all []tensor.Tensor
		for _, t := range tensors {
			all = append(all, *t)
		}
		if err := safetensors.Write(&b, all, nil); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	f.Add(file(named("0.ids", tensor.I32, 2), named("0.logits", tensor.F32, 2, 3), named("0.hidden", tensor.F16, 2, 2, 1), named("0.tap.a", tensor.BF16, 2, 1, 2)),
		[]byte(`{"prompts": [{"prompt": {"chat": [{"role": "user", "content": "Hi"}]}, "ids": [0, 0], "positions_kept": 2, "float32": {"max_abs_diff": 1e-6}}], "names": "hf", "numerics": {"precision": "f64"}}`))
	f.Add(file(named("7.logits", tensor.F64, 1, 1), named("7.tap.b", tensor.F32, 3)), []byte(`[{"index": 7, "entropy": "NaN", "text": "\u001b"}]`))
	f.Fuzz(func(t *testing.T, data, info []byte) {
		file, err := safetensors.Parse(data)
		if err != nil {
			return
		}
		var r Record
		if r.addInfo(info) != nil || r.fill(file.Tensors) != nil {
			return
		}
		c, err := Compare(&r, &r, Options{MaxDiff: new(0.)})
		if err != nil {
			return // no prompt has logits
		}
		if c.Inside() && !(c.All.MaxAbsDiff == 0) {
			t.Errorf("inside with %v", c.All.MaxAbsDiff)
		}
		if err := c.WriteText(io.Discard); err != nil {
			t.Error(err)
		}
	})
}

// FuzzInputs: what is taken for prompts has one form each, and is the same after it was
// written and read again.
func FuzzInputs(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		inputs, err := parseInputs(data)
		if err != nil {
			return
		}
		for _, in := range inputs {
			if err := in.check(); err != nil {
				t.Fatal(err)
			}
		}
		written, err := json.Marshal(append([]Input{}, inputs...)) // of none, a list as well
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseInputs(written)
		if err != nil || len(again) != len(inputs) {
			t.Fatalf("%s: %+v, was %+v, %v", written, again, inputs, err)
		}
		for i, in := range inputs { // an empty list is none
			if x := again[i]; !reflect.DeepEqual(x.Text, in.Text) || len(x.Chat)+len(in.Chat) > 0 && !reflect.DeepEqual(x.Chat, in.Chat) || len(x.IDs)+len(in.IDs) > 0 && !reflect.DeepEqual(x.IDs, in.IDs) {
				t.Fatalf("%s: %+v, was %+v", written, x, in)
			}
		}
	})
}

// FuzzDebug adds two files of any names and bytes to the tree of transformers' debugger:
// what it takes is a prompt that can be written.
func FuzzDebug(f *testing.F) {
	f.Fuzz(func(t *testing.T, name, name2 string, data, data2 []byte) {
		d := debugTree{prompt: &Prompt{}}
		for file, data := range map[string][]byte{name: data, name2: data2} {
			kind, tap := debugName(file, "A")
			x, err := safetensors.Parse(data)
			if kind == "" || err != nil || d.add(x, kind, tap) != nil {
				return
			}
		}
		if d.check() == nil {
			rewritten(t, d.prompt)
		}
	})
}

// FuzzBin does so with llama-debug's two files.
func FuzzBin(f *testing.F) {
	f.Fuzz(func(t *testing.T, logits, ids []byte) {
		if len(logits) == 0 || len(logits)%4 != 0 || len(ids) == 0 || len(ids)%4 != 0 {
			return // is told before
		}
		p, err := binPrompt(logits, ids)
		if err == nil && p.check() == nil {
			rewritten(t, p)
		}
	})
}

// rewritten wants what is read of p's tensors, written, to be p.
func rewritten(t *testing.T, p *Prompt) {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, p.tensors(), nil); err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var r Record
	if err := r.fill(file.Tensors); err != nil {
		t.Fatal(err)
	}
	again := r.Prompt(p.Index)
	if again == nil || !reflect.DeepEqual(again.IDs, p.IDs) || len(again.Taps) != len(p.Taps) || (again.Logits == nil) != (p.Logits == nil) {
		t.Fatalf("%+v, was %+v", again, p)
	}
}

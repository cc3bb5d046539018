package lab

import (
	"bytes"
	"io"
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

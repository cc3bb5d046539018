package convert

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// TestOtherFloat: a tensor of F16 in a model of BF16 stays so where BF16 does not hold its values.
func TestOtherFloat(t *testing.T) {
	m, err := checkpoint.Open(filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	weights, _, err := arch.Weights(m)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(weights, func(w *graph.Weight) bool { return strings.Contains(w.GGUF, "ffn_up") })
	for bits, want := range map[uint16]tensor.DType{0x3c01: tensor.F16, 0x3c00: tensor.BF16} { // 1+2^-10, 1
		w := *weights[i]
		x := tensor.Tensor{Name: w.Tensor.Name, DType: tensor.F16, Shape: w.Tensor.Shape}
		for range x.Shape.Size() {
			x.Data = binary.LittleEndian.AppendUint16(x.Data, bits)
		}
		w.Tensor = x
		c := converter{}
		jobs, err := c.folderJobs(m, []*graph.Weight{&w}, tensor.BF16)
		if err != nil || len(jobs) != 1 || jobs[0].out.DType != want || (len(c.result.Notes) == 1) != (want == tensor.F16) {
			t.Errorf("%#x: %v, %q, %v", bits, jobs[0].out.DType, c.result.Notes, err)
		}
	}
}

package check

import (
	"context"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// TestZeroSource: zeros that the source has, too, are no difference: a gain of Gemma's, or a bias, that training left
// where it began.
func TestZeroSource(t *testing.T) {
	zeros := tensor.Tensor{Name: "blk.0.attn_q.bias", DType: tensor.F32, Shape: tensor.Shape{64}, Data: make([]byte, 4*64)}
	c := &checker{ctx: context.Background()}
	p := pair{model: zeros, source: zeros}
	d, err := differ(c, &p)
	if err != nil || d.relative != 0 || d.factor != 1 || d.cosine != 1 || d.far.n != 0 {
		t.Errorf("zeros of zeros: %+v, %v", d, err)
	}
	nameDifference(c, &p, &d, []pair{p})
	if len(c.report.Findings) > 0 {
		t.Errorf("found %v", c.report.Findings)
	}
}

package diagnose

import (
	"slices"
	"testing"
)

// TestRefute: where an attempt that seemed right is wrong counts for what joins it, the worst of it in front.
func TestRefute(t *testing.T) {
	at := func(row int, ratio float64) rowError { return rowError{site: site{1, row}, residual: ratio, floor: 1} }
	a := &attempt{}
	a.take([]rowError{at(0, 1), at(1, 2)})
	a.refute([]rowError{at(0, 9), at(5, 2), at(64, 100), at(65, 1000)})
	if a.ratio != 1000 || !slices.Equal(worstFirst(a.errors), []rowError{at(65, 1000), at(64, 100), at(1, 2), at(0, 1)}) {
		t.Errorf("%+v", a)
	}
}

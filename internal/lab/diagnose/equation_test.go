package diagnose

import (
	"slices"
	"testing"
)

// TestBeside: what explains an equation that is wrong at the last positions alone, as of a ring's second turn, is judged there
// in the others, too. One that is wrong by itself is judged where it is.
func TestBeside(t *testing.T) {
	right, wrong := &equation{}, &equation{}
	for row := range 72 {
		x := rowError{site: site{2, row}, residual: 1e-7, floor: 1e-7}
		right.errors = append(right.errors, x)
		if row == 63 {
			x.residual = 1
		}
		wrong.errors = append(wrong.errors, x)
	}
	at := func(all []rowError, row int) bool {
		return slices.ContainsFunc(all, func(x rowError) bool { return x.row == row })
	}
	if got := sitesBeside(right, wrong); !at(got, 63) || len(got) != len(screen(right)) || at(screen(right), 63) {
		t.Errorf("%v", got)
	}
	if got := sitesBeside(wrong, right); !slices.Equal(got, screen(wrong)) {
		t.Errorf("%v", got)
	}
}

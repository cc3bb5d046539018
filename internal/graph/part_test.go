package graph

import (
	"slices"
	"testing"
)

// TestPart has Qwen2-VL's sections, one after another, and Qwen3-VL's, by turns: as
// apply_interleaved_mrope there writes them, each part from its own offset in steps of three.
func TestPart(t *testing.T) {
	of := func(a RoPEAttr) (parts []int) {
		for i := range a.Sections[0] + a.Sections[1] + a.Sections[2] {
			parts = append(parts, a.Part(i))
		}
		return parts
	}
	after := slices.Concat(make([]int, 16), slices.Repeat([]int{1}, 24), slices.Repeat([]int{2}, 24))
	if got := of(RoPEAttr{Sections: [3]int{16, 24, 24}}); !slices.Equal(got, after) {
		t.Errorf("one after another: %v", got)
	}
	for _, sections := range [][3]int{{24, 20, 20}, {11, 11, 10}} {
		woven := make([]int, sections[0]+sections[1]+sections[2])
		for part := 1; part < 3; part++ {
			for i := part; i < 3*sections[part]; i += 3 {
				woven[i] = part
			}
		}
		if got := of(RoPEAttr{Sections: sections, Woven: true}); !slices.Equal(got, woven) {
			t.Errorf("%v by turns: %v", sections, got)
		}
	}
	if got := (RoPEAttr{}).Part(5); got != 0 {
		t.Errorf("no sections: part %d", got)
	}
}

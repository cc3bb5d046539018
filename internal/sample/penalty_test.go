package sample

import (
	"slices"
	"testing"
)

// TestPenalties: what was chosen is less likely from then on, by the one penalty once and by the other each time.
func TestPenalties(t *testing.T) {
	logits := []float32{3, 2.5, 1}
	for _, c := range []struct {
		o    Options
		want []int
	}{
		{Options{}, []int{0, 0, 0, 0}},
		{Options{PresencePenalty: 1}, []int{0, 1, 0, 0}},     // 3 2.5 1, 2 2.5 1, 2 1.5 1
		{Options{FrequencyPenalty: 0.75}, []int{0, 1, 0, 1}}, // 3 2.5, 2.25 2.5, 2.25 1.75, 1.5 1.75
		{Options{FrequencyPenalty: -1}, []int{0, 0, 0, 0}},   //
		{Options{PresencePenalty: 0.5, FrequencyPenalty: 0.5}, []int{0, 1, 0, 0}},
	} {
		s, err := New(c.o)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.Likeliest(); (n > 0) != (c.o.PresencePenalty == 0 && c.o.FrequencyPenalty == 0) {
			t.Errorf("%+v: the likeliest %d are enough", c.o, n)
		}
		var got []int
		for range 4 {
			id, err := s.Sample(logits, []int{1, 1, 2})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, id)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.o, got, c.want)
		}
	}
	for _, o := range []Options{{PresencePenalty: 101}, {FrequencyPenalty: -101}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

package sample

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSampleMasked: a mask is as logits of -Inf outside of it, in both of its forms, for every option.
func TestSampleMasked(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for seed := range uint64(60) {
		logits := make([]float32, 130)
		banned := make([]float32, len(logits))
		mask := [2]Mask{{IDs: []int32{}}, {Bits: make([]uint64, 4)}}
		for id := range logits {
			logits[id] = float32(r.NormFloat64() * 3)
			banned[id] = float32(math.Inf(-1))
			if r.IntN(4) == 0 {
				banned[id] = logits[id]
				mask[0].IDs = append(mask[0].IDs, int32(id))
				mask[1].Bits[id>>6] |= 1 << (id & 63)
			}
		}
		mask[1].Bits[3] = 1 // a token that the logits do not have
		o := Options{Seed: seed, Temperature: float64(seed % 3), RepeatPenalty: 1.2, PresencePenalty: 0.5, LogitBias: map[int]float32{3: 1}}
		if seed%2 == 0 {
			o.TopK, o.TopP, o.MinP = 20, 0.9, 0.01
		}
		var got [3][]int
		for i := range got {
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			history := []int{1, 5}
			for range 20 {
				var id int
				if i < 2 {
					id, err = s.SampleMasked(logits, history, &mask[i])
					if err == nil && !mask[i].Has(id) {
						t.Fatalf("token %d is outside the mask", id)
					}
				} else {
					id, err = s.Sample(banned, history)
				}
				if err != nil {
					t.Fatal(err)
				}
				history, got[i] = append(history, id), append(got[i], id)
			}
		}
		for i := range got[2] {
			if got[0][i] != got[2][i] || got[1][i] != got[2][i] {
				t.Fatalf("seed %d: %v, %v, want %v", seed, got[0], got[1], got[2])
			}
		}
	}
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.SampleMasked([]float32{1, 2}, nil, &Mask{}); err == nil {
		t.Error("an empty mask has a token")
	}
}

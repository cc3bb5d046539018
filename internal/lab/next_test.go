package lab

import (
	"math"
	"strings"
	"testing"
)

func TestNext(t *testing.T) {
	l := math.Ln2
	nan := math.NaN()
	// Probabilities 1/2, 1/4, 1/8, 1/8 by construction, and in the other engine 1/4 each.
	n, err := NewNext([]float64{3 * l, 4 * l, 2 * l, 2 * l}, []float64{7, 7, 7, 7}, 2, []int{3})
	if err != nil {
		t.Fatal(err)
	}
	if n.Top[0].ID != 1 || n.Top[1].ID != 0 || n.Top[0].Rank != 1 || math.Abs(float64(n.Top[0].Logprob)+l) > 1e-12 {
		t.Errorf("top: %+v", n.Top)
	}
	if x := n.Tokens[0]; x.ID != 3 || x.Rank != 4 || x.Other.Rank != 4 || x.Other.Logit != 7 || math.Abs(float64(x.Other.Logprob)+2*l) > 1e-12 {
		t.Errorf("token: %+v, theirs %+v", x, x.Other)
	}
	if n.OtherTop[0].ID != 0 || n.OtherTop[0].Rank != 2 || n.Distance == nil || n.Distance.KLMean <= 0 {
		t.Errorf("other: %+v, %+v", n.OtherTop, n.Distance)
	}
	n.Name(func(int) string { return "\x1b[2J" })
	if text := n.Text(); strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 1+2+1+2 {
		t.Errorf("text:\n%s", text)
	}
	// A NaN is no likely token, and is shown where it was asked for.
	n, err = NewNext([]float64{1, nan}, nil, 5, []int{1})
	if err != nil || len(n.Top) != 1 || n.Tokens[0].Rank != 0 || n.Tokens[0].Logit == n.Tokens[0].Logit {
		t.Errorf("NaN: %+v, %v", n, err)
	}
	for _, c := range []struct {
		other []float64
		ids   []int
		err   string
	}{{make([]float64, 3), nil, "3 tokens against 2: another vocabulary"}, {nil, []int{2}, "token 2 is outside the vocabulary of 2"}, {nil, []int{-1}, "token -1"}} {
		if _, err := NewNext([]float64{1, 2}, c.other, 1, c.ids); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v, %v: %v; want %q", c.other, c.ids, err, c.err)
		}
	}
}

func TestLast(t *testing.T) {
	logits := newF32([]float32{1, 2, 3, 4}, 2, 2)
	r := &Record{Path: "r", Prompts: []*Prompt{{Index: 0, IDs: []int32{5, 6}, Logits: logits}, {Index: 3, IDs: []int32{5, 7, 8}, Logits: logits}, {Index: 4, IDs: []int32{9}}}}
	i, x, err := r.Last([]int32{5, 7, 8})
	if err != nil || i != 3 || len(x) != 2 || x[0] != 3 || x[1] != 4 {
		t.Errorf("%d, %v, %v", i, x, err)
	}
	for _, c := range []struct {
		ids []int32
		err string
	}{{[]int32{5, 7}, "prompt 3, has 3 ids and differs at position 2 (8 against the end)"}, {[]int32{9}, "differs at position 0 (5 against 9)"}} {
		if _, _, err := r.Last(c.ids); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v: %v; want %q", c.ids, err, c.err)
		}
	}
	if i, _, err := (&Record{Prompts: []*Prompt{{Index: 2, Logits: logits}}}).Last([]int32{1}); i != 2 || err != nil {
		t.Errorf("the only prompt, without ids: %d, %v", i, err)
	}
	if _, _, err := (&Record{Prompts: []*Prompt{{}}}).Last(nil); err == nil {
		t.Error("no logits, and no error")
	}
}

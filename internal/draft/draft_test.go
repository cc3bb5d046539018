package draft

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSuffixes compares the automaton with a search, on texts of few letters.
func TestSuffixes(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 0))
		letters := []int32{1, 2, 3, 5, 12, 40}[seed%6]
		s := newSuffixes(0)
		for n := 1; n <= 200; n++ {
			length, behind := s.add(r.Int32N(letters))
			text := s.text[:n]
			want := 0
			for l := 1; l < n; l++ {
				for at := 0; at+l < n; at++ {
					if slices.Equal(text[at:at+l], text[n-l:]) {
						want = l
					}
				}
			}
			if length != want {
				t.Fatalf("%v: an end of %d was found before, want %d", text, length, want)
			}
			if length > 0 && (behind >= n || behind < length || !slices.Equal(text[behind-length:behind], text[n-length:])) {
				t.Fatalf("%v: behind %d is no end of %d", text, behind, length)
			}
		}
		if len(s.states) > 2*200 || len(s.edges) > 3*200 {
			t.Errorf("%d states and %d edges for 200 tokens", len(s.states), len(s.edges))
		}
	}
}

// copies counts the tokens of an answer that proposals of up to 8 tokens get right, if each is verified.
func copies(d *Drafter, answer []int32) (right, steps int, odds []float32) {
	for at := 0; at < len(answer); steps++ {
		var draft []int32
		draft, odds = d.Propose(nil, nil, 8)
		n := 0
		for n < len(draft) && at+n < len(answer)-1 && draft[n] == answer[at+n] {
			n++
		}
		for _, id := range answer[at : at+n+1] {
			d.Add(id)
		}
		at, right = at+n+1, right+n
	}
	return right, steps, odds
}

func random(seed uint64, n int) (ids []int32) {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		ids = append(ids, r.Int32N(1000))
	}
	return ids
}

// TestEdit: an answer that repeats a file of the prompt with edits is found, and its odds rise.
func TestEdit(t *testing.T) {
	file := random(1, 300)
	answer := slices.Concat(file[:100], random(2, 5), file[110:])
	right, steps, odds := copies(New(file, nil), answer)
	if right < 240 || steps > 50 || odds[0] < 0.8 {
		t.Errorf("%d of %d tokens in %d steps, with odds of %v", right, len(answer), steps, odds)
	}
	if right, _, odds = copies(New(file, nil), random(3, 300)); right > 5 || len(odds) > 0 && odds[0] > 0.3 {
		t.Errorf("another text: %d tokens, with odds of %v", right, odds)
	}
}

// TestPrediction: a prediction is proposed from its beginning, and found again behind an edit.
func TestPrediction(t *testing.T) {
	file := random(1, 100)
	d := New(random(9, 50), file)
	if ids, _ := d.Propose(nil, nil, 4); !slices.Equal(ids, file[:4]) || d.kind != Prediction {
		t.Errorf("the first proposal is %v of the kind %v, want %v", ids, d.kind, file[:4])
	}
	answer := slices.Concat(file[:40], []int32{2000}, file[42:])
	if right, steps, _ := copies(d, answer); right < 80 {
		t.Errorf("%d of %d tokens in %d steps", right, len(answer), steps)
	}
	if ids, _ := d.Propose(nil, nil, 8); len(ids) > 0 { // the prediction's end
		t.Errorf("behind the prediction: %v", ids)
	}
}

// TestRepeats: a text that repeats itself is proposed beyond its own end.
func TestRepeats(t *testing.T) {
	d := New([]int32{1, 2, 3}, nil)
	for range 20 {
		for id := range int32(3) {
			d.Add(id + 1)
		}
	}
	want := []int32{1, 2, 3, 1, 2, 3, 1}
	if ids, odds := d.Propose(nil, nil, 7); !slices.Equal(ids, want) || len(odds) != 7 || odds[6] > odds[0] {
		t.Errorf("proposes %v with odds %v, want %v", ids, odds, want)
	}
}

// TestGuess: proposals of the head end after a few wrong tokens, begin again after a while, and go on while they are
// right.
func TestGuess(t *testing.T) {
	for _, right := range []bool{false, true} {
		d, proposals := New([]int32{1}, nil), 0
		d.Guess(true)
		for _, id := range random(4, 256) {
			if _, odds := d.Propose(nil, nil, 1); len(odds) == 1 && d.Kind() == MTP && odds[0] > 0.25 {
				if proposals++; right {
					d.Count(1, 0)
				} else {
					d.Count(0, 1)
				}
			}
			d.Add(id)
		}
		if !right && (proposals < 6 || proposals > 12) || right && proposals < 256 {
			t.Errorf("right %v: %d proposals", right, proposals)
		}
	}
}

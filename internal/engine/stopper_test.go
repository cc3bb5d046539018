package engine

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestStopper cuts text into pieces; | ends a piece.
func TestStopper(t *testing.T) {
	for _, x := range []struct {
		stop    []string
		pieces  string
		want    string
		stopped bool
	}{
		{nil, "a|b|c", "a|b|c", false},
		{[]string{""}, "a|b", "a|b", false},
		{[]string{"stop"}, "go on|", "go on|", false},
		{[]string{"stop"}, "a stop b", "a ", true},
		{[]string{"stop"}, "a s|to|p b", "a ||", true},
		{[]string{"stop"}, "a s|to|ne", "a ||stone", false},
		{[]string{"stop"}, "a sto", "a ", false},
		{[]string{"stop"}, "stop", "", true},
		{[]string{"stop"}, "s|st|sto|stop", "|s|st|sto", true},
		{[]string{"aab"}, "a|a|a|b", "||a|", true},
		{[]string{"abab"}, "aba|aba|b", "|aba|", true},
		{[]string{"\n\n", "END"}, "x\n|E|N|D", "x|\n||", true},
		{[]string{"\n\n", "\nEND"}, "x\n|E|N|D", "x|||", true},
		{[]string{"END", "E"}, "xE|ND", "x", true},
		{[]string{"bc", "abcd"}, "abcd", "a", true},
		{[]string{"bc", "abcd"}, "abc|d", "a", true},
		{[]string{"bc", "abc"}, "xabc", "x", true},
		{[]string{"é"}, "caf|é|!", "caf|", true},
		{[]string{"日本"}, "日|本", "|", true},
		{[]string{"日本"}, "日|曜", "|日曜", false},
	} {
		s := stopper{stop: x.stop}
		var got []string
		stopped := false
		for _, piece := range strings.Split(x.pieces, "|") {
			var text string
			if text, stopped = s.add(piece); stopped {
				got = append(got, text)
				break
			}
			got = append(got, text)
		}
		if text := strings.Join(got, "|"); strings.TrimSuffix(text, "|") != strings.TrimSuffix(x.want, "|") || stopped != x.stopped {
			t.Errorf("%q: %q gives %q, %v; want %q, %v", x.stop, x.pieces, text, stopped, x.want, x.stopped)
		}
	}
}

// TestStopperCuts: the cut into pieces changes neither text nor end, and the
// end is where a stop string is first complete.
func TestStopperCuts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc"[r.IntN(3)]
		}
		return string(b)
	}
	stops := 0
	for range 20000 {
		stop, text := []string{word(1 + r.IntN(5)), word(1 + r.IntN(5))}[:r.IntN(3)], word(r.IntN(12))
		want, end := text, false
		for i := 1; i <= len(text) && !end; i++ {
			for _, x := range stop {
				if strings.HasSuffix(text[:i], x) && (!end || i-len(x) < len(want)) {
					want, end = text[:i-len(x)], true
				}
			}
		}
		s, got, stopped := stopper{stop: stop}, "", false
		for rest := text; rest != "" && !stopped; {
			n := 1 + r.IntN(len(rest))
			var piece string
			piece, stopped = s.add(rest[:n])
			got, rest = got+piece, rest[n:]
		}
		if !stopped {
			rest, _ := s.end("")
			got += rest
		}
		if got != want || stopped != end {
			t.Fatalf("%q in %q: %q, %v; want %q, %v", stop, text, got, stopped, want, end)
		}
		if stopped {
			stops++
		}
	}
	if stops < 1000 {
		t.Errorf("only %d stops", stops)
	}
}

// half is a decoder whose last character is incomplete.
type half struct{}

func (half) Write(id int) string { return string(rune(id)) }
func (half) Flush() string       { return "\ufffd" }

// TestStopFlush: a stop string that the decoder's rest completes ends the text, as any other.
func TestStopFlush(t *testing.T) {
	r := Request{End: []int{0}, Stop: []string{"b\ufffd"}, Decoder: half{}}
	for _, x := range []struct {
		held string
		id   int
		text string
		stop StopReason
	}{{"", 'b', "", StopString}, {"b", 0, "", StopString}, {"", 'a', "a\ufffd", StopLength}, {"", 0, "\ufffd", StopEnd}} {
		token := Token{ID: x.id}
		token.finish(&stopper{stop: r.Stop, held: x.held}, &r, true)
		if token.Text != x.text || token.Stop != x.stop {
			t.Errorf("%q, %d: %q, %q; want %q, %q", x.held, x.id, token.Text, token.Stop, x.text, x.stop)
		}
	}
}

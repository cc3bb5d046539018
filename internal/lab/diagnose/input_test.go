package diagnose

import (
	"math"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/lab"
)

// TestUnfilled wants taps that were never written told from others.
func TestUnfilled(t *testing.T) {
	want := []float64{1, 2, 3}
	for text, got := range map[string][]float64{"": {1, 0, 0}, "zeros alone": {0, 0, 0}, "1 of the tap's 3 values": {1, math.NaN(), 3}, "2 of the tap's 3 values": {math.Inf(1), 2, math.Inf(-1)}} {
		if x := unfilled(got, want); (x == nil) != (text == "") || x != nil && !strings.Contains(x.computed, text) {
			t.Errorf("%v: %+v", got, x)
		}
	}
}

// TestCutInput wants a prompt that was cut told from one without its template.
func TestCutInput(t *testing.T) {
	want := []int32{1, 2, 3, 4, 5, 6}
	chat := lab.Chat{{Role: "user", Content: "Hi"}}
	for _, c := range []struct {
		got   []int32
		chat  lab.Chat
		cause string
	}{
		{want[:4], nil, "input_ids"}, {want[2:], nil, "input_ids"}, {want[1:], nil, "input_bos"},
		{want[2:4], nil, "input_template"}, {want[:4], chat, "input_template"},
	} {
		p := &lab.Prompt{IDs: c.got}
		p.Input.Chat = c.chat
		if cause, what := classify(p, want); cause != c.cause {
			t.Errorf("%v: %s, %s; want %s", c.got, cause, what, c.cause)
		}
	}
}

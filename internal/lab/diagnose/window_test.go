package diagnose_test

import (
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// wide is a text of more tokens than the tiny models' windows.
var wide = strings.Repeat("The color of the sky is blue. ", 11)

// TestWindowPerChunk: a window that begins once for a chunk of queries is told from one of another length.
func TestWindowPerChunk(t *testing.T) {
	m := tiny(t, "tiny-gemma3")
	dump, done := m.record(t, "activations=f32", "window_per_chunk@sliding", m.texts(t, mixed, wide))
	d := m.diagnose(t, dump, nil)
	named(t, d, map[string][]int{"window_per_chunk": done[0].Layers})
	closed(t, d)
	if want := "begins the window of all queries of a chunk of 32 where that of the first one begins"; d.Findings[0].Computed != want {
		t.Errorf("want %q, got %s", want, say(d))
	}
}

// TestBeyondWindow: a fault without a name, seen beyond the window alone, is said to be there.
func TestBeyondWindow(t *testing.T) {
	m := tiny(t, "cohere2")
	dump, done := m.record(t, "activations=f32", "window_per_chunk=6@1", m.texts(t, "The color", mixed))
	d := m.diagnose(t, dump, nil)
	named(t, d, map[string][]int{"unknown": done[0].Layers})
	if got := d.Findings[0].Computed; !strings.HasSuffix(got, ", only beyond sliding_window = 16") {
		t.Errorf("%q", got)
	}
}

// TestPort is a port's three faults through PyTorch's modules alone, where rope and window are seen at one tap.
func TestPort(t *testing.T) {
	golden.SkipFast(t, "it takes more than five seconds")
	m := tiny(t, "tiny-gemma3")
	dump, _ := m.record(t, "activations=f32", "rope_theta=root@all; window_per_chunk@sliding; gelu_constant@all", m.texts(t, mixed, wide))
	d := m.diagnose(t, modules(dump), nil)
	all := []int{0, 1, 2, 3, 4, 5}
	named(t, d, map[string][]int{"rope_theta": all, "window_per_chunk": {0, 1, 3, 4}, "gelu_constant": all})
	closed(t, d)
}

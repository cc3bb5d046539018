package lab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

func text(t *testing.T, golden, record *Record, o Options) string {
	t.Helper()
	c, err := Compare(golden, record, o)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWriteText(t *testing.T) {
	golden, record := one(same), one(func(p *Prompt) {
		p.Logits = floats(tensor.F32, tensor.Shape{2, 4}, 1, 2, 3.5, 4, 8, 7, 6, 5)
		p.Taps["a"] = floats(tensor.F32, tensor.Shape{3, 2}, 3, 4, 6, 8, 0, 5.5)
	})
	golden.Path, record.Path = "golden.safetensors", "record.safetensors"
	golden.Numerics = []byte(`{"hashes":{"weights":"229a"},"precision":"f64"}`)
	golden.Prompts = append(golden.Prompts, &Prompt{Index: 9, Logits: floats(tensor.F32, tensor.Shape{1, 4}, 1, 2, 3, 4)})
	got := text(t, golden, record, Options{MaxDiff: new(0.1), MaxKL: new(1e-3)})
	want := `golden golden.safetensors {"precision":"f64"}
record record.safetensors

prompt           ids    rows  max|Δ|  limit  float32  last  mean|Δ|  cosine     KL     limit  float32  top-1   top-5   top-10  entropy        text
3       OUTSIDE  equal  2     0.5     0.1    0.016    0     0.062    0.9973649  0.012  0.001  1e-09    100.0%  100.0%  100.0%  0.9475 0.9475  a prompt
all                     2     0.5                     0     0.062    0.9973649  0.012                  100.0%  100.0%  100.0%
Distances are of logits; KL is in nats, a mean over the rows (positions); float32 is the golden record's own noise; entropy is golden's and record's, at the last position.
prompts only in golden: [9]

Taps, relative L2 error, worst first: 1 compared, 0 only in golden, 0 only in record
worst row  at  all rows  rows  prompt  tap
0.1        2   0.041     3     3       a

OUTSIDE: 0 of 1 prompts are inside their limits
The record lacks 1 of the golden record's prompts; --partial allows that.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWriteTextOfManyTaps(t *testing.T) {
	many := func(p *Prompt) {
		for i := range 50 {
			p.Taps[fmt.Sprintf("tap %d", i)] = floats(tensor.F32, tensor.Shape{1, 1}, float64(100+i))
		}
	}
	got := text(t, one(func(p *Prompt) {
		for i := range 50 {
			p.Taps[fmt.Sprintf("tap %d", i)] = floats(tensor.F32, tensor.Shape{1, 1}, 100)
		}
	}), one(many), Options{})
	if strings.Count(got, " tap ") != 20 || !strings.Contains(got, "51 compared") || !strings.Contains(got, "and 31 more\n") {
		t.Errorf("got\n%s", got)
	}
	if !strings.Contains(got, "0.49       0   0.49      1     3       tap 49\n") || strings.Contains(got, "tap 29\n") {
		t.Errorf("not the worst:\n%s", got)
	}
}

// TestWriteTextIsPlain checks that nothing a file holds reaches the terminal as a command.
func TestWriteTextIsPlain(t *testing.T) {
	evil := "\x1b[2J\u202eabc\u009b1m\r" + strings.Repeat("é", 100)
	r := one(func(p *Prompt) { p.Text = evil })
	r.Path, r.Numerics = evil, []byte(`{"a": "`+evil+`"}`)
	for _, c := range text(t, r, r, Options{}) {
		if c != '\n' && unprintable(c) {
			t.Errorf("%q is printed", c)
		}
	}
}

package eval

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/golden"
)

// TestOwn: tokens of another tokenizer are told from a model's own, for every pair of the
// tiny models with one vocabulary's size.
func TestOwn(t *testing.T) {
	var models []*Model
	for _, name := range []string{"tiny-llama", "tiny-qwen2", "tiny-gemma3", "tiny-gemma4"} {
		c, err := checkpoint.Open(golden.Model(t, name))
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		models = append(models, m)
	}
	for _, m := range models {
		for _, context := range []int{16, 512} {
			for _, text := range []string{Text, Calibration} {
				w, err := m.Windows(t.Context(), text, context, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range models {
					name := m.Checkpoint.Path + " by " + o.Checkpoint.Path
					if o.Own(w) != (o == m) {
						t.Errorf("%s, windows of %d: own is %v", name, context, o != m)
					}
					if err := m.SameTokens(o, w); (err == nil) != (o == m) {
						t.Errorf("%s, windows of %d: same tokens: %v", name, context, err)
					}
				}
			}
		}
	}
}

// looks counts looks at a context.
type looks struct {
	context.Context
	n int
}

func (l *looks) Err() error { l.n++; return l.Context.Err() }

// TestWindowsBounded: of a text no more is read than the windows need, and nothing where the
// context ended.
func TestWindowsBounded(t *testing.T) {
	c, err := checkpoint.Open(filepath.Join("..", "..", "testdata", "models", "tiny-llama"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	whole, few := &looks{Context: t.Context()}, &looks{Context: t.Context()}
	text := strings.Repeat(Text, 1+(1<<20)/len(Text))
	all, errAll := m.Windows(whole, text, 16, 0)
	two, errTwo := m.Windows(few, text, 16, 2)
	if errAll != nil || errTwo != nil || !slices.Equal(two.IDs, all.IDs[:32]) || whole.n < 20 || few.n > whole.n/2 {
		t.Errorf("%v, %v, %d looks for all, %d for two windows", errAll, errTwo, whole.n, few.n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Windows(ctx, text, 16, 0); err != context.Canceled {
		t.Error(err)
	}
}

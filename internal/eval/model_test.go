package eval

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/model"
)

// TestOwn: tokens of another tokenizer are told from a model's own, for every pair of the tiny models with one
// vocabulary's size.
func TestOwn(t *testing.T) {
	var models []*Model
	for _, name := range []string{"tiny-llama", "tiny-qwen2", "tiny-gemma3", "tiny-gemma4"} {
		c, err := checkpoint.Open(golden.Model(t, name))
		if err != nil {
			t.Fatal(err)
		}
		files, err := model.OpenFiles(t.Context(), c, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer files.Close()
		models = append(models, &Model{*files})
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

// TestPrivate: windows leave no keys and values behind, and have the bits that they have where sequences share.
func TestPrivate(t *testing.T) {
	c, err := checkpoint.Open(golden.Model(t, "tiny-gemma3"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := model.OpenFiles(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{*files}
	defer m.Close()
	n, err := numerics.Parse("fast", "")
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Windows(t.Context(), Text, 200, 3)
	if err != nil {
		t.Fatal(err)
	}
	o := model.Options{Numerics: n, Threads: 2, Engine: engine.Options{Context: 200}}
	r, err := m.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	shared, err := engine.New(m.Graph, r.backend, o.Engine)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	var bytes int64
	for i := range w.Count() {
		if err := r.Window(t.Context(), i, w.Window(i), 150); err != nil {
			t.Fatal(err)
		}
		rows, err := r.Rows(t.Context(), 50)
		if err != nil {
			t.Fatal(err)
		}
		s := shared.NewSequence()
		ids := append([]int32{m.Begin()}, w.Window(i)[1:]...)
		want, err := s.Feed(t.Context(), ids[:150], 0)
		if err == nil {
			want, err = s.Feed(t.Context(), ids[150:], 50)
		}
		s.Close()
		if err != nil {
			t.Fatal(err)
		}
		for j := range want {
			if !slices.Equal(rows[j].Logits, want[j]) {
				t.Fatalf("window %d, row %d: other bits", i, j)
			}
		}
		if i == 0 {
			bytes = r.engine.CacheBytes()
		}
	}
	if got := r.engine.CacheBytes(); got != bytes || shared.CacheBytes() <= bytes {
		t.Errorf("%d windows keep %d bytes, one %d; where sequences share, %d", w.Count(), got, bytes, shared.CacheBytes())
	}
}

// looks counts looks at a context.
type looks struct {
	context.Context
	n int
}

func (l *looks) Err() error { l.n++; return l.Context.Err() }

// TestWindowsBounded: of a text no more is read than the windows need, and nothing where the context ended.
func TestWindowsBounded(t *testing.T) {
	c, err := checkpoint.Open(golden.Model(t, "tiny-llama"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := model.OpenFiles(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{*files}
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

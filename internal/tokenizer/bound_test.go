package tokenizer_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// looks counts looks at a context, which is cancelled at the last one.
type looks struct {
	context.Context
	n, last int
}

func (l *looks) Err() error {
	if l.n++; l.last > 0 && l.n >= l.last {
		return context.Canceled
	}
	return nil
}

// collect joins what IDs yields.
func collect(ctx context.Context, tok *tokenizer.Tokenizer, text string, o tokenizer.Options) (ids []int, err error) {
	for piece, err := range tok.IDs(ctx, text, o) {
		if ids = append(ids, piece...); err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// allocated returns the memory that a call allocates, whether it is freed again or not.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestMemory: a text of one letter takes at most 20 bytes of memory a byte.
func TestMemory(t *testing.T) {
	for _, model := range []string{"tiny-llama", "tiny-qwen3", "tiny-gemma4"} {
		tok := fromJSON(t, golden.Model(t, model))
		for _, unit := range []string{"a", "q", "^", " ", "\n", "ab", "字", "é", "1"} {
			text := strings.Repeat(unit, 1<<18/len(unit))
			n := allocated(func() {
				for _, err := range tok.IDs(t.Context(), text, tokenizer.Options{}) {
					if err != nil {
						t.Error(err)
					}
				}
			})
			if each := float64(n) / float64(len(text)); each > 20 {
				t.Errorf("%s: %q: %.1f bytes a byte", model, unit, each)
			}
		}
	}
}

// TestLooks: the context is looked at after a bounded number of bytes and of steps, and nothing is done after it ended.
func TestLooks(t *testing.T) {
	const every = 1 << 14
	for _, model := range []string{"tiny-llama", "tiny-qwen3", "tiny-gemma3"} {
		tok := fromJSON(t, golden.Model(t, model))
		for _, unit := range append([]string{"e\u0301", "\u0301\u0323"}, runs...) {
			text := strings.Repeat(unit, 1<<17/len(unit))
			all := looks{Context: t.Context()}
			ids, err := collect(&all, tok, text, tokenizer.Options{})
			if want := (len(text) + tok.Steps(text)) / every / 2; err != nil || all.n < want {
				t.Errorf("%s: %+q: %v, %d looks, want %d at least", model, unit, err, all.n, want)
			}
			for _, last := range []int{1, 2, all.n / 2, all.n} {
				l := looks{Context: t.Context(), last: max(1, last)}
				some, err := collect(&l, tok, text, tokenizer.Options{})
				if !errors.Is(err, context.Canceled) || l.n != l.last || len(some) > len(ids) || !slices.Equal(some, ids[:len(some)]) {
					t.Errorf("%s: %+q: cancelled at look %d: %v after %d looks, %d ids of %d", model, unit, l.last, err, l.n, len(some), len(ids))
				}
			}
		}
		if text := "a bit"; !slices.Equal(tok.Encode(text, tokenizer.Options{}), tok.Encode(text, tokenizer.Options{})) {
			t.Errorf("%s: a work that was left changes what follows", model)
		}
	}
}

// stripping returns a tokenizer whose added token takes all white space beside it.
func stripping(t *testing.T) *tokenizer.Tokenizer {
	return charactersJSON(t, []string{"▁", "a", "▁a", "<s>"}, [][2]string{{"▁", "a"}}, func(f file) {
		f["added_tokens"] = []any{file{"id": 259, "content": "<s>", "special": true, "lstrip": true, "rstrip": true}}
	})
}

// TestMost: a text that has one id too many is an error, and one that has not is none, however much of it is one token.
// One that is far too long is refused by its length.
func TestMost(t *testing.T) {
	toks := map[string]*tokenizer.Tokenizer{"strips": stripping(t)}
	for _, model := range []string{"tiny-llama", "tiny-qwen3", "tiny-gemma4"} {
		toks[model] = fromJSON(t, golden.Model(t, model))
	}
	texts := []string{"\u212a\u212a\u212a\u1fbe\u0308\u0341", "a" + strings.Repeat(" ", 5000) + "<s>" + strings.Repeat(" \u3000\xff", 999), strings.Repeat("\u1100\u1161\u11a8", 99)}
	for _, unit := range append([]string{"the color of the sky ", "<|im_end|>", "<|eot_id|>", "<turn|>", "e\u0301"}, runs...) {
		texts = append(texts, unit, strings.Repeat(unit, 50), strings.Repeat(unit, 3000))
	}
	for name, tok := range toks {
		for _, text := range texts {
			o := tokenizer.Options{ParseSpecial: true, AddSpecial: true}
			all := tok.Encode(text, o)
			o.Most = len(all)
			if ids, err := collect(t.Context(), tok, text, o); err != nil || !slices.Equal(ids, all) {
				t.Errorf("%s: %.20q: %v, %d ids of %d", name, text, err, len(ids), len(all))
			}
			for _, o.Most = range []int{len(all) - 1, len(all) / 2, 1} {
				if o.Most < 1 || o.Most >= len(all) {
					continue
				}
				ids, err := collect(t.Context(), tok, text, o)
				if err != tokenizer.ErrMost || len(ids) > o.Most || !slices.Equal(ids, all[:len(ids)]) {
					t.Errorf("%s: %.20q: %v, %d ids of %d, at most %d", name, text, err, len(ids), len(all), o.Most)
				}
			}
		}
		long := strings.Repeat("a", 8<<20)
		l := looks{Context: t.Context()}
		n := allocated(func() {
			if _, err := collect(&l, tok, long, tokenizer.Options{Most: 512}); err != tokenizer.ErrMost {
				t.Errorf("%s: %v", name, err)
			}
		})
		if l.n != 1 || n > 64<<10 {
			t.Errorf("%s: %d looks and %d bytes before a text is refused", name, l.n, n)
		}
	}
}

package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// noWord is \b behind a digit, with the characters that Oniguruma's \w has: the tokenizers library tells them so.
const noWord = `(?![\p{L}\p{M}\p{N}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}])`

// TestSplitters cuts generated texts, and every single character in a few surroundings.
func TestSplitters(t *testing.T) {
	all := texts(1, 2000, nil, false)
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if utf8.ValidRune(r) && (r < 0x3400 || r > 0xa000 && r < 0xac00 || r > 0xd7a0 && r < 0x20000 && r%5 == 0 || r%997 == 0) {
			s := string(r)
			all = append(all, s+s+" "+s+"a"+s+" 1"+s+"\t"+s+"\n")
		}
	}
	for pattern := range tokenizer.Patterns {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			compare(t, tokenizer.Split(pattern), all, strings.ReplaceAll(pattern, `\b`, noWord))
		})
	}
	for name, patterns := range tokenizer.StageREs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, tokenizer.Split(patterns...), all, patterns...)
		})
	}
}

// TestSplittersInvalid checks that a byte that is no UTF-8 is cut as U+FFFD is.
func TestSplittersInvalid(t *testing.T) {
	for pattern, stages := range tokenizer.Patterns {
		for _, text := range texts(2, 500, nil, true) {
			var valid strings.Builder
			for _, r := range text {
				valid.WriteRune(r)
			}
			got, want := tokenizer.Pieces(stages, text), tokenizer.Pieces(stages, valid.String())
			if !slices.EqualFunc(got, want, func(a, b string) bool { return utf8.RuneCountInString(a) == utf8.RuneCountInString(b) }) {
				t.Fatalf("%s: %+q is cut into %+q, but %+q", pattern, text, got, want)
			}
		}
	}
}

// TestSplittersLinear cuts megabytes of one thing, for which a backtracking engine needs quadratic time: hours.
func TestSplittersLinear(t *testing.T) {
	length := 1 << 16
	if golden.Slow() {
		length = 1 << 20
	}
	for pattern, stages := range tokenizer.Patterns {
		for _, unit := range []string{"a", " ", "\n", " \n", "1", "^", "'", "\t ", "字", "\x00", "\xff", "a ", "\u3000", ". ", "\u0301", "1\x00"} {
			text := strings.Repeat(unit, length/len(unit))
			pieces := tokenizer.Pieces(stages, text)
			if slices.Contains(pieces, "") || strings.Join(pieces, "") != text {
				t.Errorf("%s: an empty piece of %+q, or another text", pattern, unit)
			}
		}
	}
}

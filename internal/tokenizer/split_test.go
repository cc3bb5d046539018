package tokenizer_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/tokenizer"
)

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
			compare(t, tokenizer.Split(pattern), all, pattern)
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
	for pattern, split := range tokenizer.Patterns {
		for _, text := range texts(2, 500, nil, true) {
			var valid strings.Builder
			for _, r := range text {
				valid.WriteRune(r)
			}
			for a, b := text, valid.String(); len(a) > 0; {
				n, k := split(a), split(b)
				if utf8.RuneCountInString(a[:n]) != utf8.RuneCountInString(b[:k]) {
					t.Fatalf("%s: %+q is cut at %d, %+q at %d", pattern, a, n, b, k)
				}
				a, b = a[n:], b[k:]
			}
		}
	}
}

// TestSplittersLinear cuts megabytes of one thing, for which a backtracking engine needs quadratic time: hours.
func TestSplittersLinear(t *testing.T) {
	for pattern, split := range tokenizer.Patterns {
		for _, unit := range []string{"a", " ", "\n", " \n", "1", "^", "'", "\t ", "字", "\x00", "\xff", "a ", "\u3000", ". ", "\u0301", "1\x00"} {
			text := strings.Repeat(unit, 1<<20/len(unit))
			pieces := 0
			for s := text; len(s) > 0; pieces++ {
				n := split(s)
				if n <= 0 || n > len(s) {
					t.Fatalf("%s: a piece of %d bytes of %+q", pattern, n, unit)
				}
				s = s[n:]
			}
			if pieces == 0 {
				t.Errorf("%s: no pieces of %+q", pattern, unit)
			}
		}
	}
}

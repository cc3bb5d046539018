package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"github.com/karat-run/karat/internal/tokenizer"
)

// oracle cuts text by regular expressions, each applied to the pieces of the one
// before, as a Split with behavior Isolated does.
func oracle(t testing.TB, res []*regexp2.Regexp, text string) []string {
	if len(res) == 0 || text == "" {
		return []string{text}
	}
	var pieces []string
	runes, done := []rune(text), 0
	cut := func(from, to int) {
		if from < to {
			pieces = append(pieces, oracle(t, res[1:], string(runes[from:to]))...)
		}
	}
	m, err := res[0].FindRunesMatch(runes)
	for ; m != nil && err == nil; m, err = res[0].FindNextMatch(m) {
		cut(done, m.RuneIndex)
		done = m.RuneIndex + m.RuneLength
		cut(m.RuneIndex, done)
	}
	if err != nil {
		t.Fatal(err)
	}
	cut(done, len(runes))
	return pieces
}

func compile(t testing.TB, patterns ...string) []*regexp2.Regexp {
	res := make([]*regexp2.Regexp, len(patterns))
	for i, p := range patterns {
		re, err := regexp2.Compile(p, regexp2.None)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		res[i] = re
	}
	return res
}

// compare compares the pieces of the generated texts, and of every single
// character in a few surroundings.
func compare(t *testing.T, split func(string) []string, res []*regexp2.Regexp) {
	bad := 0
	check := func(text string) {
		if got, want := split(text), oracle(t, res, text); !slices.Equal(got, want) && bad < 10 {
			bad++
			t.Errorf("%+q:\n got %+q\nwant %+q", text, got, want)
		}
	}
	for _, text := range texts(1, 2000, nil, false) {
		check(text)
	}
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if utf8.ValidRune(r) && (r < 0x3400 || r > 0xa000 && r < 0xac00 || r > 0xd7a0 && r < 0x20000 && r%5 == 0 || r%997 == 0) {
			s := string(r)
			check(s + s + " " + s + "a" + s + " 1" + s + "\t" + s + "\n")
		}
	}
}

func TestSplitters(t *testing.T) {
	for pattern, split := range tokenizer.Patterns {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			stages := []func(string) int{split}
			compare(t, func(s string) (pieces []string) {
				for len(s) > 0 {
					n := stages[0](s)
					pieces, s = append(pieces, s[:n]), s[n:]
				}
				return pieces
			}, compile(t, pattern))
		})
	}
	for name, stages := range tokenizer.Stages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, func(s string) []string { return tokenizer.Pieces(stages, s) }, compile(t, tokenizer.StageREs[name]...))
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

// TestSplittersLinear cuts megabytes of one thing, for which a backtracking engine
// needs quadratic time: hours.
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

package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTokens: <NAME> is a control token or a user-defined one, <[ID]> any token, !<...> all but it; in GBNF and in
// Lark.
func TestTokens(t *testing.T) {
	names := []string{"a", "b", "ab", "<think>", "<tool>", "c", "<end>"} // <think> is a control token, <tool> is user-defined, <end> ends a text
	v := NewVocabulary(len(names), func(id int) []byte {
		switch names[id] {
		case "<think>":
			return Special("<think>")
		case "<end>":
			return nil
		}
		return []byte(names[id])
	}, func(name string) (int, bool) { i := slices.Index(names, name); return i, i >= 0 }, []int{6})
	for _, x := range []struct{ body, texts string }{ // ids of texts that fit, by blanks
		{`<think> "a"`, "3,0"},
		{`<tool> "a"`, "4,0"},
		{`"a" <[1]> "c"?`, "0,1 0,1,5"},
		{`<[3]> <[4]>`, "3,4"},
		{`"ab" | <[0]> <[2]>`, "2 0,1 0,2"},
		{`!<tool> "c"`, "0,5 1,5 2,5 3,5 5,5"},
		{`!<[0]> !<think>`, strings.Join(pairs([]int{1, 2, 3, 4, 5}, []int{0, 1, 2, 4, 5}), " ")},
		{`"<tool>"`, "4"},
		{`(<think> | "a")* <end>`, "6 0,6 3,6 0,3,6 3,0,6 0,0,6 3,3,6"},
	} {
		for _, source := range []Form{{GBNF: "root ::= " + x.body}, {Lark: "start: " + x.body}} {
			g, err := source.Compile(t.Context(), nil)
			if err != nil {
				t.Errorf("%+v: %v", source, err)
				continue
			}
			var got []string
			var walk func(path []int)
			walk = func(path []int) {
				m := matched(t, g, v)
				for _, id := range path {
					mask, err := m.Mask()
					if err != nil || !mask.Has(id) {
						t.Errorf("%+v: %v is not in the mask of %v, %v", source, id, path, err)
					}
					if err := m.Accept(id); err != nil {
						return
					}
				}
				if m.Complete() && !m.ended || m.ended && !slices.Contains(got, fmt.Sprint(path)) {
					got = append(got, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(path)), ","), "[]"))
				}
				mask, err := m.Mask()
				if err != nil || len(path) == 3 {
					return
				}
				for id := range names {
					if mask.Has(id) && !(m.Complete() && id == 6) {
						walk(append(slices.Clone(path), id))
					}
				}
			}
			walk(nil)
			want := strings.Fields(x.texts)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %v fit, want %v", source, got, want)
			}
		}
	}
	for body, why := range map[string]string{
		`"a" <|nope|> "a"`:          "root: the vocabulary has no special token <|nope|>",
		`<[7]>`:                     "root: the vocabulary has no token of the id in <[7]>, its ids are 0 to 6",
		`!<[99999999999999999999]>`: "root: the vocabulary has no token of the id in !<[99999999999999999999]>, its ids are 0 to 6",
		`!<x>`:                      "root: the vocabulary has no special token <x>",
	} {
		for name, f := range map[string]Form{"root": {GBNF: "root ::= " + body}, "start": {Lark: "start: " + body}} {
			g, err := f.Compile(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = g.Match(t.Context(), v)
			if want := strings.Replace(why, "root", name, 1); !errors.Is(err, ErrGrammar) || err.Error() != want {
				t.Errorf("%s: %v, want %s", body, err, want)
			}
		}
	}
	if _, err := JSONSchema([]byte(`{"type":"string","lark":"start: <think>"}`)); err == nil || !strings.Contains(err.Error(), "no special tokens") {
		t.Errorf("%v", err)
	}
}

func pairs(a, b []int) (all []string) {
	for _, x := range a {
		for _, y := range b {
			all = append(all, fmt.Sprintf("%d,%d", x, y))
		}
	}
	return all
}

package main

import (
	"regexp"
	"strings"
	"testing"
)

func showMarkdown(text string, columns, piece int, color bool) (shown string) {
	m := markdown{color: color, width: func() int { return columns }}
	for r := []rune(text); len(r) > 0; {
		n := min(piece, len(r))
		shown += m.write(string(r[:n]))
		r = r[n:]
	}
	return shown + m.end()
}

// TestMarkdown turns marks into styles and leaves all other characters.
func TestMarkdown(t *testing.T) {
	for _, x := range []struct{ text, shown string }{
		{"plain text", "plain text"},
		{"a **bold** word", "a B(bold) word"},
		{"*it* and _it_, snake_case_name, 2 * 3 * 4, a*b", "I(it) and I(it), snake_case_name, 2 * 3 * 4, a*b"},
		{"***both***", "BI(both)"},
		{"**a *b* c**", "B(a) BI(b) B(c)"},
		{"`x*y*` and ``a`b``", "C(x*y*) and C(a`b)"},
		{"an **open mark", "an **open mark"},
		{"`open\n", "`open\n"},
		{`\*no\* \_`, "*no* _"},
		{"C:\\dir", "C:\\dir"},
		{"# Title *x*\ntext", "B(Title) BI(x)\ntext"},
		{"#hashtag", "#hashtag"},
		{"- one\n  - two\n1. three", "• one\n  • two\n1. three"},
		{"- **b**: c", "• B(b): c"},
		{"* ä", "• ä"},
		{"-5 degrees\n- \n1", "-5 degrees\n-\n1"},
		{"```go\nx := *p // **not** bold\n```\nafter *i*", "D(```go)\nC(x := *p // **not** bold)\nD(```)\nafter I(i)"},
		{"````\n```\n````\nx", "D(````)\nC(```)\nD(````)\nx"},
		{"> said **b**", "D(│ )said B(b)"},
		{"---\n***", "D(" + strings.Repeat("─", 40) + ")\nD(" + strings.Repeat("─", 40) + ")"},
		{"| a | **b** |\n|---|---|", "| a | **b** |\n|---|---|"},
		{"a [link](http://x_y_z)", "a [link](http://x_y_z)"},
		{"  indented", "  indented"},
		{"\n\nx\n\n", "\n\nx\n\n"},
		{"2024 was a year. 7", "2024 was a year. 7"},
	} {
		named := strings.NewReplacer(bold+italic, "BI(", italic, "I(", bold, "B(", dim, "D(", cyan, "C(", normal, ")")
		for _, piece := range []int{1, 2, 3, 1000} {
			if got := strings.ReplaceAll(named.Replace(showMarkdown(x.text, 78, piece, true)), ")C(", ""); got != x.shown {
				t.Errorf("%q in pieces of %d: %q, want %q", x.text, piece, got, x.shown)
			}
		}
		if got := showMarkdown(x.text, 1000, 1, false); strings.TrimRight(got, " ") != strings.TrimRight(x.text, " ") && !strings.HasPrefix(x.text, "-5") {
			t.Errorf("%q without color: %q", x.text, got)
		}
	}
}

// TestMarkdownWrap: lines keep to the width, are cut between words, and lose nothing, however the text comes.
func TestMarkdownWrap(t *testing.T) {
	text := "The *quick* brown fox **jumps over the lazy dog** and runs away from `it as fast` as it can.\n" +
		"- An item with a long text that needs several lines of its own to be shown\n" +
		"> A quotation that is long enough to be wrapped, too, as the item before it was\n" +
		"日本語の文章は単語の間に空白がないので、どこでも改行できます。そして続きます。\n" +
		"An_address_without_any_space_that_is_longer_than_a_line_of_this_terminal_can_be e\u0301nd 👍🏽 x\n"
	codes := regexp.MustCompile("\x1b\\[[0-9]+m")
	squeeze := strings.NewReplacer(" ", "", "\n", "", "•", "-", "│", ">", "*", "", "`", "")
	for _, columns := range []int{79, 59, 39, 20} {
		whole := showMarkdown(text, columns, 10000, true)
		for _, piece := range []int{1, 3, 7} {
			if got := showMarkdown(text, columns, piece, true); got != whole {
				t.Errorf("%d columns, pieces of %d:\n%q, want\n%q", columns, piece, got, whole)
			}
		}
		plain := codes.ReplaceAllString(whole, "")
		for line := range strings.Lines(plain) {
			if n := textWidth(strings.TrimRight(line, "\n")); n > columns {
				t.Errorf("%d columns: a line of %d: %q", columns, n, line)
			}
		}
		if strings.ReplaceAll(squeeze.Replace(plain), ">", "") != strings.ReplaceAll(squeeze.Replace(text), ">", "") {
			t.Errorf("%d columns: lost text:\n%s", columns, plain)
		}
		if columns < 79 && !strings.Contains(plain, "\n  ") {
			t.Errorf("%d columns: an item's continuation has no indent:\n%s", columns, plain)
		}
	}
}

// TestReasoningFolds: reasoning is a few dim rows, which a line about it replaces when the answer begins.
func TestReasoningFolds(t *testing.T) {
	for _, x := range []struct {
		hide bool
		want string
	}{{false, "I wonder"}, {true, "thinking ..."}} {
		var out strings.Builder
		s := newRichScreen(&out, func() (int, int) { return 40, 24 }, true, x.hide)
		for _, word := range strings.SplitAfter("I wonder what the answer to this is. \n\n"+strings.Repeat("Hm, 日本語. ", 60), " ") {
			if err := s.think(word); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(out.String(), dim+x.want) {
			t.Errorf("hide %v: %q", x.hide, out.String()[:80])
		}
		_, most := terminalRows(out.String(), 40)
		if most > maxThought || x.hide && most != 1 {
			t.Errorf("hide %v: %d rows", x.hide, most)
		}
		if err := s.text("The **answer**."); err != nil {
			t.Fatal(err)
		}
		if err := s.end(); err != nil {
			t.Fatal(err)
		}
		rows, _ := terminalRows(out.String(), 40)
		if len(rows) != 4 || !strings.HasPrefix(rows[0], "(thought for ") || rows[1] != "" || rows[2] != "The answer." {
			t.Errorf("hide %v: %q", x.hide, rows)
		}
	}
}

// terminalRows returns what a terminal shows of an output, and the maximum number of rows it had.
func terminalRows(out string, columns int) (rows []string, most int) {
	screen, y, x := [][]rune{{}}, 0, 0
	for i := 0; i < len(out); {
		if m := regexp.MustCompile("^\x1b\\[([0-9]*)([mAJK])").FindStringSubmatch(out[i:]); m != nil {
			i += len(m[0])
			switch m[2] {
			case "A":
				y -= int(m[1][0] - '0')
			case "J":
				screen = screen[:y+1]
				screen[y] = screen[y][:x]
			}
			continue
		}
		r := []rune(out[i:min(len(out), i+4)])[0]
		i += len(string(r))
		switch r {
		case '\r':
			x = 0
		case '\n':
			y, x = y+1, 0
		default:
			if x+runeWidth(r) > columns {
				y, x = y+1, 0
			}
			for len(screen) <= y {
				screen = append(screen, nil)
			}
			screen[y] = append(screen[y][:min(x, len(screen[y]))], r)
			x += runeWidth(r)
		}
		for len(screen) <= y {
			screen = append(screen, nil)
		}
		most = max(most, len(screen))
	}
	for _, row := range screen {
		rows = append(rows, string(row))
	}
	return rows, most
}

package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/lab/diagnose"
)

// Terminal is how text is laid out.
type Terminal struct {
	Width int  // lines are broken at so many characters; 0: they are not
	Color bool // with escape sequences for colors
}

// Text writes a diagnosis for a terminal: the verdict on the first line, the
// findings, whether they explain the logits, what was inferred and what could not
// be seen.
func Text(w io.Writer, d *diagnose.Diagnosis, t Terminal) error {
	p := printer{Terminal: t}
	style := red
	if Passed(d) {
		style = green
	}
	p.para("", "", p.styled(bold+style, name(string(d.Verdict)))+": "+headline(d))
	for _, s := range sentences(d.Errors) {
		p.para("", "", p.styled(bold+red, "error")+": "+s)
	}
	for i := range d.Findings {
		if i == maxList {
			p.b.WriteByte('\n')
			p.para("", "", others(len(d.Findings), "finding"))
			break
		}
		p.finding(d, i)
	}
	p.section("Equations", []string{equations(d)})
	p.section("Closure", []string{closure(d)})
	p.section("Inferred, since the dump does not tell", sentences(d.Inferred))
	p.section("Seen", seen(d))
	p.section("Not to be seen with these taps and prompts", sentences(d.Coverage.Blind))
	_, err := io.WriteString(w, p.b.String())
	return err
}

// Escape sequences, as parameters of SGR.
const (
	bold  = "1;"
	dim   = "2"
	red   = "31"
	green = "32"
)

// printer lays text out.
type printer struct {
	Terminal
	b strings.Builder
}

// styled puts s between escape sequences if the terminal has colors.
func (p *printer) styled(style, s string) string {
	if !p.Color {
		return s
	}
	return "\x1b[" + strings.TrimSuffix(style, ";") + "m" + s + "\x1b[0m"
}

// finding writes the i-th finding.
func (p *printer) finding(d *diagnose.Diagnosis, i int) {
	f := &d.Findings[i]
	style := red
	if rounding(*f) {
		style = green
	}
	fmt.Fprintf(&p.b, "\n%2d  %s\n", i+1, p.styled(bold+style, name(f.Cause)))
	for _, l := range facts(d, f) {
		label := fmt.Sprintf("    %-11s", l.Label)
		p.para(p.styled(dim, label), strings.Repeat(" ", len(label)), l.Text)
	}
}

// section writes a heading and the lines under it, nothing if there are no lines.
func (p *printer) section(heading string, list []string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(&p.b, "\n%s\n", p.styled("1", heading))
	for _, s := range list {
		first := "    "
		if len(list) > 1 {
			first = "  - "
		}
		p.para(first, "    ", s)
	}
}

// para writes text after first, broken at words into lines that begin with hang.
func (p *printer) para(first, hang, text string) {
	p.b.WriteString(first)
	column := utf8.RuneCountInString(hang)
	for i, word := range strings.Fields(text) {
		n := width(word)
		switch {
		case i == 0:
		case p.Width > 0 && column+1+n > p.Width:
			p.b.WriteString("\n" + hang)
			column = utf8.RuneCountInString(hang)
		default:
			p.b.WriteByte(' ')
			column++
		}
		p.b.WriteString(word)
		column += n
	}
	p.b.WriteByte('\n')
}

// width returns the number of visible characters of a word: escape sequences are invisible.
func width(word string) int {
	for {
		from := strings.IndexByte(word, '\x1b')
		if from < 0 {
			return utf8.RuneCountInString(word)
		}
		to := strings.IndexByte(word[from:], 'm')
		if to < 0 {
			return utf8.RuneCountInString(word[:from])
		}
		word = word[:from] + word[from+to+1:]
	}
}

package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/karat-run/karat/internal/lab/diagnose"
)

// Markdown writes a diagnosis as a page of GitHub's Markdown.
func Markdown(w io.Writer, d *diagnose.Diagnosis) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n\n", mark(name(string(d.Verdict))), mark(headline(d)))
	fmt.Fprintf(&b, "Model %s, dump %s.\n\n%s\n", mark(base(d.Model)), mark(base(d.Dump)), mark(meaning(d.Verdict)))
	if len(d.Findings) > 0 {
		b.WriteString("\n## Findings\n")
	}
	for i := range d.Findings[:min(len(d.Findings), maxList)] {
		f := &d.Findings[i]
		fmt.Fprintf(&b, "\n### %d. %s\n\n", i+1, mark(name(f.Cause)))
		for _, l := range facts(d, f) {
			fmt.Fprintf(&b, "- **%s**: %s\n", l.label, mark(l.text))
		}
	}
	if over := len(d.Findings) - maxList; over > 0 {
		fmt.Fprintf(&b, "\nand %s.\n", count(over, "more finding"))
	}
	markSection(&b, "Equations", equations(d))
	markSection(&b, "Closure", closure(d))
	markLogits(&b, d)
	markSection(&b, "Inferred, since the dump does not tell", sentences(d.Inferred)...)
	markSection(&b, "Seen", seen(d)...)
	markSection(&b, "Not to be seen with these taps and prompts", sentences(d.Coverage.Blind)...)
	if s := hashes(d); s != "" {
		fmt.Fprintf(&b, "\n%s\n", mark(s))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markSection writes a heading and its sentences: one as a paragraph, several as a list.
func markSection(b *strings.Builder, heading string, list ...string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", heading)
	for _, s := range list {
		if len(list) > 1 {
			b.WriteString("- ")
		}
		b.WriteString(mark(s) + "\n")
	}
}

// markLogits writes a table of the worst prompts' logits.
func markLogits(b *strings.Builder, d *diagnose.Diagnosis) {
	if len(d.Logits) == 0 {
		return
	}
	b.WriteString("\n| prompt | KL before | KL after | top 1 | top 10 | text |\n|---:|---:|---:|---:|---:|---|\n")
	for _, l := range prompts(d, maxList) {
		fmt.Fprintf(b, "| %d | %s | %s | %s | %s | %s |\n", l.Prompt, number(l.KLBefore), number(l.KLAfter),
			percent(l.Top1), percent(l.Top10), mark(clip(l.Text, 40)))
	}
	if over := len(d.Logits) - maxList; over > 0 {
		fmt.Fprintf(b, "\nand %s, less far away.\n", count(over, "more prompt"))
	}
}

// mark escapes what Markdown and its HTML would obey in a line of text. Addresses and
// names of users are no links.
func mark(s string) string {
	var b strings.Builder
	before := ' '
	for i, r := range s {
		switch {
		case strings.ContainsRune("\\`*[]#|~!$", r), r == '_' && !unicode.IsLetter(before) && !unicode.IsDigit(before), i == 0 && (r == '-' || r == '+'):
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '&':
			b.WriteString("&amp;")
		case r == '@':
			b.WriteString("@\u200b")
		default:
			b.WriteRune(r)
		}
		before = r
	}
	return strings.ReplaceAll(b.String(), "://", ":\u200b//")
}

package check

import (
	"slices"
	"strings"
	"unicode"
)

// prose shows the text that a template brings along: in the prompts of probes, or in its source for a case that no
// probe made. That is a note, but for text between turns; in a template that is almost a publisher's, and where the
// conversation has a system message of its own, it is a warning.
func (j *inspection) prose(k *known) {
	p := prosecutor{j, k, k.nearest(j.source), map[string]bool{}}
	if r, err := j.render(conversation(3, j.system)...); err == nil {
		before, between, after := r.parts(r.find(name(0)) + 1)
		p.tell(between, Warning, "between turns")
		p.tell(after, p.severity(), "where an answer begins")
		p.tell(before, p.severity(), "before the conversation")
	}
	if r, err := j.withTools(j.system, "Jomrix."); err == nil {
		if i := r.find("Jomrix."); i >= 0 {
			p.tell(r.literals[i]+"\n"+r.literals[i+1], p.severity(), "beside a tool's answer")
		}
	}
	if r, err := j.render(conversation(3, false)...); err == nil && j.system {
		p.tell(r.own(), p.severity(), "where there is no system message")
	}
	p.tell(strings.Join(literals(j.source), "\n"), Note, "for other cases")
}

// find returns the index of the part of the conversation that holds a word; -1 for none.
func (r *rendering) find(word string) int {
	return slices.IndexFunc(r.said, func(s string) bool { return strings.Contains(s, word) })
}

// parts returns the template's texts before the one at from, from there on, and at the end.
func (r *rendering) parts(from int) (before, between, after string) {
	n := len(r.literals)
	from = min(max(from, 0), n-1)
	return strings.Join(r.literals[:from], "\n"), strings.Join(r.literals[from:n-1], "\n"), r.literals[n-1]
}

// prosecutor tells of each sentence once.
type prosecutor struct {
	*inspection
	known *known
	near  string // the publisher's template that this one was made from
	seen  map[string]bool
}

func (p *prosecutor) severity() Severity {
	if p.near != "" {
		return Warning
	}
	return Note
}

// tell tells of the sentences of a text that no publisher has written. Each fine-tune says otherwise who the model is,
// and may; but a publisher's own sentence must not go on otherwise.
func (p *prosecutor) tell(text string, severity Severity, where string) {
	var lines []string
	worst := Note
	for _, line := range sentences(text) {
		words := proseOf(line)
		key := strings.Join(words, " ")
		if p.seen[key] || p.known.says(key) {
			continue
		}
		p.seen[key] = true
		lines = append(lines, shown(strings.TrimSpace(pattern(markers).ReplaceAllString(line, " "))))
		identity := where == "where there is no system message" && len(words) > 2 && strings.HasPrefix(key, "you are ")
		if p.near != "" && p.grown(words) || severity == Warning && !identity {
			worst = Warning
		}
	}
	if len(lines) == 0 {
		return
	}
	like := ""
	if p.near != "" {
		like = " that " + p.near + "'s, which it resembles, does not have"
	}
	p.fault("template-text", worst, "the chat template has text of its own%s, %s: %s", like, where, list(lines))
}

// grown reports whether words begin or end with a publisher's sentence of some length.
func (p *prosecutor) grown(words []string) bool {
	for n := 6; n < min(len(words), 200); n++ {
		if p.known.says(strings.Join(words[:n], " ")) || p.known.says(strings.Join(words[len(words)-n:], " ")) {
			return true
		}
	}
	return false
}

// notProse are markers, and names as programs have them.
const notProse = `<[^<>\s]{1,60}>|\[/?[A-Z_]{2,30}\]|[\pL\pN]*_[\pL\pN_]*`

const markers = `<[|｜][^<>\s]{1,60}>|<[^<>\s]{1,60}[|｜]>|</?s>`

// oneWord is a word, or a sign of a script that puts no spaces between words.
const oneWord = `[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]|[\pL\pM]+`

// wordsOf returns the words of a text in lower case; numbers and markers are none.
func wordsOf(text string) []string {
	return pattern(oneWord).FindAllString(strings.ToLower(pattern(notProse).ReplaceAllString(text, " ")), -1)
}

// proseOf returns the words of a line that name no role.
func proseOf(line string) []string {
	return slices.DeleteFunc(wordsOf(line), func(w string) bool { return slices.Contains(roles, w) })
}

// fewWords is how many words a line of prose has at least.
const fewWords = 2

// sentences returns the lines of a text that are prose: of some words that people say, not names of roles and keys.
func sentences(text string) (lines []string) {
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == 0 }) {
		n, letters := 0, 0
		for _, w := range proseOf(line) {
			if len(w) > 1 {
				n++
				letters += len(w)
			}
		}
		if n >= fewWords && letters >= 8 {
			lines = append(lines, line)
		}
	}
	return lines
}

// literals returns the texts of a template's source: what stands outside of tags, and the strings inside. Strings that
// are added are one.
func literals(source string) (texts []string) {
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			texts = append(texts, text.String())
			text.Reset()
		}
	}
	for i := 0; i < len(source); {
		open := strings.IndexByte(source[i:], '{')
		if open < 0 || i+open+1 >= len(source) {
			text.WriteString(source[i:])
			break
		}
		text.WriteString(source[i : i+open])
		i += open
		end := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[source[i+1]]
		if end == "" {
			text.WriteByte('{')
			i++
			continue
		}
		flush()
		if i += 2; end == "#}" {
			if n := strings.Index(source[i:], end); n >= 0 {
				i += n + 2
				continue
			}
			return texts
		}
		i = tag(source, i, end, &text, flush)
		flush()
	}
	flush()
	return texts
}

// tag takes the strings of a tag, from i to its end, and tells where that is.
func tag(source string, i int, end string, text *strings.Builder, flush func()) int {
	for i < len(source) {
		switch c := source[i]; {
		case strings.HasPrefix(source[i:], end):
			return i + 2
		case c == '\'' || c == '"':
			from := i + 1
			for i++; i < len(source) && source[i] != c; i++ {
				if source[i] == '\\' {
					i++
				}
			}
			text.WriteString(unescaped.Replace(source[from:min(i, len(source))]))
			i++
		case c == '+' || c == '~' || unicode.IsSpace(rune(c)):
			i++
		default:
			flush()
			i++
		}
	}
	return i
}

var unescaped = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\'`, "'", `\"`, `"`, `\\`, `\`)

package check

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// judgeProse reports the text that a template brings along: in the prompts of probes, or in its source for a case that
// no probe made. Such text is a note, except between turns; it is a warning in a template that is almost a publisher's,
// and where the conversation has a system message.
func (j *inspection) judgeProse() {
	j.near, j.seen = j.known.nearest(j.source), map[string]bool{}
	usual := Note
	if j.near != "" {
		usual = Warning
	}
	if r, err := j.render(conversation(3, j.system)...); err == nil {
		n := len(r.literals)
		from := min(r.find(name(0))+1, n-1)
		j.tell(strings.Join(r.literals[from:n-1], "\n"), Warning, "between turns")
		j.tell(r.literals[n-1], usual, "where an answer begins")
		j.tell(strings.Join(r.literals[:from], "\n"), usual, "before the conversation")
	}
	if r, err := j.withTools(j.system, "Jomrix."); err == nil {
		if i := r.find("Jomrix."); i >= 0 {
			j.tell(r.literals[i]+"\n"+r.literals[i+1], usual, "beside a tool's answer")
		}
	}
	if r, err := j.render(conversation(3, false)...); err == nil && j.system {
		j.tell(r.own(), usual, noSystem)
	}
	j.tell(strings.Join(literals(j.source), "\n"), Note, "for other cases")
}

const noSystem = "where there is no system message"

// find returns the index of the part of the conversation with a word; -1 for none.
func (r *rendering) find(word string) int {
	return slices.IndexFunc(r.said, func(s string) bool { return strings.Contains(s, word) })
}

// tell reports the sentences of a text that no publisher has written, each once. A fine-tune may introduce the model in
// its own words; but a publisher's own sentence must not continue differently.
func (j *inspection) tell(text string, severity Severity, where string) {
	var lines []string
	worst, like := Note, ""
	if j.near != "" {
		like = " that " + j.near + "'s, which it resembles, does not have"
	}
	for _, line := range sentences(text) {
		words := proseOf(line)
		key := strings.Join(words, " ")
		if j.seen[key] || j.known.says(key) {
			continue
		}
		j.seen[key] = true
		lines = append(lines, quoteShort(strings.TrimSpace(pattern(markers).ReplaceAllString(line, " "))))
		identity := where == noSystem && len(words) > 2 && strings.HasPrefix(key, "you are ")
		if j.near != "" && j.known.begins(words) || severity == Warning && !identity {
			worst = Warning
		}
	}
	if len(lines) > 0 {
		j.fault("template-text", worst, "the chat template has text of its own%s, %s: %s", like, where, list(lines))
	}
}

// begins reports whether words begin or end with a publisher's sentence of some length.
func (k *templateIndex) begins(words []string) bool {
	for n := 6; n < min(len(words), 200); n++ {
		if k.says(strings.Join(words[:n], " ")) || k.says(strings.Join(words[len(words)-n:], " ")) {
			return true
		}
	}
	return false
}

// notProse matches markers, and names in programs' style.
const notProse = `<[^<>\s]{1,60}>|\[/?[A-Z_]{2,30}\]|[\pL\pN]*_[\pL\pN_]*`

const markers = `<[|｜][^<>\s]{1,60}>|<[^<>\s]{1,60}[|｜]>|</?s>`

// oneWord matches a word, or a sign of a script that puts no spaces between words.
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

// sentences returns the lines of a text that are prose: several words that people say, not names of roles and keys.
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

// literals returns the texts of a template's source: the text outside of tags, and the strings inside. Strings that are
// added are joined.
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

// tag takes the strings of a tag, from i to its end, and returns the end.
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

// templateIndex holds the chat templates of publishers, as the data needed to recognize a template, an almost equal
// template, or a template's sentences.
type templateIndex struct {
	templates []knownTemplate
	lines     map[uint32]bool
}

type knownTemplate struct {
	name   string
	hash   string   // of the source, the first 16 hexadecimal digits
	sample []uint32 // the smallest hashes of its runs of signs
	lines  []uint32 // hashes of its sentences
}

//go:embed known.txt
var knownText []byte

// knownTemplates keeps the result of publishers. It needs no code at a program's start, so programs without checks go
// without known.txt.
var knownTemplates struct {
	once sync.Once
	all  *templateIndex
}

// publishers returns the templates in known.txt, which TestKnown writes.
func publishers() *templateIndex {
	knownTemplates.once.Do(func() { knownTemplates.all = readKnown(knownText, "") })
	return knownTemplates.all
}

// readKnown reads known.txt, except the template with a name.
func readKnown(text []byte, without string) *templateIndex {
	k := &templateIndex{lines: map[uint32]bool{}}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text() + " -")
		if len(f) < 4 || f[0] == without || f[0] == "#" {
			continue
		}
		t := knownTemplate{name: f[0], hash: f[1], sample: unpack(f[2]), lines: unpack(f[3])}
		k.templates = append(k.templates, t)
		for _, h := range t.lines {
			k.lines[h] = true
		}
	}
	return k
}

// hash24 returns a hash of 24 bits: a false match among a template's thousands is rare, and 24 matches at once are no
// chance.
func hash24(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	x := h.Sum32()
	return (x ^ x>>24*0x9e37) & 0xffffff
}

func unpack(s string) (hashes []uint32) {
	b, _ := base64.RawStdEncoding.DecodeString(s)
	for ; len(b) >= 3; b = b[3:] {
		hashes = append(hashes, uint32(b[0])<<16|uint32(b[1])<<8|uint32(b[2]))
	}
	return hashes
}

func sourceHash(source string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(strings.ReplaceAll(source, "\r\n", "\n"))))
	return hex.EncodeToString(sum[:8])
}

const (
	runLength  = 5 // signs
	sampleSize = 24
	// almost is the share of a template's sample still found in a template made from it: known templates of a family
	// share less.
	almost = 0.8
)

const sign = `[\pL\pN_]+|[^\pL\pN_\s]`

// shingles returns the hashes of all short runs of signs of a source.
func shingles(source string) map[uint32]bool {
	signs := pattern(sign).FindAllString(source, -1)
	set := map[uint32]bool{}
	for i := range len(signs) - runLength + 1 {
		set[hash24(strings.Join(signs[i:i+runLength], " "))] = true
	}
	return set
}

// isKnown reports whether a template is known.
func (k *templateIndex) isKnown(source string) bool {
	h := sourceHash(source)
	return slices.ContainsFunc(k.templates, func(t knownTemplate) bool { return t.hash == h })
}

// says reports whether a template of a publisher has a sentence.
func (k *templateIndex) says(words string) bool { return k.lines[hash24(words)] }

// nearest returns the name of the template that a source was made from; "" if there is none.
func (k *templateIndex) nearest(source string) (name string) {
	have, most := shingles(source), almost
	for _, t := range k.templates {
		n := 0
		for _, h := range t.sample {
			if have[h] {
				n++
			}
		}
		if share := float64(n) / float64(max(len(t.sample), sampleSize/2)); share >= most {
			name, most = t.name, share
		}
	}
	return name
}

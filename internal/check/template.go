package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// templateFault is a chat template's fault: an ID of the catalogue, a severity, and a sentence.
type templateFault struct {
	id       string
	severity Severity
	what     string
}

// inspection is the judgement of a template under way.
type inspection struct {
	*prober
	source string
	known  *templateIndex
	system bool // the template takes a system message
	faults []templateFault
	near   string          // publisher's template from which this template was made
	seen   map[string]bool // own sentences already reported
}

// judgeTemplate reports effects of a template beside writing the conversation down: invisible characters, text that
// depends on the messages, on the length of the conversation or on the day, changed messages, and text of its own.
// Templates of publishers are known, and only run. The result needs is the template's input beside messages. The error
// is about a template that does not run.
func judgeTemplate(ctx context.Context, source, bos, eos string, k *templateIndex) (faults []templateFault,
	needs string,
	err error) {
	p, err := newProber(ctx, source, bos, eos)
	if err != nil {
		return nil, "", err
	}
	j := &inspection{prober: p, source: source, known: k}
	j.system, err = p.settle()
	if err == nil && k.isKnown(source) {
		return nil, p.needs(), nil
	}
	j.findHidden(source, "holds")
	if err == nil {
		err = j.judge()
	}
	return j.faults, p.needs(), err
}

// judge holds the conversations. The error is the context's.
func (j *inspection) judge() (err error) {
	j.checkContents()
	for _, judge := range []func() error{j.sayWords, j.texts, j.growTurns, j.changeDays} {
		if err = judge(); err != nil || len(j.faults) > 0 {
			break
		}
	}
	if !slices.ContainsFunc(j.faults, func(f templateFault) bool {
		return f.id != "template-hidden" && f.severity != Note
	}) {
		j.judgeProse()
	}
	if j.ctx.Context.Err() == nil && j.ctx.left < 0 {
		j.warn("template-branches",
			"some short conversations take more than those of any template that is known: not all was looked at")
		err = nil
	}
	return err
}

// warn adds a warning.
func (j *inspection) warn(id, format string, args ...any) { j.fault(id, Warning, format, args...) }

func (j *inspection) fault(id string, s Severity, format string, args ...any) {
	f := templateFault{id, s, fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(j.faults, func(old templateFault) bool {
		return old == f || old.id == id && old.severity == s && s != Note
	}) {
		j.faults = append(j.faults, f)
	}
}

// escapes matches characters by their numbers in a template's strings.
const escapes = `\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-3]?[0-7]{1,2})`

// findHidden finds characters that are invisible, or that change the look of others.
func (j *inspection) findHidden(text, verb string) {
	for _, e := range pattern(escapes).FindAllString(text, -1) {
		base, digits := 16, e[2:]
		if e[1] != 'x' && e[1] != 'u' && e[1] != 'U' {
			base, digits = 8, e[1:]
		}
		if n, err := strconv.ParseInt(digits, base, 32); err == nil && unseen(rune(n)) {
			text = string(rune(n))
			break
		}
	}
	if i := strings.IndexFunc(text, unseen); i >= 0 {
		r := []rune(text[i:])[0]
		j.warn("template-hidden", "the chat template %s %U, %s", verb, r, unseenAs(r))
	}
}

// unseen reports whether a character has no glyph and is no white space of ordinary text, or is taken for an order by
// terminals.
func unseen(r rune) bool {
	return r < ' ' && !strings.ContainsRune("\t\n\r", r) || r >= 0x7f && r < 0xa0 || unicode.Is(unicode.Cf, r) ||
		r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef || r == 0x115f || r == 0x1160 || r == 0x3164 ||
		r == 0xffa0 || r == 0x2800
}

func unseenAs(r rune) string {
	switch {
	case r == 0x1b || r >= 0x7f && r < 0xa0:
		return "which terminals obey"
	case r < ' ':
		return "a control character"
	case unicode.Is(unicode.Bidi_Control, r):
		return "which changes the order in which text is shown"
	}
	return "which nobody sees"
}

// checkContents wants each message in the prompt, once, in order, and in its role.
func (j *inspection) checkContents() {
	turns := conversation(3, j.system)
	r, err := j.render(turns...)
	if err != nil {
		return
	}
	j.findHidden(strings.Join(r.literals, ""), "writes")
	last := -1
	for _, t := range turns {
		at, n := -1, 0
		for i, s := range r.said {
			if c := strings.Count(s, t.text); c > 0 {
				at, n = i, n+c
			}
		}
		switch {
		case n == 0:
			j.warn("template-content", "the prompt does not hold what the %s says", t.role)
			return
		case t.role == "system":
			continue
		case n > 1:
			j.warn("template-content", "the prompt holds what the %s says %d times", t.role, n)
		case at < last:
			j.warn("template-content", "the prompt has messages in another order")
		}
		last = at
		if role := lastRole(r.literals[at]); role != "" && role != t.role {
			j.warn("template-content", "the prompt calls what the %s says the %s's", t.role, role)
		}
	}
	if role := lastRole(r.literals[len(r.literals)-1]); role == "user" {
		j.warn("template-content", "the prompt ends with the beginning of a user's turn, not of an answer")
	}
}

const roleWords = `(?i)/?[a-z]+`

// lastRole returns the role of the last word of a text that is a role, whose turn follows; "" if there is none.
func lastRole(text string) string {
	role := ""
	for _, w := range pattern(roleWords).FindAllString(text, -1) {
		switch strings.ToLower(w) {
		case "user", "human":
			role = "user"
		case "assistant", "model", "chatbot", "bot":
			role = "assistant"
		}
	}
	return role
}

// scene is a conversation with a message to be replaced by a text.
type scene struct {
	who    string
	render func(text string) (*rendering, error)
}

func (j *inspection) scenes() []scene {
	of := func(at int) func(text string) (*rendering, error) {
		return func(text string) (*rendering, error) {
			turns := conversation(3, j.system)
			turns[(at+len(turns))%len(turns)].text = text
			return j.render(turns...)
		}
	}
	list := []scene{{"a user", of(-1)}, {"a user", of(-5)}, {"an assistant", of(-2)}}
	if j.system {
		list = append(list, scene{"the system message", of(0)})
	}
	if _, err := j.withTools(j.system, "Qtoolx."); err == nil {
		list = append(list,
			scene{"a tool", func(text string) (*rendering, error) { return j.withTools(j.system, text) }})
	}
	return list
}

// sayWords says to the template each word that it compares a message with, however the word was put together: the text
// around the message must not depend on the word. A word can uncover others.
func (j *inspection) sayWords() error {
	for _, s := range j.scenes() {
		const probe = "Jomrix."
		plain, err := s.render(probe)
		if err != nil {
			continue
		}
		j.heard, j.wasHeard, j.watching = nil, map[string]bool{}, true
		for _, first := range []string{probe, "jomrix " + strings.Repeat("jomrix ", 60), "Jomrix"} {
			if _, err := s.render(first); err != nil {
				return j.budgetError()
			}
		}
		for i := 0; i < len(j.heard) && j.ctx.left >= 0; i++ {
			w := j.heard[i]
			if slices.Contains(roles, w) || strings.TrimSpace(w) == "" {
				continue
			}
			for _, said := range []string{probe + " " + w + " " + probe, w, w + " " + probe, probe + " " +
				w, backwards(w), w +
				w} {
				if j.isChanged(s, plain, probe, said, w) {
					j.watching = false
					return nil
				}
			}
		}
		if all := strings.Join(j.heard, " "); len(j.heard) > 1 && j.isChanged(s, plain, probe, all, all) {
			break
		}
		j.watching = false
	}
	j.watching = false
	return j.budgetError()
}

// budgetError returns the error of an exhausted budget, nil before.
func (j *inspection) budgetError() error {
	if j.ctx.left < 0 {
		return errProbes
	}
	return j.ctx.Context.Err()
}

func backwards(s string) string {
	r := []rune(s)
	slices.Reverse(r)
	return string(r)
}

// isChanged reports whether saying a text changes more of the prompt than the text, and reports the word responsible.
func (j *inspection) isChanged(s scene, plain *rendering, probe, said, word string) bool {
	r, err := s.render(said)
	if err != nil {
		return false
	}
	command := strings.HasPrefix(strings.TrimSpace(said), "/") || strings.Contains(said, " /")
	what := ""
	if plainWords(said) {
		if want := strings.ReplaceAll(plain.text(), probe, strings.TrimSpace(said)); r.text() != want &&
			r.text() != strings.ReplaceAll(plain.text(), probe, said) {
			if what = differingPart(want, r.text()); what == `""` {
				what = "less"
			}
		}
	} else if more := addedWords(plain.own(), r.own()); more != "" {
		what = quoteShort(more)
	}
	switch {
	case what == "":
		return false
	case command: // such as /no_think
		j.fault("template-text", Note, "the prompt is another one when %s says %s: %s", s.who, quoteShort(word), what)
		return false
	}
	j.warn("template-branches", "the prompt is another one when %s says %s: it has %s", s.who, quoteShort(word), what)
	return true
}

// addedWords returns the words of b, in order, that are rarer in a; markers are ignored.
func addedWords(a, b string) string {
	have := map[string]int{}
	for _, w := range wordsOf(a) {
		have[w]++
	}
	var more []string
	for _, w := range wordsOf(b) {
		if have[w]--; have[w] < 0 {
			more = append(more, w)
		}
	}
	return strings.Join(more, " ")
}

// texts says texts of all lengths and kinds.
func (j *inspection) texts() error {
	kinds := []string{"SHOUTED", "42", "1 + 1", "Why?", "Стой", "你好世界", "naïve café", "a@b.example",
		"https://example.com/a?b=c",
		"```go\nx := 1\n```", "first\nsecond", "1. one\n2. two", "👍", "{\"a\": 1}", "<b>x</b>", "Q",
		"A very ordinary sentence, with some words in it."}
	for n := 2; n < 20_000; n += 1 + n*2/3 {
		kinds = append(kinds, strings.Repeat("qzv ", n/4)+"qqqq"[:n%4+1])
	}
	for i, s := range j.scenes() {
		if i == 0 {
			for n := 1; n <= 64; n++ {
				kinds = append(kinds, strings.Repeat("q", n))
			}
		} else if i == 1 {
			kinds = kinds[:len(kinds)-64]
		}
		const probe = "Jomrix."
		plain, err := s.render(probe)
		for _, k := range kinds {
			if err == nil && j.ctx.left >= 0 && j.isChanged(s, plain, probe, k, k) {
				return nil
			}
		}
	}
	return j.budgetError()
}

// longest is the maximal number of users' turns tried; beyond the first everyTurns only some numbers are.
const (
	everyTurns = 24
	longest    = 128
)

// growTurns lets the conversation grow: between later turns a template must write the same text as between the first.
func (j *inspection) growTurns() error {
	for _, system := range slices.Compact([]bool{j.system, false}) {
		usual := map[string]bool{}
		for n := 1; n <= longest; n++ {
			if n > everyTurns && n%16 != 0 {
				n++
				if n < longest && n%16 != 0 {
					continue
				}
			}
			r, err := j.render(conversation(n, system)...)
			if err != nil {
				if n <= 2 {
					break // does without a system message, say
				}
				if err := j.budgetError(); err != nil {
					return err
				}
				j.warn("template-branches", "a conversation of %d turns fails: %s", 2*n-1, err.Error())
				return nil
			}
			for i, s := range r.literals {
				if n > 3 && !usual[s] {
					j.warn("template-branches",
						"the prompt has %s in a conversation of %d turns, and nowhere in shorter ones",
						quoteShort(s), 2*n-1)
					return nil
				}
				usual[s] = true
				if first := slices.Index(r.said, name(0)+"."); n > 4 && i > first+3 && i < len(r.literals)-4 &&
					s != r.literals[i-2] {
					j.warn("template-branches", "a conversation of %d turns has %s where other turns have %s", 2*n-1,
						quoteShort(s),
						quoteShort(r.literals[i-2]))
					return nil
				}
			}
		}
	}
	return j.budgetError()
}

// changeDays changes the day: nothing but the written date may depend on the day.
func (j *inspection) changeDays() error {
	now := j.now
	defer func() { j.now = now }()
	for _, system := range slices.Compact([]bool{j.system, false}) {
		j.clock = 0
		plain, err := j.render(conversation(2, system)...)
		if err != nil || j.clock == 0 {
			continue
		}
		want := replaceDates(plain.own())
		for _, d := range dates() {
			j.now = d
			r, err := j.render(conversation(2, system)...)
			if err != nil {
				return j.budgetError()
			}
			if got := replaceDates(r.own()); got != want {
				j.warn("template-branches", "the prompt is another one on %s: it has %s",
					d.Format("2 January 2006, 15:04"),
					differingPart(want, got))
				return nil
			}
		}
		j.now = now
	}
	return j.budgetError()
}

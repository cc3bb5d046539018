package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// templateFault is what a chat template does that none should: an ID of the catalogue, how bad, and a sentence.
type templateFault struct {
	id       string
	severity Severity
	what     string
}

// inspection is the judgement of one template under way.
type inspection struct {
	*prober
	source string
	known  *known
	system bool // the template takes a system message
	faults []templateFault
	near   string          // the publisher's template that this one was made from
	seen   map[string]bool // sentences of its own that were told
}

// judgeTemplate tells what a template does beside writing the conversation down: characters that nobody sees, text that
// depends on the messages, on how long the talk is or on the day, messages that are changed, and text of its own.
// Templates of publishers are known, and only run. needs is its input beside messages. The error is of one that cannot
// be run.
func judgeTemplate(ctx context.Context, source, bos, eos string, k *known) (faults []templateFault, needs string,
	err error) {
	p, err := newProber(ctx, source, bos, eos)
	if err != nil {
		return nil, "", err
	}
	j := &inspection{prober: p, source: source, known: k}
	j.system, err = p.settle()
	if err == nil && k.exactly(source) {
		return nil, p.needs(), nil
	}
	j.hidden(source, "holds")
	if err == nil {
		err = j.judge()
	}
	return j.faults, p.needs(), err
}

// judge holds the conversations. The error is of a context that ended.
func (j *inspection) judge() (err error) {
	j.contents()
	for _, judge := range []func() error{j.words, j.texts, j.turns, j.days} {
		if err = judge(); err != nil || len(j.faults) > 0 {
			break
		}
	}
	if !slices.ContainsFunc(j.faults, func(f templateFault) bool {
		return f.id != "template-hidden" && f.severity != Note
	}) {
		j.prose()
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

// escapes are characters by their numbers in a template's strings.
const escapes = `\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-3]?[0-7]{1,2})`

// hidden finds characters that cannot be seen, or that change how others are.
func (j *inspection) hidden(text, verb string) {
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

// contents wants each message in the prompt, once, in order, and in its role.
func (j *inspection) contents() {
	turns := conversation(3, j.system)
	r, err := j.render(turns...)
	if err != nil {
		return
	}
	j.hidden(strings.Join(r.literals, ""), "writes")
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

// lastRole returns whose turn a text begins by the last word in it that is a role; "" if none is.
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

// scene is a conversation one of whose messages is replaced by a text.
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
		list = append(list, scene{"a tool", func(text string) (*rendering, error) { return j.withTools(j.system, text) }})
	}
	return list
}

// words says to the template each word that it compares a message with, however it has put the word together: what it
// writes around the message must not depend on it. A word can uncover others.
func (j *inspection) words() error {
	for _, s := range j.scenes() {
		const probe = "Jomrix."
		plain, err := s.render(probe)
		if err != nil {
			continue
		}
		j.heard, j.wasHeard, j.watching = nil, map[string]bool{}, true
		for _, first := range []string{probe, "jomrix " + strings.Repeat("jomrix ", 60), "Jomrix"} {
			if _, err := s.render(first); err != nil {
				return j.spent()
			}
		}
		for i := 0; i < len(j.heard) && j.ctx.left >= 0; i++ {
			w := j.heard[i]
			if slices.Contains(roles, w) || strings.TrimSpace(w) == "" {
				continue
			}
			for _, said := range []string{probe + " " + w + " " + probe, w, w + " " + probe, probe + " " + w, backwards(w), w +
				w} {
				if j.changes(s, plain, probe, said, w) {
					j.watching = false
					return nil
				}
			}
		}
		if all := strings.Join(j.heard, " "); len(j.heard) > 1 && j.changes(s, plain, probe, all, all) {
			break
		}
		j.watching = false
	}
	j.watching = false
	return j.spent()
}

// spent returns the error of a budget that is used up, nil before.
func (j *inspection) spent() error {
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

// changes reports whether saying a text changes more of the prompt than the text, and tells of the word in it.
func (j *inspection) changes(s scene, plain *rendering, probe, said, word string) bool {
	r, err := s.render(said)
	if err != nil {
		return false
	}
	command := strings.HasPrefix(strings.TrimSpace(said), "/") || strings.Contains(said, " /")
	what := ""
	if plainWords(said) {
		if want := strings.ReplaceAll(plain.text(), probe, strings.TrimSpace(said)); r.text() != want &&
			r.text() != strings.ReplaceAll(plain.text(), probe, said) {
			if what = unlike(want, r.text()); what == `""` {
				what = "less"
			}
		}
	} else if more := added(plain.own(), r.own()); more != "" {
		what = shown(more)
	}
	switch {
	case what == "":
		return false
	case command: // such as /no_think
		j.fault("template-text", Note, "the prompt is another one when %s says %s: %s", s.who, shown(word), what)
		return false
	}
	j.warn("template-branches", "the prompt is another one when %s says %s: it has %s", s.who, shown(word), what)
	return true
}

// added returns the words of b, in order, that a has fewer of; markers are none.
func added(a, b string) string {
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
			if err == nil && j.ctx.left >= 0 && j.changes(s, plain, probe, k, k) {
				return nil
			}
		}
	}
	return j.spent()
}

// longest is the number of users' turns that are tried; beyond the first everyTurns only some.
const (
	everyTurns = 24
	longest    = 128
)

// turns lets the conversation grow: between turns a template writes what it wrote between the first.
func (j *inspection) turns() error {
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
				if err := j.spent(); err != nil {
					return err
				}
				j.warn("template-branches", "a conversation of %d turns fails: %s", 2*n-1, err.Error())
				return nil
			}
			for i, s := range r.literals {
				if n > 3 && !usual[s] {
					j.warn("template-branches", "the prompt has %s in a conversation of %d turns, and nowhere in shorter ones",
						shown(s), 2*n-1)
					return nil
				}
				usual[s] = true
				if first := slices.Index(r.said, name(0)+"."); n > 4 && i > first+3 && i < len(r.literals)-4 &&
					s != r.literals[i-2] {
					j.warn("template-branches", "a conversation of %d turns has %s where other turns have %s", 2*n-1, shown(s),
						shown(r.literals[i-2]))
					return nil
				}
			}
		}
	}
	return j.spent()
}

// days changes the day, of which nothing may depend but the date that is written.
func (j *inspection) days() error {
	now := j.now
	defer func() { j.now = now }()
	for _, system := range slices.Compact([]bool{j.system, false}) {
		j.clock = 0
		plain, err := j.render(conversation(2, system)...)
		if err != nil || j.clock == 0 {
			continue
		}
		want := dated(plain.own())
		for _, d := range dates() {
			j.now = d
			r, err := j.render(conversation(2, system)...)
			if err != nil {
				return j.spent()
			}
			if got := dated(r.own()); got != want {
				j.warn("template-branches", "the prompt is another one on %s: it has %s", d.Format("2 January 2006, 15:04"),
					unlike(want, got))
				return nil
			}
		}
		j.now = now
	}
	return j.spent()
}

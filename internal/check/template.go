package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/jinja"
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

// say is a message of a probe.
type say struct{ role, text string }

// prober renders conversations with a template. All renderings together are bounded: a template may come from anybody.
type prober struct {
	template *chat.Template
	ctx      *meter
	bos, eos string
	tools    bool // given even where a conversation needs none, since the template wants tools
	args     bool // so are variables
	now      time.Time
	size     int // of the text written and not yet paid for
	clock    int // how often a template asked for the time
	watching bool
	heard    []string // texts that messages were compared with, in order
	wasHeard map[string]bool
}

// meter is a context that ends after so many looks: a template looks at its context every 2048 steps.
type meter struct {
	context.Context
	left int
}

// Bounds of a rendering, and of all renderings, in looks: a rendering costs a look, and further looks for each 2048
// steps, each KiB written and 64 looks at the clock. The most expensive template of a publisher takes a third.
const (
	probeSteps  = 2_000_000
	probeOutput = 256 << 10
	probeLooks  = 12_000
)

var errProbes = errors.New("the probes of the chat template take too much")

func (m *meter) Err() error {
	if m.left--; m.left < 0 {
		return errProbes
	}
	return m.Context.Err()
}

// mostHeard bounds the words that are tried, and wordLength their length.
const (
	mostHeard  = 256
	wordLength = 200
)

func newProber(ctx context.Context, source, bos, eos string) (*prober, error) {
	p := &prober{ctx: &meter{ctx, probeLooks}, bos: bos, eos: eos, wasHeard: map[string]bool{},
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	var err error
	p.template, err = chat.Parse(source, chat.Limits{MaxSteps: probeSteps, MaxOutput: probeOutput, Watch: p.hear})
	return p, err
}

// hear notes the text with which a probe was compared.
func (p *prober) hear(said, with string) {
	said = strings.ToLower(said)
	if p.watching && (strings.Contains(said, "omrix") || strings.Contains(said, "xirmo")) && len(p.heard) < mostHeard &&
		len(with) <= wordLength && !p.wasHeard[with] {
		p.wasHeard[with] = true
		p.heard = append(p.heard, with)
	}
}

// rendering is a prompt: the template's own texts, and between them the texts of the conversation. There is a literal
// more than texts of said.
type rendering struct {
	literals []string
	said     []string
}

// text returns the prompt.
func (r *rendering) text() string {
	var b strings.Builder
	for i, s := range r.literals {
		b.WriteString(s)
		if i < len(r.said) {
			b.WriteString(r.said[i])
		}
	}
	return b.String()
}

// own returns the template's part of the prompt.
func (r *rendering) own() string { return strings.Join(r.literals, "\x00") }

// render writes a conversation; after a user's turn the beginning of an answer follows.
func (p *prober) render(turns ...say) (*rendering, error) {
	messages := make([]*jinja.Dict, len(turns))
	for i, t := range turns {
		messages[i] = chat.Message(t.role, t.text)
	}
	var tools []jinja.Value
	if p.tools {
		tools = []jinja.Value{probeTool()}
	}
	return p.input(messages, tools)
}

func (p *prober) input(messages []*jinja.Dict, tools []jinja.Value) (*rendering, error) {
	role, _ := messages[len(messages)-1].Get("role")
	last, _ := jinja.Text(role)
	in := chat.Input{Messages: messages, Tools: tools, BOSToken: p.bos, EOSToken: p.eos,
		AddGenerationPrompt: last != "assistant",
		Now:                 func() time.Time { p.clock++; p.size += 16; return p.now }}
	if p.args {
		in.Args = jinja.NewDict()
		in.Args.Set("functions", jinja.String("[]"))
		in.Args.Set("datetime", jinja.String("2026-01-02"))
	}
	segments, err := p.template.Segments(p.ctx, in)
	for _, s := range segments {
		p.size += len(s.Text)
	}
	p.ctx.left, p.size = p.ctx.left-p.size>>10, p.size&1023
	if err != nil {
		return nil, err
	}
	r := &rendering{literals: []string{""}}
	for _, s := range segments {
		end := len(r.literals) - 1
		switch {
		case !s.FromContent || slices.Contains(roles, s.Text): // a role is the program's
			r.literals[end] += s.Text
		case len(r.said) > 0 && end == len(r.said) && r.literals[end] == "":
			r.said[end-1] += s.Text
		default:
			r.said, r.literals = append(r.said, s.Text), append(r.literals, "")
		}
	}
	return r, nil
}

var roles = []string{"system", "user", "assistant", "tool", "model", "developer", "ipython", "function"}

// name returns a word of five letters that no template has.
func name(i int) string {
	return string([]byte{'Q', 'z' - byte(i/26%26), 'v', 'a' + byte(i%26), 'x'})
}

// conversation returns a number of users' turns with answers between, and with system a first system message.
func conversation(users int, system bool) (turns []say) {
	if system {
		turns = append(turns, say{"system", "Qsystx."})
	}
	for i := range users {
		if i > 0 {
			turns = append(turns, say{"assistant", name(300+i) + "."})
		}
		turns = append(turns, say{"user", name(i) + "."})
	}
	return turns
}

// settle finds the template's needs beside messages. system tells whether the template takes a system message.
func (p *prober) settle() (system bool, err error) {
	var first error
	for _, try := range []struct{ tools, args bool }{{}, {tools: true}, {args: true}} {
		p.tools, p.args = try.tools, try.args
		for _, system := range []bool{true, false} {
			_, err := p.render(conversation(3, system)...)
			if err == nil {
				return system, nil
			}
			if p.ctx.left < 0 {
				return false, errProbes
			}
			if first == nil {
				first = err
			}
		}
	}
	return false, first
}

// needs returns the input, beside messages, of the conversations that work.
func (p *prober) needs() string {
	switch {
	case p.tools:
		return "tools"
	case p.args:
		return "arguments of the template's own"
	}
	return "other turns"
}

// probeTool returns a tool in JSON's schema.
func probeTool() jinja.Value {
	return decoded(`{"type": "function", "function": {"name": "qtool", "description": "Qdesc.", "parameters":
	{"type": "object", "properties": {"qarg": {"type": "string", "description": "Qargd."}}, "required": ["qarg"]}}}`)
}

func decoded(text string) jinja.Value {
	v, err := jinja.DecodeJSON([]byte(text))
	if err != nil {
		panic(err) // a mistake in this package
	}
	return v
}

// toolTurns returns turns with a call of a tool, which answers with text; the forms suit different templates.
func toolTurns(system bool, form int, text string) []*jinja.Dict {
	call := `{"name": "qtool", "arguments": {"qarg": "Qgivn"}}`
	if form > 0 {
		call = `{"name": "qtool", "arguments": "{\"qarg\": \"Qgivn\"}"}`
	}
	m := chat.Message("assistant", "")
	if form > 1 {
		m.Set("content", jinja.None)
	}
	m.Set("tool_calls", decoded(`[{"id": "qcallqcal", "type": "function", "function": `+call+`}]`))
	answer := chat.Message("tool", text)
	answer.Set("tool_call_id", jinja.String("qcallqcal"))
	answer.Set("name", jinja.String("qtool"))
	turns := []*jinja.Dict{chat.Message("user", name(0)+"."), m, answer,
		chat.Message("assistant", name(301)+"."), chat.Message("user", name(1)+".")}
	if system {
		turns = append([]*jinja.Dict{chat.Message("system", "Qsystx.")}, turns...)
	}
	return turns
}

// withTools renders turns with a tool's answer, in the first form accepted by the template.
func (p *prober) withTools(system bool, text string) (r *rendering, err error) {
	for form := range 3 {
		if r, err = p.input(toolTurns(system, form, text), []jinja.Value{probeTool()}); err == nil {
			return r, nil
		}
	}
	return nil, err
}

// plainWords reports whether a text changes nothing around itself: no marker, no command, and nothing escaped.
func plainWords(text string) bool {
	letters := false
	for _, r := range text {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r)
		if letters = letters || letter; !letter && !strings.ContainsRune(" .,:;?!@_-", r) {
			return false
		}
	}
	return letters
}

// dates returns days on which a template may behave differently: each of a year and a half, each hour of a day, and
// single days until 2060.
func dates() (list []time.Time) {
	from := time.Date(2025, 12, 31, 12, 0, 0, 0, time.UTC)
	for d := range 550 {
		list = append(list, from.AddDate(0, 0, d))
	}
	for h := range 24 {
		list = append(list, from.Add(time.Duration(h)*time.Hour))
	}
	for y := -3; y < 35; y++ {
		list = append(list, from.AddDate(y, y%12, y*7%31))
	}
	return list
}

// replaceDates replaces the parts of a date.
func replaceDates(text string) string { return pattern(inDates).ReplaceAllString(text, "#") }

const inDates = `(?i)\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|` +
	`sep(?:tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|mon(?:day)?|tue(?:sday)?|wed(?:nesday)?|thu(?:rsday)?|fri(?:day)?|` +
	`sat(?:urday)?|sun(?:day)?|[ap]m)\b|\d+(?:st|nd|rd|th)?`

// differingPart returns the part of b that differs from a, for a report.
func differingPart(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	rest := 0
	for rest < len(a)-i && rest < len(b)-i && a[len(a)-1-rest] == b[len(b)-1-rest] {
		rest++
	}
	return quoteShort(b[i : len(b)-rest])
}

// quoteShort returns a text for a report: quoted, on a single line, of at most 120 characters.
func quoteShort(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", " … "), "")
	if r := []rune(text); len(r) > 120 {
		text = string(r[:120]) + "…"
	}
	return fmt.Sprintf("%q", text)
}

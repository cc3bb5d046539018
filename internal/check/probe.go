package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/jinja"
)

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

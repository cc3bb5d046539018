package chat

import (
	"context"
	"slices"
	"strings"

	"github.com/karat-run/karat/jinja"
)

// roles are the words written into a message's role by programs, not users: from the chat APIs, then from the published
// templates. Many templates build a marker from a role ('<|' + message['role'] + '|>'), so these words count as the
// template's own text. Any other role is content.
var roles = []string{
	"system", "developer", "user", "assistant", "tool", "function",
	"model", "ipython", "observation", "environment", "tool_results", "tool_response", "documents", "context",
}

// turn returns message i with its contents marked: the origin of its content is 2i+1, of its name 2i+2, of others 0.
func turn(m *jinja.Dict, i int) jinja.Value {
	marked := jinja.Mark(m).(*jinja.Dict)
	for k, key := range []string{"content", "name"} {
		if v, ok := m.Get(key); ok {
			marked.Set(key, jinja.MarkAs(v, 2*i+k+1))
		}
	}
	if v, ok := m.Get("role"); ok {
		if role, _ := jinja.Text(v); slices.Contains(roles, role) {
			marked.Set("role", v)
		}
	}
	return marked
}

// LostMarkers returns the markers, names of special tokens, with text of the conversation inside: Segments counts such
// a marker as content, so the model gets the marker spelled out. LostMarkers renders conversations of plain words; a
// conversation refused by the template shows nothing.
func (t *Template) LostMarkers(ctx context.Context, markers []string, bos, eos string) ([]string, error) {
	var lost []string
	for _, in := range probes() {
		in.BOSToken, in.EOSToken = bos, eos
		segments, err := t.Segments(ctx, in)
		if ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			continue
		}
		text, content := Flatten(segments)
		for _, m := range markers {
			if m != "" && !slices.Contains(lost, m) && broken(text, m, content) {
				lost = append(lost, m)
			}
		}
	}
	return lost, nil
}

// Span is the bytes [From, To) of a prompt.
type Span struct{ From, To int }

// Flatten puts segments together, and returns where the content lies.
func Flatten(segments []Segment) (text string, content []Span) {
	n := 0
	for _, s := range segments {
		n += len(s.Text)
	}
	var b strings.Builder
	b.Grow(n)
	for _, s := range segments {
		if s.FromContent {
			content = append(content, Span{b.Len(), b.Len() + len(s.Text)})
		}
		b.WriteString(s.Text)
	}
	return b.String(), content
}

// broken reports whether a marker in the text is made of content in part. Content from end to end is no marker.
func broken(text, marker string, content []Span) bool {
	for at := 0; ; {
		i := strings.Index(text[at:], marker)
		if i < 0 {
			return false
		}
		from, to := at+i, at+i+len(marker)
		n := 0
		for _, c := range content {
			n += max(min(c.To, to)-max(c.From, from), 0)
		}
		if n > 0 && n < len(marker) {
			return true
		}
		at = to
	}
}

// probes returns conversations without a marker in the content: plain turns, tools, and contents in parts.
func probes() []Input {
	system, question := Message("system", "First."), Message("user", "Second.")
	reply, more := Message("assistant", "Third."), Message("user", "Fourth.")
	call := object("id", "call00000", "type", "function",
		"function", object("name", "look_up", "arguments", object("word", "apple")))
	answer := object("role", "assistant", "content", "Third.", "tool_calls", jinja.List(call))
	result := object("role", "tool", "content", "Fifth.", "name", "look_up", "tool_call_id", "call00000")
	word := object("type", "string", "description", "the word")
	tool := object("type", "function", "function", object("name", "look_up", "description", "Looks a word up.",
		"parameters", object("type", "object", "properties", object("word", word),
			"required", jinja.List(jinja.String("word")))))
	text := object("type", "text", "text", "Second.")
	parts := object("role", "user", "content", jinja.List(text))
	image := object("role", "user", "content", jinja.List(object("type", "image"), text))
	inputs := []Input{
		{Messages: []*jinja.Dict{system, question, reply, more}},
		{Messages: []*jinja.Dict{question, reply, more}},
		{Messages: []*jinja.Dict{question, answer, result, reply, more}, Tools: []jinja.Value{tool}},
		{Messages: []*jinja.Dict{parts}},
		{Messages: []*jinja.Dict{image}},
	}
	for i := range inputs {
		inputs[i].AddGenerationPrompt = true
	}
	return inputs
}

// object makes a dict of names and values. A Go string becomes a value.
func object(pairs ...any) *jinja.Dict {
	d := jinja.NewDict()
	for i := 0; i < len(pairs); i += 2 {
		v, ok := pairs[i+1].(jinja.Value)
		if !ok {
			v = jinja.String(pairs[i+1].(string))
		}
		d.Set(pairs[i].(string), v)
	}
	return d
}

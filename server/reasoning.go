package server

import (
	"encoding/json"
	"strings"

	"github.com/karat-run/karat/internal/chat"
)

// maxArgs bounds the variables of a template, in bytes.
const maxArgs = 8 << 10

// templateArgs are variables of the chat template: chat_template_kwargs, as vLLM and llama-server have it.
func templateArgs(f *fields) map[string]any {
	args := map[string]any{}
	if raw := f.values["chat_template_kwargs"]; len(raw) > maxArgs {
		fail("chat_template_kwargs", "%d bytes, at most %d", len(raw), maxArgs)
	}
	o := f.object("chat_template_kwargs")
	if o == nil {
		return args
	}
	for _, name := range o.order {
		if chat.Reserved(name) {
			fail(o.path+name, "the server sets this variable itself")
		}
		var v any
		if raw := o.take(name); raw != nil && json.Unmarshal(raw, &v) == nil {
			args[name] = v
		}
	}
	return args
}

// The variables of chat templates that say how much an answer reasons. effort is how much, thinking whether it does.
const (
	effort   = "reasoning_effort"
	thinking = "enable_thinking"
)

// efforts are the values of reasoning_effort.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh"}

// reason reads how much the answer is to reason, where a field says it: one of efforts. A template that has only a
// switch is switched on by all except none. A level that the template has no place for is a hint.
func (m *served) reason(f *fields, name string, c *conversation) {
	level := f.oneOf(name, efforts...)
	if level == "" {
		return
	}
	levels, switches := m.set(c, effort, level), m.set(c, thinking, level != "none")
	switch {
	case levels || switches:
	case level == "none":
		m.switchReason(f, f.path+name, false, c)
	default:
		f.hints.add(f.path + name)
	}
}

// switchReason says whether the answer reasons. A model that cannot do other than it is asked for needs no switch.
// Where the chat template has none, the budget of reasoning is 0.
func (m *served) switchReason(f *fields, param string, on bool, c *conversation) {
	reasons := m.syntax.Open != ""
	switch {
	case m.set(c, thinking, on) || on == reasons:
	case on:
		throw(unsupported(param, "This model does not reason"))
	default:
		c.budget = new(int)
	}
}

// budget reads how many tokens of reasoning an answer may have. Of two budgets the smaller one holds.
func (m *served) budget(f *fields, name string, least, most int64, c *conversation) {
	tokens := 0
	if !integer(f, &tokens, name, least, most) {
		return
	}
	if m.syntax.Open == "" {
		throw(unsupported(f.path+name, "This model does not reason"))
	}
	if c.budget == nil || tokens < *c.budget {
		c.budget = &tokens
	}
}

// set sets a variable of the chat template, and reports whether that reads it.
func (m *served) set(c *conversation, variable string, value any) bool {
	if !strings.Contains(m.info.Template, variable) {
		return false
	}
	if _, given := c.args[variable]; !given { // chat_template_kwargs is the nearer word
		c.args[variable] = value
	}
	return true
}

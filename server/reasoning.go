package server

import (
	"encoding/json"
	"strings"

	"github.com/karat-run/karat/internal/chat"
)

// maxArgs bounds the variables of a template, in bytes.
const maxArgs = 8 << 10

// templateArgs reads the variables of the chat template: chat_template_kwargs, from vLLM and llama-server.
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

// Chat templates' variables for reasoning. effort is its amount, thinking its switch.
const (
	effort   = "reasoning_effort"
	thinking = "enable_thinking"
)

// efforts are the values of reasoning_effort.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh"}

// reason reads the amount of reasoning, if a field has one of efforts. For a template with only a switch, every level
// except none switches it on. A level without a place in the template is a hint.
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

// switchReason switches the answer's reasoning on or off. A model with only the wanted behaviour needs no switch. For a
// chat template without a switch, the budget of reasoning is 0.
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

// budget reads the maximum tokens of reasoning in an answer. Of two budgets the smaller holds.
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

// set sets a variable of the chat template, and reports whether the template reads the variable.
func (m *served) set(c *conversation, variable string, value any) bool {
	if !strings.Contains(m.info.Template, variable) {
		return false
	}
	if _, given := c.args[variable]; !given { // chat_template_kwargs is the nearer word
		c.args[variable] = value
	}
	return true
}

package server

import "github.com/karat-run/karat"

// applyTemplate is POST /apply-template: the prompt that the chat template makes of a conversation.
func (x *exchange) applyTemplate() *problem {
	f, m, p := x.asked(x.only)
	if p != nil {
		return p
	}
	c := conversation{messages: messages(f), args: m.templateArgs(f)}
	chatTools(f, &c)
	if !f.boolean("add_generation_prompt", true) {
		f.reject(refused("add_generation_prompt", "add_generation_prompt: false"))
	}
	if f.done(); *f.err != nil {
		return *f.err
	}
	text, err := m.model.Render(x.ctx, c.messages, karat.GenerateOptions{Tools: c.tools, TemplateArgs: c.args})
	if err != nil {
		return m.explain(x.ctx, err, "messages")
	}
	return x.reply(map[string]string{"prompt": text})
}

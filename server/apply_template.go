package server

import "github.com/karat-run/karat"

// applyTemplate answers POST /apply-template: the prompt that the chat template makes of a conversation.
func applyTemplate(x *exchange) any {
	x.placed = true
	f, m := x.asked(x.only)
	c := conversation{messages: messages(f), args: templateArgs(f)}
	c.ending(f)
	m.reason(f, effort, &c)
	chatTools(f, &c, "function", "custom")
	f.done()
	text := ""
	err := x.namedAsFits(&c, "messages", func() (err error) {
		text, err = m.model.Render(x.ctx, c.messages, karat.GenerateOptions{Tools: c.tools, TemplateArgs: c.args,
			NoGenerationPrompt: c.bare, Continue: c.goesOn})
		return err
	})
	if err != nil {
		return m.explain(x.ctx, err, c.param(err, "messages"))
	}
	return x.replyLarge(map[string]string{"prompt": text})
}

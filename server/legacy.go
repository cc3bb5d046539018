package server

import (
	"github.com/karat-run/karat"
)

// readFunctions reads functions and function_call, the forms of tools and tool_choice before there were several kinds of
// tools. An answer to them has one call at most, its function_call.
func (c *conversation) readFunctions(f *fields) {
	if isNeutral(f.values["functions"]) {
		f.ignore("functions")
	}
	list := f.objects("functions", maxTools)
	if len(list) > 0 && c.given {
		fail("functions", "the request has tools, too; it may have either")
	}
	for _, o := range list {
		c.tools = append(c.tools, tool(o, "parameters"))
	}
	if c.functions = len(list) > 0; c.functions {
		c.given, c.single = true, true
	}
	if isNeutral(f.values["function_call"]) {
		f.ignore("function_call")
	}
	raw := f.take("function_call")
	switch {
	case raw == nil:
	case !c.functions:
		fail("function_call", "it is for requests with functions alone")
	case raw[0] == '{':
		o := f.inner("function_call", raw)
		c.choice.required, c.choice.named = true, true
		c.pick(f, "function_call", o.needText("name"))
		o.done()
	case string(raw) == `"none"`:
		c.tools, c.mute = nil, true
	case string(raw) != `"auto"`:
		fail("function_call", "%s, want none, auto or an object with a name", raw)
	}
}

// legacyCall reads the function_call of an assistant's message.
func legacyCall(m *fields, names map[string]string) (parts []karat.Part) {
	if o := m.object("function_call"); o != nil {
		name := o.needText("name")
		names[legacyID(name)] = name
		parts = append(parts, toolCall(o, "", name, o.text("arguments")))
		o.done()
	}
	return parts
}

// legacyID stands for a call that has a name alone among the ids of calls.
func legacyID(name string) string { return "\x00" + name }

// legacyResult reads a message of the role function, which has the result of the call of its name.
func legacyResult(m *fields, name string, names map[string]string) karat.Message {
	if _, ok := names[legacyID(name)]; !ok {
		fail(m.path+"name", "no message before has a function_call of %q", name)
	}
	return karat.Message{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{Name: name, Content: joined(content(m,
		"content", true))}}}
}

// openAIFinish returns how an answer ends in the words of its API.
func (r *request) openAIFinish(finish string) string {
	if r.turn.functions && finish == finishCalls {
		return "function_call"
	}
	return finish
}

package server

import (
	"encoding/json"

	"github.com/karat-run/karat"
)

// customTool reads a tool whose input is a text. The model knows it as a function with one parameter, input, so that a regular
// expression of the text is a pattern of the parameter.
func customTool(t *fields) karat.Tool {
	c := karat.Tool{Name: t.needText("name"), Description: t.text("description"), Strict: true}
	if *t.err == nil && !toolName.MatchString(c.Name) {
		t.fail(t.path+"name", "%q, want 1 to 64 letters, digits, _ and -", c.Name)
	}
	input := map[string]string{"type": "string"}
	if o := t.object("format"); o != nil {
		if o.needOne("type", "text", "grammar") == "grammar" {
			if o.one("syntax", "regex", "lark") != "regex" {
				o.reject(refused(o.path+"syntax", "A grammar of a tool's input that is no regex"))
			}
			input["pattern"] = "^(?:" + o.filled("definition") + ")$"
		}
		o.done()
	}
	c.Parameters, _ = encode(map[string]any{"type": "object", "properties": map[string]any{"input": input}, "required": []string{"input"}, "additionalProperties": false}) // maps of texts have JSON
	return c
}

// customCall reads an item that is a call of such a tool.
func customCall(m *fields, id, name string) karat.ToolCall {
	arguments, _ := encode(map[string]string{"input": m.text("input")}) // a text has JSON
	return karat.ToolCall{ID: id, Name: name, Arguments: arguments}
}

// add takes a piece of the answer.
func (q *response) add(e event) {
	if e.call != nil && q.custom[e.call.name] {
		var a struct{ Input string }
		if json.Unmarshal([]byte(e.call.arguments), &a) == nil {
			e.call.custom, e.call.arguments = true, a.Input
		}
	}
	q.out.add(e)
}

// responseTools reads the tools of a request.
func (q *response) responseTools(f *fields, c *conversation) {
	q.custom = map[string]bool{}
	for _, t := range f.objects("tools", maxTools) {
		if t.kind("A tool", "", "function", "custom") == "custom" {
			made := customTool(t)
			c.tools, q.custom[made.Name] = append(c.tools, made), true
		} else {
			c.tools = append(c.tools, tool(t, "parameters"))
		}
		t.done()
	}
}

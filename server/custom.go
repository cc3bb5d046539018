package server

import (
	"encoding/json"
	"fmt"

	"github.com/karat-run/karat"
)

// customTool reads a tool whose input is a text. The model knows it as a function with one parameter, input, so that
// the expression or the grammar that the text fits is a keyword of the parameter's schema. The responses API has a
// grammar's fields flat, beside its type.
func customTool(t *fields, flat bool) karat.Tool {
	c := karat.Tool{Name: readToolName(t), Description: t.text("description"), Strict: true}
	input := map[string]string{"type": "string"}
	if o := t.object("format"); o != nil {
		if o.needOne("type", "text", "grammar") == "grammar" {
			g := o
			if !flat {
				g = o.needObject("grammar")
			}
			if g.needOne("syntax", "lark", "regex") == "lark" {
				input["lark"] = g.filled("definition")
			} else {
				input["pattern"] = "^(?:" + g.filled("definition") + ")$"
			}
			if !flat {
				g.done()
			}
		}
		o.done()
	}
	t.hintRest()
	// maps of texts have JSON
	c.Parameters, _ = encode(map[string]any{"type": "object", "properties": map[string]any{"input": input},
		"required": []string{"input"}, "additionalProperties": false})
	return c
}

// addCustom adds such a tool.
func (c *conversation) addCustom(t karat.Tool) {
	if c.custom == nil {
		c.custom = map[string]bool{}
	}
	c.tools, c.custom[t.Name] = append(c.tools, t), true
}

// customCall reads a call of such a tool that the client sends.
func customCall(m *fields, id, name string) karat.ToolCall {
	arguments, _ := encode(map[string]string{"input": m.text("input")}) // a text has JSON
	return karat.ToolCall{ID: id, Name: name, Arguments: arguments}
}

// unwrap makes the arguments of a call of such a tool its input. An answer is held to the tools' schemas, so it has
// one.
func (c *call) unwrap() {
	var a struct{ Input *string }
	if err := json.Unmarshal([]byte(c.arguments), &a); err != nil || a.Input == nil {
		panic(fmt.Sprintf("a call of the custom tool %s has no input: %v", c.name, err))
	}
	c.custom, c.arguments = true, *a.Input
}

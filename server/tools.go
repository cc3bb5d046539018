package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/karat-run/karat"
)

// readFunctions reads functions and function_call, the forms of tools and tool_choice before there were several kinds
// of tools. An answer to them has at most one call, its function_call.
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
		parts = append(parts, toolCall(o, "arguments", "", name, o.text("arguments")))
		o.done()
	}
	return parts
}

// legacyID stands for a call with a name alone among the ids of calls.
func legacyID(name string) string { return "\x00" + name }

// legacyResult reads a message of the role function, with the result of the call of its name.
func legacyResult(m *fields, name string, names map[string]string) karat.Message {
	if _, ok := names[legacyID(name)]; !ok {
		fail(m.path+"name", "no message before has a function_call of %q", name)
	}
	return karat.Message{Role: karat.RoleTool, Parts: []karat.Part{karat.ToolResult{Name: name, Content: join(content(m,
		"content", true))}}}
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)

// readToolName returns the name of a tool, or of a schema.
func readToolName(f *fields) string {
	name := f.needText("name")
	if !toolName.MatchString(name) {
		fail(f.path+"name", "%q, want 1 to 128 letters, digits, _, - and .", name)
	}
	return name
}

// chatTools reads tools of some kinds, and the choice among them.
func chatTools(f *fields, c *conversation, kinds ...string) {
	c.given = f.has("tools")
	for _, t := range f.objects("tools", maxTools) {
		kind := toolKind(t, "", kinds...)
		if kind == "" {
			continue
		}
		if o := t.needObject(kind); kind == "custom" {
			c.addCustom(customTool(o, false))
		} else {
			c.tools = append(c.tools, tool(o, "parameters"))
		}
		t.hintRest()
	}
	c.choose(f, f.take("tool_choice"))
	c.single = !f.boolean("parallel_tool_calls", true) || c.single
}

// tool reads a function; schema is the field of its parameters.
func tool(o *fields, schema string) karat.Tool {
	t := karat.Tool{Name: readToolName(o), Description: o.text("description")}
	if raw := o.take(schema); raw != nil {
		if o.hold(o.path+schema, raw); raw[0] != '{' {
			fail(o.path+schema, "%s, want a JSON schema, an object", kindOf(raw))
		}
		t.Parameters = raw
	}
	t.Strict = o.boolean("strict", false)
	o.hintRest()
	return t
}

// serviceTool finds the types of tools run or known by the services of OpenAI and Anthropic: web_search,
// web_search_20250305.
var serviceTool = regexp.MustCompile(
	`^(advisor|apply_patch|bash|browser|code_execution|code_interpreter|collaboration|` +
		`computer|computer_use|file_search|image_generation|local_shell|mcp|mcp_toolset|` +
		`memory|programmatic_tool_calling|shell|text_editor|tool_search|tool_search_tool\w*|web_extractor|web_fetch|` +
		`web_search)(_preview)?([_-]\d[\d_-]*)?$|^\w+_20\d{6}$`)

// toolKind reads the type of a tool, out of a few; absent is the type of a tool without a type. A tool of a vendor's
// service is a hint: its type is "".
func toolKind(t *fields, absent string, kinds ...string) string {
	if kind, _ := decodeAs[string](t.values["type"]); serviceTool.MatchString(kind) {
		t.hints.add(strings.TrimSuffix(t.path, "."))
		return ""
	}
	return t.kind("A tool", absent, kinds...)
}

// toolChoice describes the calls an answer must have.
type toolChoice struct {
	required bool
	only     []string // the tools allowed; nil is all
	named    bool     // the client named a tool
}

// choose reads tool_choice.
func (c *conversation) choose(f *fields, raw json.RawMessage) {
	if raw == nil || !c.given && (string(raw) == `"auto"` || string(raw) == `"none"`) { // clients' defaults
		return
	}
	if !c.given {
		fail("tool_choice", "it is for requests with tools alone")
	}
	var kind string
	if raw[0] == '{' {
		c.chooseOne(f, raw)
		return
	}
	if json.Unmarshal(raw, &kind) != nil {
		fail("tool_choice", "%s, want none, auto, required or an object", kindOf(raw))
	}
	switch kind {
	case "auto":
	case "required":
		if c.choice.required = true; len(c.tools) == 0 {
			fail("tool_choice", "none of the tools is one that the model can call here")
		}
	case "none":
		c.tools, c.mute = nil, true
	default:
		fail("tool_choice", "%q, want none, auto, required or an object", kind)
	}
}

// chooseOne reads a tool_choice given as an object: one tool, or several allowed tools.
func (c *conversation) chooseOne(f *fields, raw json.RawMessage) {
	o := f.inner("tool_choice", raw)
	if kind, _ := decodeAs[string](o.values["type"]); serviceTool.MatchString(kind) {
		throw(refuseFeature("tool_choice.type", fmt.Sprintf("To make the model use a tool of type %q", kind)))
	}
	switch kind := o.needOneOf("type", "function", "custom", "allowed_tools"); kind {
	case "function", "custom":
		c.choice.required, c.choice.named, c.single = true, true, true
		c.pick(f, "tool_choice", c.nameOf(o.text("namespace"), toolNamed(o, kind)))
	case "allowed_tools":
		in := o
		if o.has("allowed_tools") { // the responses API has the fields beside the type
			in = o.object("allowed_tools")
		}
		c.choice.required = in.oneOf("mode", "auto", "required") == "required"
		var names []string
		for _, t := range in.objects("tools", maxTools) {
			if kind, _ := decodeAs[string](t.values["type"]); serviceTool.MatchString(kind) {
				t.hints.add(strings.TrimSuffix(t.path, "."))
				continue
			}
			names = append(names, c.nameOf(t.text("namespace"),
				toolNamed(t, t.needOneOf("type", "function", "custom"))))
			t.done()
		}
		if len(names) == 0 {
			fail("tool_choice", "no tool is allowed; tool_choice none says that")
		}
		if c.pick(f, "tool_choice", names...); in != o {
			in.done()
		}
	}
	o.done()
}

// pick reads the names of allowed tools.
func (c *conversation) pick(f *fields, param string, names ...string) {
	for _, name := range names {
		if !slices.ContainsFunc(c.tools, func(t karat.Tool) bool { return t.Name == name }) {
			fail(param, "there is no tool %q in the request", name)
		}
	}
	c.choice.only = names
}

// toolNamed returns the name of a tool, in chat completions inside an object named like its type.
func toolNamed(o *fields, kind string) string {
	if inner := o.object(kind); inner != nil {
		defer inner.done()
		return inner.needText("name")
	}
	return o.needText("name")
}

// customTool reads a tool with a text for its input. The model sees a function with a single parameter, input, and the
// expression or grammar of the text becomes a keyword of the parameter's schema. The responses API has a grammar's
// fields flat, beside its type.
func customTool(t *fields, flat bool) karat.Tool {
	c := karat.Tool{Name: readToolName(t), Description: t.text("description"), Strict: true}
	input := map[string]string{"type": "string"}
	if o := t.object("format"); o != nil {
		if o.needOneOf("type", "text", "grammar") == "grammar" {
			g := o
			if !flat {
				g = o.needObject("grammar")
			}
			if g.needOneOf("syntax", "lark", "regex") == "lark" {
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

// customCall reads a client's call of such a tool.
func customCall(m *fields, id, name string) karat.ToolCall {
	arguments, _ := encode(map[string]string{"input": m.text("input")}) // a text has JSON
	return karat.ToolCall{ID: id, Name: name, Arguments: arguments}
}

// unwrap replaces the arguments of a call of such a tool by its input. Answers are held to the tools' schemas, so the
// input exists.
func (c *call) unwrap() {
	var a struct{ Input *string }
	if err := json.Unmarshal([]byte(c.arguments), &a); err != nil || a.Input == nil {
		panic(fmt.Sprintf("a call of the custom tool %s has no input: %v", c.name, err))
	}
	c.custom, c.arguments = true, *a.Input
}

// spacedName is a tool's name inside a namespace of the responses API. Without a namespace it is the tool's name.
type spacedName struct{ space, name string }

// maxAllTools bounds the tools of all namespaces.
const maxAllTools = 1024

// responseTools reads the tools of a request and of the items of its input, also within namespaces. A tool that several
// items have is one tool.
func responseTools(f *fields, list []*fields, c *conversation) {
	c.given = f.has("tools")
	var names []spacedName // of c.tools
	custom, seen, more := map[int]bool{}, map[spacedName]bool{}, false
	var read func(list []*fields, space string, kinds ...string)
	read = func(list []*fields, space string, kinds ...string) {
		for _, t := range list {
			switch toolKind(t, "", kinds...) {
			case "namespace":
				name := t.filled("name")
				read(t.objects("tools", maxTools), name, "function", "custom")
				t.hintRest()
				continue
			case "custom":
				custom[len(c.tools)] = true
				c.tools = append(c.tools, customTool(t, true))
			case "function":
				c.tools = append(c.tools, tool(t, "parameters"))
			default:
				continue
			}
			last := len(c.tools) - 1
			n := spacedName{space, c.tools[last].Name}
			if more && seen[n] {
				c.tools = c.tools[:last]
				delete(custom, last)
				continue
			}
			if names, seen[n] = append(names, n), true; len(names) > maxAllTools {
				fail("tools", "more than %d tools in all namespaces", maxAllTools)
			}
		}
	}
	read(f.objects("tools", maxTools), "", "function", "custom", "namespace")
	for _, m := range list {
		if string(m.values["type"]) == `"additional_tools"` {
			c.given, more = true, true
			read(m.objects("tools", maxTools), "", "function", "custom", "namespace")
		}
	}
	c.offer(names)
	for i := range custom {
		if c.custom == nil {
			c.custom = map[string]bool{}
		}
		c.custom[c.tools[i].Name] = true
	}
}

// offer gives the tools of namespaces their names for the model: f, or n__f of the namespace n if another tool is named
// f.
func (c *conversation) offer(names []spacedName) {
	count, taken := map[string]int{}, map[string]bool{}
	for _, n := range names {
		count[n.name]++
		taken[n.name] = taken[n.name] || n.space == ""
	}
	for i, n := range names {
		if n.space == "" {
			continue
		}
		t := &c.tools[i]
		if count[n.name] > 1 {
			t.Name = n.space + "__" + n.name
		}
		for taken[t.Name] {
			t.Name += "_"
		}
		taken[t.Name] = true
		if c.spaces == nil {
			c.spaces = map[string]spacedName{}
		}
		c.spaces[t.Name] = n
	}
	c.also = map[string]string{}
	for offered, n := range c.spaces {
		for _, between := range []string{"__", ".", "/"} {
			if long := n.space + between + n.name; !taken[long] {
				c.also[long] = offered
			}
		}
	}
}

// nameOf returns the model's name of a tool.
func (c *conversation) nameOf(space, name string) string {
	if space == "" {
		return name
	}
	for offered, n := range c.spaces {
		if n == (spacedName{space, name}) {
			return offered
		}
	}
	return space + "__" + name
}

// addSpace adds the namespace of a call's tool to an item.
func (c *call) addSpace(item map[string]any) map[string]any {
	if c.space != "" {
		item["namespace"] = c.space
	}
	return item
}

package server

// spacedName is a tool's name within a namespace of the responses API. Without a namespace it is the tool's name.
type spacedName struct{ space, name string }

// maxAllTools bounds the tools of all namespaces.
const maxAllTools = 1024

// responseTools reads the tools of a request, also within namespaces.
func responseTools(f *fields, c *conversation) {
	c.given = f.has("tools")
	var names []spacedName // of c.tools
	custom := map[int]bool{}
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
			names = append(names, spacedName{space, c.tools[len(c.tools)-1].Name})
		}
	}
	read(f.objects("tools", maxTools), "", "function", "custom", "namespace")
	if len(c.tools) > maxAllTools {
		fail("tools", "%d tools in all namespaces, at most %d", len(c.tools), maxAllTools)
		return
	}
	c.offer(names)
	for i := range custom {
		if c.custom == nil {
			c.custom = map[string]bool{}
		}
		c.custom[c.tools[i].Name] = true
	}
}

// offer gives the tools of namespaces the names that the model knows them by: f, or n__f of the namespace n where f is
// not the only one of that name.
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

// known returns the name by which the model knows a tool.
func (c *conversation) known(space, name string) string {
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

// inSpace adds the namespace of a call's tool to an item.
func (c *call) inSpace(item map[string]any) map[string]any {
	if c.space != "" {
		item["namespace"] = c.space
	}
	return item
}

package karat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/syntax"
)

// idKeys are how chat templates read the ids of calls and results.
var idKeys = []string{"call.id", "call['id']", `call["id"]`, "tool_call_id"}

// assignIDs gives calls and results of a conversation ids accepted by the chat template, whatever the client's. A
// result without an id gets the id of the next call without one, preferably of the same name.
func assignIDs(source string, messages []Message) []Message {
	kind := syntax.Of(source).IDs
	if !slices.ContainsFunc(idKeys, func(key string) bool { return strings.Contains(source, key) }) {
		return messages
	}
	type pending struct{ id, fit, name string }
	var open []pending
	all := slices.Clone(messages)
	count := 0
	for i := range all {
		parts, n := slices.Clone(all[i].Parts), 0
		for k, part := range parts {
			switch p := part.(type) {
			case ToolCall:
				given := p.ID
				if given == "" {
					p.ID = fmt.Sprintf("call%05d", count)
				}
				p.ID = kind.Fit(p.ID, p.Name, n)
				open = append(open, pending{given, p.ID, p.Name})
				parts[k] = p
				n, count = n+1, count+1
			case ToolResult:
				at := slices.IndexFunc(open, func(c pending) bool {
					return c.id == p.ID && (p.ID != "" || p.Name == "" || c.name == p.Name)
				})
				if at < 0 && p.ID == "" {
					at = slices.IndexFunc(open, func(c pending) bool { return c.id == "" })
				}
				if at >= 0 {
					p.ID = open[at].fit
					open = slices.Delete(open, at, at+1)
				} else if kind == syntax.NineIDs {
					p.ID = kind.Fit(p.ID, p.Name, 0)
				}
				parts[k] = p
			}
		}
		all[i].Parts = parts
	}
	return all
}

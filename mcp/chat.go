package mcp

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/karat-run/karat"
)

// MaxTurns bounds the turns with calls before an answer.
const MaxTurns = 25

// ChatParts answers a conversation like Session.ChatParts, with the servers' tools after the tools of o, and calls the
// servers' tools until the model gives an answer. Results are parts as well. ChatParts adds the messages of each
// finished turn to talk. A call of a tool of o ends the parts, with the call's turn in talk.
func (t *Tools) ChatParts(ctx context.Context, s *karat.Session, talk *[]karat.Message, o karat.GenerateOptions) (
	parts iter.Seq2[karat.Part, error]) {
	return func(yield func(karat.Part, error) bool) {
		own := len(o.Tools)
		o.Tools = append(slices.Clone(o.Tools), t.List()...)
		for range MaxTurns {
			said := karat.Message{Role: karat.RoleAssistant}
			var calls []karat.ToolCall
			for p, err := range s.ChatParts(ctx, *talk, o) {
				if err == nil {
					said.Parts = append(said.Parts, p)
					if c, is := p.(karat.ToolCall); is {
						calls = append(calls, c)
					}
				}
				if !yield(p, err) || err != nil {
					return
				}
			}
			results := karat.Message{Role: karat.RoleTool}
			for _, c := range calls {
				if slices.ContainsFunc(o.Tools[:own], func(k karat.Tool) bool { return k.Name == c.Name }) {
					*talk = append(*talk, said)
					return
				}
			}
			for _, c := range calls {
				r, err := t.Call(ctx, c)
				if !yield(r, err) || err != nil {
					return
				}
				results.Parts = append(results.Parts, r)
			}
			*talk = append(*talk, said)
			if calls == nil {
				return
			}
			*talk = append(*talk, results)
		}
		yield(nil, fmt.Errorf("the model called tools %d times without an answer", MaxTurns))
	}
}

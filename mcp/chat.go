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
		own := slices.Clip(o.Tools)
		for turn := 1; ; turn++ {
			if err := t.Refresh(ctx); err != nil {
				yield(nil, err)
				return
			}
			o.Tools = append(own, t.List()...)
			said := karat.Message{Role: karat.RoleAssistant}
			var calls []karat.ToolCall
			left := false // a call is left to the program
			for p, err := range s.ChatParts(ctx, *talk, o) {
				if c, is := p.(karat.ToolCall); is {
					calls = append(calls, c)
					left = left || slices.ContainsFunc(own, func(k karat.Tool) bool { return k.Name == c.Name })
				}
				if !yield(p, err) || err != nil {
					return
				}
				said.Parts = append(said.Parts, p)
			}
			if calls == nil || left {
				*talk = append(*talk, said)
				return
			}
			more := true
			results, err := t.CallAll(ctx, turn, calls, func(_ karat.ToolCall, r karat.ToolResult) bool {
				more = yield(r, nil)
				return more
			})
			if err != nil {
				yield(nil, err)
				return
			}
			if !more {
				return
			}
			*talk = append(*talk, said, results)
		}
	}
}

// CallAll calls the tools of an answer, in sequence, and returns the results for the conversation. turn counts the
// answers with calls from 1: an error after MaxTurns. see gets each call with its result, and false breaks off.
func (t *Tools) CallAll(ctx context.Context, turn int, calls []karat.ToolCall,
	see func(karat.ToolCall, karat.ToolResult) bool) (results karat.Message, err error) {
	results.Role = karat.RoleTool
	if turn > MaxTurns {
		return results, fmt.Errorf("the model called tools %d times without an answer", MaxTurns)
	}
	for _, c := range calls {
		r, err := t.Call(ctx, c)
		if err != nil {
			return results, err
		}
		results.Parts = append(results.Parts, r)
		if !see(c, r) {
			break
		}
	}
	return results, nil
}

package server

import (
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/karat-run/karat"
)

// maxTokenized bounds a text to be tokenized, in bytes, and the tokens to be made a text.
const maxTokenized = 1 << 20

// tokenize answers POST /tokenize, from llama-server.
func tokenize(x *exchange) any {
	x.takesPlace = true
	f, m := x.readRequest(x.readOptionalModel)
	text := f.needText("content")
	if len(text) > maxTokenized {
		fail("content", "%d bytes, at most %d: send it in parts", len(text), maxTokenized)
	}
	around, special := f.boolean("add_special", false), f.boolean("parse_special", true)
	pieces := f.boolean("with_pieces", false)
	f.done()
	ids, err := m.model.Tokenize(x.ctx, text, karat.TokenizeOptions{ParseSpecial: special, OmitSpecial: !around})
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	if !pieces {
		if ids == nil {
			ids = []int{}
		}
		return x.replyLarge(map[string]any{"tokens": ids})
	}
	return sendPieces(x, m, ids)
}

// sendPieces writes tokens with their texts, or with their bytes if not text. The answer is many times as large as the
// request, so it goes out while being made.
func sendPieces(x *exchange, m *served, ids []int) any {
	type token struct {
		ID    int `json:"id"`
		Piece any `json:"piece"`
	}
	x.w.Header().Set("Content-Type", "application/json")
	c := http.NewResponseController(x.w)
	out := []byte(`{"tokens":[`)
	for i, id := range ids {
		text, bytes := m.tokenText(id)
		t := token{id, text}
		if !utf8.Valid(m.model.TokenBytes(id)) {
			t.Piece = bytes
		}
		if i > 0 {
			out = append(out, ',')
		}
		one, err := encode(t)
		if err != nil {
			return x.s.explain(x.ctx, err)
		}
		if out = append(out, one...); len(out) > 1<<15 {
			c.SetWriteDeadline(time.Now().Add(writeLimit)) // a writer without deadlines writes without a deadline
			if _, err := x.w.Write(out); err != nil {
				return nil // the client has gone
			}
			out = out[:0]
		}
	}
	x.w.Write(append(out, "]}\n"...)) // an error is the client's, already gone
	return nil
}

// detokenize answers POST /detokenize.
func detokenize(x *exchange) any {
	x.takesPlace = true
	f, m := x.readRequest(x.readOptionalModel)
	raw := f.take("tokens")
	if raw == nil {
		lack("tokens")
	}
	if f.done(); raw[0] != '[' {
		fail("tokens", "%s, want an array of token ids", kindOf(raw))
	}
	if n := count(raw); n > maxTokenized {
		fail("tokens", "%d ids, at most %d: send them in parts", n, maxTokenized)
	}
	ids := tokenIDs("tokens", raw, maxTokenized, 0)
	size := 0
	for _, id := range ids {
		if id < 0 || id >= m.info.VocabSize {
			fail("tokens", "token id %d, the vocabulary has %d", id, m.info.VocabSize)
		}
		if size += len(m.model.TokenBytes(id)); size > 4*maxTokenized {
			fail("tokens", "their text has more than %d bytes: send them in parts", 4*maxTokenized)
		}
	}
	return x.replyLarge(map[string]string{"content": m.model.Detokenize(ids)})
}

// applyTemplate answers POST /apply-template: the chat template's prompt of a conversation.
func applyTemplate(x *exchange) any {
	x.takesPlace = true
	f, m := x.readRequest(x.readOptionalModel)
	c := conversation{messages: messages(f), args: templateArgs(f)}
	c.readEnding(f)
	m.reason(f, effort, &c)
	chatTools(f, &c, "function", "custom")
	f.done()
	text := ""
	err := x.renderNamed(&c, "messages", func() (err error) {
		text, err = m.model.Render(x.ctx, c.messages, karat.GenerateOptions{Tools: c.tools, TemplateArgs: c.args,
			NoGenerationPrompt: c.bare, Continue: c.goesOn})
		return err
	})
	if err != nil {
		return m.explain(x.ctx, err, c.param(err, "messages"))
	}
	return x.replyLarge(map[string]string{"prompt": text})
}

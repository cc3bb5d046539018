package server

import (
	"unicode/utf8"

	"github.com/karat-run/karat"
)

// tokenize is POST /tokenize, as llama-server has it.
func (x *exchange) tokenize() *problem {
	f, m, p := x.asked(x.only)
	if p != nil {
		return p
	}
	text := f.needText("content")
	around, special, pieces := f.boolean("add_special", false), f.boolean("parse_special", true), f.boolean("with_pieces", false)
	if f.done(); *f.err != nil {
		return *f.err
	}
	ids, err := m.model.Tokenize(x.ctx, text, karat.TokenizeOptions{ParseSpecial: special, OmitSpecial: !around})
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	if !pieces {
		if ids == nil {
			ids = []int{}
		}
		return x.reply(map[string]any{"tokens": ids})
	}
	type token struct {
		ID    int `json:"id"`
		Piece any `json:"piece"`
	}
	list := []token{}
	for _, id := range ids {
		text, bytes := m.tokenText(id)
		t := token{id, text}
		if !utf8.Valid(m.model.TokenBytes(id)) {
			t.Piece = bytes
		}
		list = append(list, t)
	}
	return x.reply(map[string]any{"tokens": list})
}

// detokenize is POST /detokenize.
func (x *exchange) detokenize() *problem {
	f, m, p := x.asked(x.only)
	if p != nil {
		return p
	}
	var ids []int
	if !f.has("tokens") {
		f.reject(bad("tokens", "Missing required parameter: 'tokens'"))
	}
	f.decode("tokens", "an array of token ids", &ids)
	f.done()
	for _, id := range ids {
		if id < 0 || id >= m.info.VocabSize {
			f.fail("tokens", "token id %d, the vocabulary has %d", id, m.info.VocabSize)
		}
	}
	if *f.err != nil {
		return *f.err
	}
	return x.reply(map[string]string{"content": m.model.Detokenize(ids)})
}

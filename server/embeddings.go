package server

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/karat-run/karat"
)

// embedding is a request for vectors of texts, common to the APIs.
type embedding struct {
	model   *served
	texts   [][]int
	options karat.EmbedOptions
}

// embedTexts answers POST /v1/embeddings.
func embedTexts(x *exchange) any {
	f, m := x.readRequest(x.readModel)
	unit := true
	e := &embedding{model: m, options: karat.EmbedOptions{Prompt: f.text("prompt_name"), Normalize: &unit}}
	form := f.oneOf("encoding_format", "float", "base64")
	integer(f, &e.options.Dimensions, "dimensions", 1, 1<<20)
	f.hint("user")
	input := f.take("input")
	f.done()
	e.read(x, "input", input, true)
	vectors := x.s.embed(x, e)
	type item struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	list := make([]item, len(vectors))
	for i, v := range vectors {
		list[i] = item{"embedding", i, v}
		if form == "base64" {
			list[i].Embedding = littleEndian(v)
		}
	}
	n := e.tokens()
	return map[string]any{"object": "list", "data": list, "model": m.name, "usage": map[string]int{"prompt_tokens": n,
		"total_tokens": n}}
}

// littleEndian returns a vector's bytes in base64: float32 numbers, the lowest byte first.
func littleEndian(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// embedOllama answers POST /api/embed.
func embedOllama(x *exchange) any {
	began := time.Now()
	e := readOllamaEmbed(x, "input")
	vectors := x.s.embed(x, e)
	return map[string]any{"model": e.model.name, "embeddings": vectors,
		"total_duration": time.Since(began).Nanoseconds(), "load_duration": x.loading.Nanoseconds(),
		"prompt_eval_count": e.tokens()}
}

// embedOllamaText answers POST /api/embeddings, for a single text.
func embedOllamaText(x *exchange) any {
	e := readOllamaEmbed(x, "prompt")
	vectors := x.s.embed(x, e)
	return map[string]any{"embedding": vectors[0]}
}

func readOllamaEmbed(x *exchange, param string) *embedding {
	f, m := x.readRequest(x.ollamaModel)
	e := &embedding{model: m}
	readKeepAlive(x, f, m)
	ollamaOptions(f, x.newRequest(m)) // options for choosing tokens, or for loading: vectors do not depend on them
	many := param == "input"
	if many {
		unit := true
		e.options.Normalize = &unit
		integer(f, &e.options.Dimensions, "dimensions", 1, 1<<20)
	}
	f.hint("truncate") // an overlong text is refused, whatever truncate asks
	input := f.take(param)
	f.hintRest()
	e.read(x, param, input, many)
	return e
}

// check refuses a model without vectors, and impossible vectors.
func (e *embedding) check(x *exchange) {
	whole := e.options
	whole.Dimensions, whole.Prompt = 0, ""
	features, err := e.model.model.EmbedSize(x.ctx, whole)
	if err != nil {
		x.s.log.Info("no vectors", "model", e.model.name, "why", err.Error())
		throw(unsupported("model", "The files of this model do not say how to make vectors of texts"))
	}
	if e.options.Dimensions > features {
		fail("dimensions", "%d, the vectors of this model have %d features", e.options.Dimensions, features)
	}
	if _, err := e.model.model.EmbedSize(x.ctx, e.options); err != nil {
		fail("prompt_name", "this model has no prompt %q", e.options.Prompt)
	}
}

// read reads the texts: one text, or a list of texts or of token ids.
func (e *embedding) read(x *exchange, param string, raw json.RawMessage, many bool) {
	e.options.Caller = x.who.caller()
	if raw == nil {
		lack(param)
	}
	e.check(x)
	texts, lists := prompts(param, raw, e.model.room, 0)
	if e.texts = lists; !many && len(texts) != 1 {
		fail(param, "%s, want a string", kindOf(raw))
	}
	for _, text := range texts {
		e.texts = append(e.texts, x.tokenIDs(e.model, param, text, karat.TokenizeOptions{Embed: &e.options}))
	}
	for i, ids := range e.texts {
		switch {
		case len(ids) == 0:
			fail(param, "text %d is empty", i)
		case len(ids) > e.model.room:
			throw(tooLong(param, e.model.room, len(ids), 0))
		}
		e.model.checkIDs(param, slices.Values(ids))
	}
}

func (e *embedding) tokens() (n int) {
	for _, ids := range e.texts {
		n += len(ids)
	}
	return n
}

// bytesOfFeature is the approximate memory of a vector's number, until its answer is written.
const bytesOfFeature = 16

// embed makes the vectors, as one request among the maximum at a time. They take room among the bodies of requests: the
// vectors of 2,048 words are a hundred megabytes.
func (s *Server) embed(x *exchange, e *embedding) [][]float32 {
	defer s.enter(x.who, 1, e.tokens())()
	features, err := e.model.model.EmbedSize(x.ctx, e.options)
	if err != nil {
		throw(s.explain(x.ctx, err))
	}
	room := &held{s: s, who: x.who.name}
	if !room.grow(int64(len(e.texts)) * int64(features) * bytesOfFeature) {
		throw(full("The vectors of the requests under way are too large together"))
	}
	x.after = append(x.after, room.end)
	vectors, err := e.model.model.EmbedIDs(x.ctx, e.texts, e.options)
	if err != nil {
		throw(s.explain(x.ctx, err))
	}
	s.addUsage(x.ctx, x.who, e.model, usage{prompt: e.tokens()})
	return vectors
}

package server

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"time"

	"github.com/karat-run/karat"
)

// embedding is what each API asks for that makes vectors of texts.
type embedding struct {
	model   *served
	param   string // the field that the texts are from
	texts   [][]int
	options karat.EmbedOptions
}

// embedTexts answers POST /v1/embeddings.
func embedTexts(x *exchange) any {
	f, m := x.asked(x.named)
	unit := true
	e := &embedding{model: m, options: karat.EmbedOptions{Prompt: f.text("prompt_name"), Normalize: &unit}}
	form := f.one("encoding_format", "float", "base64")
	f.setInteger(&e.options.Dimensions, "dimensions", 1, 1<<20)
	f.hint("user")
	input := f.take("input")
	f.end()
	throw(e.read(x, "input", input, true))
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
	return map[string]any{"model": e.model.name, "embeddings": vectors, "total_duration": time.Since(began).Nanoseconds(),
		"load_duration": x.loading.Nanoseconds(), "prompt_eval_count": e.tokens()}
}

// embedOllamaText answers POST /api/embeddings, which takes one text.
func embedOllamaText(x *exchange) any {
	e := readOllamaEmbed(x, "prompt")
	vectors := x.s.embed(x, e)
	return map[string]any{"embedding": vectors[0]}
}

func readOllamaEmbed(x *exchange, param string) *embedding {
	f, m := x.asked(x.ollamaModel)
	e := &embedding{model: m}
	readKeepAlive(x, f, m)
	x.newRequest(m).ollamaOptions(f) // which choose tokens, or set up a model: they change no vector
	many := param == "input"
	if many {
		unit := true
		e.options.Normalize = &unit
		f.setInteger(&e.options.Dimensions, "dimensions", 1, 1<<20)
	}
	f.hint("truncate") // a text that does not fit is refused, whatever it says
	input := f.take(param)
	f.hintRest()
	throw(*f.err)
	throw(e.read(x, param, input, many))
	return e
}

// able refuses a model that makes no vectors, and what its vectors cannot be.
func (e *embedding) able(x *exchange) *problem {
	whole := e.options
	whole.Dimensions, whole.Prompt = 0, ""
	features, err := e.model.model.EmbedSize(x.ctx, whole)
	if err != nil {
		x.s.log.Info("no vectors", "model", e.model.name, "why", err.Error())
		return unsupported("model", "The files of this model do not say how to make vectors of texts")
	}
	if e.options.Dimensions > features {
		return bad("dimensions", "Invalid value for 'dimensions': %d, the vectors of this model have %d features",
			e.options.Dimensions, features)
	}
	if _, err := e.model.model.EmbedSize(x.ctx, e.options); err != nil {
		return bad("prompt_name", "Invalid value for 'prompt_name': this model has no prompt %q", e.options.Prompt)
	}
	return nil
}

// read takes the texts: one, or a list of them; and where ids are taken, too, token ids.
func (e *embedding) read(x *exchange, param string, raw json.RawMessage, many bool) *problem {
	e.param, e.options.Caller = param, x.who.caller()
	if raw == nil {
		return bad(param, "Missing required parameter: '%s'", param)
	}
	throw(e.able(x))
	texts, lists := prompts(param, raw, e.model.room, 0)
	if e.texts = lists; !many && len(texts) != 1 {
		return bad(param, "Invalid value for '%s': %s, want a string", param, kindOf(raw))
	}
	return e.tokenize(x, texts)
}

// tokenize makes token ids of texts, and finds what does not fit the context.
func (e *embedding) tokenize(x *exchange, texts []string) *problem {
	for _, text := range texts {
		if e.model.model.ExceedsContext(text) {
			return longer(e.param, e.model.room)
		}
		ids, err := e.model.model.Tokenize(x.ctx, text, karat.TokenizeOptions{Embed: &e.options})
		if err != nil {
			return x.s.explain(x.ctx, err)
		}
		e.texts = append(e.texts, ids)
	}
	for i, ids := range e.texts {
		switch {
		case len(ids) == 0:
			return bad(e.param, "Invalid value for '%s': text %d is empty", e.param, i)
		case len(ids) > e.model.room:
			return tooLong(e.param, e.model.room, len(ids), 0)
		}
		for _, id := range ids {
			if id < 0 || id >= e.model.info.VocabSize {
				return bad(e.param, "token id %d: the vocabulary has %d", id, e.model.info.VocabSize)
			}
		}
	}
	return nil
}

func (e *embedding) tokens() (n int) {
	for _, ids := range e.texts {
		n += len(ids)
	}
	return n
}

// bytesOfFeature are what a number of a vector takes about, until its answer is written.
const bytesOfFeature = 16

// keep takes room for the vectors among the bodies of requests: those of 2,048 words are a hundred megabytes.
func (e *embedding) keep(x *exchange) *problem {
	features, err := e.model.model.EmbedSize(x.ctx, e.options)
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	room := &held{s: x.s, who: x.who.name}
	if !room.grow(int64(len(e.texts)) * int64(features) * bytesOfFeature) {
		return full("The vectors of the requests under way are too large together")
	}
	x.after = append(x.after, room.end)
	return nil
}

// embed makes the vectors: one of the requests that there may be at a time.
func (s *Server) embed(x *exchange, e *embedding) [][]float32 {
	defer s.enter(x.who, 1, e.tokens())()
	throw(e.keep(x))
	vectors, err := e.model.model.EmbedIDs(x.ctx, e.texts, e.options)
	if err != nil {
		throw(s.explain(x.ctx, err))
	}
	s.spent(x.ctx, x.who, e.model, usage{prompt: e.tokens()})
	return vectors
}

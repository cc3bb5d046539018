package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
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
	refuseTuned(x)
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
	refuseTuned(x)
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

// maxDocuments bounds the documents of a request.
const maxDocuments = 2048

// ranker has models judge how well documents answer a query: by scores from 0 to 1, or by the values before the last
// function; and by the tokens read. Outside tests the ranker is the models.
type ranker interface {
	rank(ctx context.Context, r *ranking) (scores []float64, tokens int, p *problem)
}

// ranking is a request for scores, common to the API's forms.
type ranking struct {
	model     *served
	query     string
	documents []string
	top       int    // documents requested; -1 is all
	say       bool   // with their texts
	raw       bool   // the model's logits, and no numbers from 0 to 1
	cut       bool   // cut documents to the context
	name      string // of the field of documents
	caller    karat.Caller
}

// scored is a document's place and score.
type scored struct {
	index int
	score float64
}

// rerank answers POST /v1/rerank in the forms of Jina, of Cohere (/v2/rerank) and, where the documents are called
// texts, of TEI.
func rerank(x *exchange) any {
	f, m := x.readRequest(x.readOptionalModel)
	refuseTuned(x)
	r := &ranking{model: m, query: f.needText("query"), top: -1, caller: x.who.caller()}
	name, tei, second := "documents", f.has("texts"), x.r.URL.Path == "/v2/rerank"
	switch {
	case tei:
		name = "texts"
		r.say, r.raw = f.boolean("return_text", false), f.boolean("raw_scores", false)
		r.cut = f.boolean("truncate", false)
		f.oneOf("truncation_direction", "right", "Right")
	case second:
		f.hint("priority")
	default:
		r.say = f.boolean("return_documents", false)
		r.cut = f.boolean("truncation", false)
	}
	if integer(f, &r.top, "top_n", 0, maxTokens); tei {
		r.top = -1
	}
	r.name = name
	r.read(f, name)
	f.done()
	best, tokens := x.rank(r)
	if tei {
		return r.tei(best)
	}
	list := make([]any, len(best))
	for i, b := range best {
		o := map[string]any{"index": b.index, "relevance_score": b.score}
		if r.say {
			o["document"] = map[string]string{"text": r.documents[b.index]}
		}
		list[i] = o
	}
	if second {
		return map[string]any{"id": newID("rank_"), "results": list,
			"meta": map[string]any{"api_version": map[string]string{"version": "2"},
				"tokens": map[string]int{"input_tokens": tokens}}}
	}
	return map[string]any{"model": m.name, "object": "list", "results": list,
		"usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens}}
}

// read takes the documents: texts, or objects with a text.
func (r *ranking) read(f *fields, name string) {
	for i, raw := range f.list(name, maxDocuments) {
		if text, ok := decodeAs[string](raw); ok {
			r.documents = append(r.documents, text)
			continue
		}
		at := fmt.Sprintf("%s%s[%d]", f.path, name, i)
		if len(raw) == 0 || raw[0] != '{' {
			fail(at, "%s, want a string", kindOf(raw))
		}
		o := f.inner(at, raw)
		r.documents = append(r.documents, o.needText("text"))
		o.done()
	}
	if len(r.documents) == 0 {
		fail(name, "it is missing or empty, want an array of strings")
	}
	if r.query == "" {
		fail("query", "it is empty")
	}
}

// rank returns the best documents, best first, of equal scores in their order.
func (x *exchange) rank(r *ranking) ([]scored, int) {
	most := 0 // a token has a byte or more
	for _, text := range r.documents {
		most += len(r.query) + len(text)
	}
	defer x.s.enter(x.who, 1, most)()
	scores, tokens, p := x.s.ranker.rank(x.ctx, r)
	throw(p)
	x.s.addUsage(x.ctx, x.who, r.model, usage{prompt: tokens})
	best := make([]scored, len(scores))
	for i, s := range scores {
		best[i] = scored{i, s}
	}
	slices.SortStableFunc(best, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	if r.top >= 0 {
		best = best[:min(r.top, len(best))]
	}
	return best, tokens
}

func (r *ranking) tei(best []scored) []any {
	list := make([]any, len(best))
	for i, b := range best {
		o := map[string]any{"index": b.index, "score": b.score}
		if r.say {
			o["text"] = r.documents[b.index]
		}
		list[i] = o
	}
	return list
}

// rankers are the models themselves.
type rankers struct{ s *Server }

func (k rankers) rank(ctx context.Context, r *ranking) (scores []float64, tokens int, p *problem) {
	m := r.model.model
	if _, err := m.Rerank(ctx, r.query, nil, karat.RerankOptions{}); err != nil && ctx.Err() == nil && !errors.Is(err,
		karat.ErrClosed) {
		k.s.log.Info("no reranker", "model", r.model.name, "why", err.Error())
		return nil, 0, unsupported("model", "This is no model that judges documents")
	}
	all, err := m.Rerank(ctx, r.query, r.documents, karat.RerankOptions{Truncate: r.cut, Caller: r.caller})
	if errors.Is(err, karat.ErrFull) {
		return nil, 0, refuse(http.StatusBadRequest, tooManyTokens, r.name, "%s", err.Error())
	}
	if err != nil {
		return nil, 0, k.s.explain(ctx, err)
	}
	scores = make([]float64, len(r.documents))
	for _, x := range all {
		score := float64(x.Score)
		if !r.raw {
			score = float64(float32(1 / (1 + math.Exp(-score)))) // float32 for agreement between machines
		}
		scores[x.Index], tokens = score, tokens+x.Tokens
	}
	return scores, tokens, nil
}

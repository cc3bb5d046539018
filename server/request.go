package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	mathrand "math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/syntax"
)

// request is the common form of each API's requests.
type request struct {
	id       string // of the answer
	created  int64
	model    *served
	param    string   // the field of the prompts
	prompts  [][]int  // token ids
	texts    []string // of the prompts given as texts
	n        int      // answers to each prompt
	best     int      // number of completions for the client
	max      int      // maximum tokens of an answer; -1 fills the context, and is the largest
	sampling karat.Sampling
	stop     []string
	logprobs bool // of the answer's tokens
	top      int  // likeliest tokens in the place of each
	echo     bool // the prompt comes first, with its log-probabilities if requested
	turn     *turn
	form     form           // of the text
	grammar  *karat.Grammar // form of the answer; nil for none
	asked    *exchange
	reply    reply
	kept     logprobRoom
}

// reply is how the client gets the answer.
type reply struct {
	stream bool
	usage  bool // also of a stream
	hides  bool // reasoning is not shown
	edits  bool // the client asked for edits of the context
	sent   bool // tokens go out at once, and are not kept for the end
	draft  karat.Draft
	// text repeated by much of the answer
	prediction string
}

// chooses reports whether the best answers are chosen, by the log-probabilities of their tokens.
func (r *request) chooses() bool { return r.best > 0 && r.best < r.n }

// bytesOfLogprob is the approximate memory of a token kept with its log-probability, until in an answer.
const bytesOfLogprob = 256

// logprobRoom is the room of a request's log-probabilities among the bodies of requests: 128 long answers with 20
// tokens in each place, for example, take gigabytes.
type logprobRoom struct {
	mu     sync.Mutex
	tokens int64
	held   held
}

// keep takes room for the log-probabilities of n more tokens.
func (r *request) keep(n int) error {
	k := &r.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held.s == nil {
		k.held.s, k.held.who = r.asked.s, r.asked.who.name
		r.asked.after = append(r.asked.after, k.held.end)
	}
	k.tokens += int64(n)
	if size := k.tokens * bytesOfLogprob; size <= k.held.size || k.held.grow(size+size/4) {
		return nil
	}
	return full("The log-probabilities of %d tokens are kept until the answers end, and there is no room for more. "+
		"Ask for fewer answers or tokens, or for a stream", k.tokens)
}

// event is a piece of an answer.
type event struct {
	choice    int
	text      string
	reasoning string
	call      *call
	tokens    []karat.Token // behind the text, if log-probabilities are requested; some pieces have none
	prompt    bool          // of the prompt
	finish    string        // of the last piece: stop, length or tool_calls
	stopped   string        // the stop string found
	full      bool          // the answer filled the context
	ids       []int         // of the whole answer, with the last piece
	cached    int           // tokens of the prompt from the cache
}

// The ends of an answer, in OpenAI's words.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishCalls  = "tool_calls"
)

// usage counts tokens. completion includes a token at the end of a turn, if chosen by the model.
type usage struct {
	prompt, completion, cached, reasoning int
	drafts                                map[string]karat.DraftCount // by kind
	// to the first token from the first step, and from there to the last token
	prefill, decode time.Duration
}

// newID returns a name unique among answers.
func newID(prefix string) string {
	var b [15]byte
	rand.Read(b[:]) // never fails
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// newRequest returns a request with the defaults of every API.
func (x *exchange) newRequest(m *served) *request {
	r := &request{asked: x, model: m, created: time.Now().Unix(), n: 1, max: -1, sampling: m.model.Sampling()}
	if r.sampling.Temperature == 0 {
		r.sampling.Temperature = 1 // OpenAI's default
	}
	r.sampling.Seed = new(mathrand.Uint64())
	if key := x.r.Header.Get("Idempotency-Key"); key != "" { // asked again, perhaps of another server
		sum := sha256.Sum256([]byte(key))
		r.sampling.Seed = new(binary.BigEndian.Uint64(sum[:]))
	}
	return r
}

// leastAnswer returns the number of tokens left free for an answer by a prompt: one, unless none is wanted.
func (r *request) leastAnswer() int {
	if r.max == 0 {
		return 0
	}
	return 1
}

// most returns how many tokens an answer to a prompt may have, and whether the context allows no more.
func (r *request) most(prompt []int) (tokens int, full bool) {
	room := r.model.room - len(prompt)
	if r.max < 0 || r.max > room {
		return room, true
	}
	return r.max, false
}

// check throws the problem of a request outside the context, or outside this server's features.
func (r *request) check() {
	if r.model.info.Encoder {
		throw(unsupported("model", "This model makes vectors and no tokens: it is for POST /v1/embeddings"))
	}
	for i := range r.stop {
		if r.stop[i] == "" {
			fail("stop", "a stop string is empty, which is in every text")
		}
		if n := len(r.stop[i]); n > maxStopSize {
			fail("stop", "a stop string has %d bytes, at most %d", n, maxStopSize)
		}
	}
	for _, ids := range r.prompts {
		room, least := r.model.room, r.leastAnswer()
		switch {
		case len(ids) == 0:
			throw(bad(r.param, "The prompt is empty, and the model has no token that begins a text"))
		case len(ids) > room-least:
			throw(tooLong(r.param, room, len(ids), least))
		}
		r.model.checkIDs(r.param, slices.Values(ids))
	}
	r.model.checkIDs("logit_bias", maps.Keys(r.sampling.LogitBias))
	if n, most := len(r.prompts)*r.n, r.asked.s.most(r.asked.who); n > most {
		throw(bad("n", "%d answers are asked for, at most %d requests are taken at a time", n, most))
	}
}

// checkIDs throws the problem of an id outside the vocabulary.
func (m *served) checkIDs(param string, ids iter.Seq[int]) {
	for id := range ids {
		if id < 0 || id >= m.info.VocabSize {
			throw(bad(param, "token id %d: the vocabulary has %d", id, m.info.VocabSize))
		}
	}
}

// tokenIDs returns the ids of a prompt's text.
func (x *exchange) tokenIDs(m *served, param, text string, o karat.TokenizeOptions) []int {
	if m.model.ExceedsContext(text) {
		throw(tooManyProblem(param, m.room))
	}
	ids, err := m.model.Tokenize(x.ctx, text, o)
	if err != nil {
		throw(x.s.explain(x.ctx, err))
	}
	return ids
}

// mayUse returns how many tokens the prompts and all answers have at most.
func (r *request) mayUse() (n int) {
	for _, ids := range r.prompts {
		answer := r.model.room - len(ids)
		if r.max >= 0 {
			answer = min(answer, r.max)
		}
		n += len(ids) + r.n*answer
	}
	return n
}

// reservedPlaces returns the number of a caller's places to leave free: a quarter for a batch, which gives way to
// requests.
func (s *Server) reservedPlaces(who *caller) int64 {
	if who.late {
		return s.rooms.places.most(who.name) / 4
	}
	return 0
}

// most returns how many places a caller may have.
func (s *Server) most(who *caller) int {
	return int(s.rooms.places.most(who.name) - s.reservedPlaces(who))
}

// enter takes n of the places of requests computed or waiting, and holds the tokens of their possible use; done gives
// both back.
func (s *Server) enter(who *caller, n, tokens int) (done func()) {
	if !s.rooms.places.takeLeaving(s.reservedPlaces(who), who.name, int64(n)) {
		s.telemetry.refused.Inc()
		if who.key != nil {
			throw(full("Of the %d requests that are computed or wait the key %q has as many as leave places for "+
				"the other keys", s.o.Requests, who.name))
		}
		throw(full("%d requests are computed or wait, this server takes no more", s.o.Requests))
	}
	if p := who.hold(tokens, s.now()); p != nil {
		s.rooms.places.give(who.name, int64(n))
		throw(p)
	}
	return func() {
		s.rooms.places.give(who.name, int64(n))
		who.release(tokens, s.now())
	}
}

// answer computes all answers, and hands over their pieces in the order of each: one call at a time.
func (r *request) answer(emit func(event)) (u usage) {
	x, s := r.asked, r.asked.s
	r.check()
	if !r.turn.shows() { // a receipt is of texts
		if x.s.o.ReceiptKey != nil && x.given == nil {
			x.receipts = x.w.Header().Get("X-Request-Id")
			x.w.Header().Set(receiptHeader, x.receipts)
		}
	}
	n := len(r.prompts) * r.n
	defer s.enter(r.asked.who, n, r.mayUse())()
	ctx, cancel := context.WithCancelCause(x.ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed *problem
	for i := range n {
		c := &choice{s: s, r: r, index: i, prompt: r.prompts[i/r.n], began: time.Now(), last: time.Now()}
		first := make(chan struct{})
		c.first = sync.OnceFunc(func() { close(first) })
		c.emit = func(e event) {
			mu.Lock()
			defer mu.Unlock()
			e.choice, e.cached = c.index, c.kept
			emit(e)
		}
		wg.Go(func() {
			defer c.first()
			err := c.guarded(ctx)
			mu.Lock()
			defer mu.Unlock()
			u.add(c)
			if err != nil && failed == nil {
				if failed = r.overGrammar(err); failed == nil {
					failed = s.explain(ctx, err)
				}
				cancel(err)
			}
		})
		if (i+1)%r.n != 0 && i%r.n == 0 {
			<-first // the prompt is computed once, for all of its answers
		}
	}
	wg.Wait()
	s.addUsage(x.ctx, r.asked.who, r.model, u)
	throw(failed)
	return u
}

// add counts an answer.
func (u *usage) add(c *choice) {
	u.completion, u.reasoning = u.completion+c.tokens, u.reasoning+c.reasoning
	for kind, n := range c.drafts {
		if u.drafts == nil {
			u.drafts = map[string]karat.DraftCount{}
		}
		sum := u.drafts[kind]
		u.drafts[kind] = karat.DraftCount{Accepted: sum.Accepted + n.Accepted, Rejected: sum.Rejected + n.Rejected}
	}
	if c.tokens > 0 && !c.started.IsZero() {
		u.prefill, u.decode = u.prefill+c.answered.Sub(c.started), u.decode+c.last.Sub(c.answered)
	}
	if c.index%c.r.n == 0 {
		u.prompt, u.cached = u.prompt+len(c.prompt), u.cached+c.kept
	}
}

// addUsage counts the tokens of a request.
func (s *Server) addUsage(ctx context.Context, who *caller, m *served, u usage) {
	m.counts.add(u)
	who.spend(u.prompt+u.completion, s.now())
	traceOf(ctx).add(u)
}

// explain returns the client's part of an error; the log has the whole.
func (s *Server) explain(ctx context.Context, err error) *problem {
	var p *problem
	switch {
	case errors.As(err, &p):
		return p
	case ctx.Err() != nil:
		return refuse(499, "cancelled", "", "The client has gone")
	case errors.Is(err, karat.ErrClosed):
		return unavailable("The model is being closed")
	case errors.Is(err, karat.ErrPictureIDs):
		return bad("", "The prompt has a token of a picture, and tokens do not say what a picture shows: send the "+
			"picture in a message of a chat")
	}
	s.log.Error("request failed", "error", err.Error())
	return internal("The model failed to compute an answer")
}

// choice is an answer under way.
type choice struct {
	s      *Server
	r      *request
	index  int
	prompt []int
	emit   func(event)
	first  func() // told when the prompt is computed
	begins func() // told at the first token

	tokens, kept, reasoning int
	drafts                  map[string]karat.DraftCount
	ids                     []int
	began, started          time.Time // of the request, and of its first step
	answered, last          time.Time // its first token, and the last so far
}

// guarded runs the choice, with a panic as an error of this answer alone.
func (c *choice) guarded(ctx context.Context) (err error) {
	defer func() {
		traceOf(ctx).answer(c)
		if p := recover(); p != nil {
			err = fmt.Errorf("internal error: %v\n%s", p, debug.Stack())
		}
	}()
	return c.run(ctx)
}

func (c *choice) run(ctx context.Context) (err error) {
	session := c.r.model.model.NewSession()
	defer session.Close()
	end := c.r.asked.tuned.count(c)
	defer end()
	sampling := c.r.sampling
	sampling.Seed = new(*sampling.Seed + uint64(c.index%c.r.n))
	o := karat.GenerateOptions{Sampling: &sampling, Stop: c.r.stop, Logprobs: c.r.logprobs || c.r.chooses(),
		TopLogprobs: c.r.top, Grammar: c.r.grammar, Caller: c.r.asked.who.caller(), Draft: c.r.reply.draft,
		Prediction: c.r.reply.prediction}
	if t := c.r.asked.tuned; t != nil {
		o.Adapters = map[string]float64{t.name: 1}
	}
	defer func() { c.drafts = session.Drafts() }()
	if c.r.echo {
		if err := c.sayPrompt(ctx, session, o); err != nil {
			return err
		}
	}
	if o.MaxTokens, _ = c.r.most(c.prompt); o.MaxTokens == 0 {
		c.emit(event{finish: finishLength})
		return nil
	}
	if c.r.turn != nil {
		for _, mark := range c.r.turn.special {
			o.Special = append(o.Special, syntax.Control(mark))
		}
		o.End = c.r.model.ends
	}
	if x := c.r.asked; c.s.o.ReceiptKey != nil && x.given == nil && !c.r.turn.shows() {
		o.Receipt = c.r.model.model.NewReceipt()
		if c.r.turn != nil {
			o.Receipt.RenderedBy(c.r.model.model, "")
		}
	}
	p := c.r.turn.parser()
	defer func() {
		if err == nil && o.Receipt != nil {
			err = c.keepReceipt(o.Receipt)
		}
	}()
	all := c.s.generate(ctx, session, c.prompt, o)
	if c.r.turn.shows() {
		all = session.Chat(ctx, c.r.turn.messages, c.r.turn.render(o))
	}
	for t, err := range all {
		if err != nil {
			return err
		}
		if c.tokens == 0 && c.started.IsZero() { // else the prompt was computed just now
			_, c.kept = session.PromptTokens()
			c.started = session.Started()
		}
		c.noteToken()
		c.ids = append(c.ids, t.ID)
		if (c.r.logprobs || c.r.chooses()) && !c.r.reply.sent {
			if err := c.r.keep(1 + len(t.TopLogprobs)); err != nil {
				return err
			}
		}
		if c.follow(p, t) {
			return nil
		}
	}
	return nil
}

// noteToken notes the time of a token.
func (c *choice) noteToken() {
	now, m := time.Now(), c.r.model.counts
	if c.tokens == 0 {
		observe(m.firstToken, c.began, now)
		observe(m.queue, c.began, c.started)
		observe(m.prefill, c.started, now)
		c.answered = now
		c.begins()
		c.first()
	} else {
		observe(m.betweenTokens, c.last, now)
	}
	c.tokens, c.last = c.tokens+1, now
}

// follow hands over the pieces of a token, and reports whether the answer has ended.
func (c *choice) follow(p *pieces, t karat.Token) bool {
	var scored []karat.Token
	thought := p.thinks()
	if (c.r.logprobs || c.r.chooses()) && t.Stop != karat.StopEnd {
		scored = []karat.Token{t}
	}
	for _, e := range p.write(t.Text) {
		e.tokens, scored = scored, nil
		c.emit(e)
	}
	if thought && p.thinks() && t.Stop != karat.StopEnd {
		c.reasoning++
	}
	if t.Stop == "" && !p.isSatisfied() {
		if scored != nil {
			c.emit(event{tokens: scored})
		}
		return false
	}
	for _, e := range p.end(t.Stop != karat.StopEnd) {
		e.tokens, scored = scored, nil
		c.emit(e)
	}
	last := event{tokens: scored, finish: finishStop, ids: c.ids}
	switch {
	case t.Stop == karat.StopLength: // whatever came before: something may be missing
		last.finish = finishLength
		_, last.full = c.r.most(c.prompt)
	case p != nil && p.calls > 0 && !c.r.turn.named: // else stop, as in OpenAI's API
		last.finish = finishCalls
	case t.Stop == karat.StopString:
		last.stopped = t.Stopped
	}
	c.emit(last)
	observe(c.r.model.counts.whole, c.began, c.last)
	observe(c.r.model.counts.decode, c.answered, c.last)
	return true
}

// sayPrompt hands over the prompt, with its log-probabilities if requested.
func (c *choice) sayPrompt(ctx context.Context, session *karat.Session, o karat.GenerateOptions) error {
	if !c.r.logprobs {
		c.emit(event{text: c.promptText(), prompt: true})
		return nil
	}
	if err := c.r.keep(len(c.prompt) * (1 + c.r.top)); err != nil {
		return err
	}
	var all []karat.Token
	for t, err := range session.Score(ctx, c.prompt, o) {
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	c.started = session.Started()
	c.emit(event{text: c.promptText(), tokens: all, prompt: true})
	return nil
}

// prompts reads a text, token ids, or an array of either, with at most room ids to each. An answer is to have so many
// tokens.
func prompts(param string, raw json.RawMessage, room, answer int) (texts []string, lists [][]int) {
	text, is := decodeAs[string](raw)
	if is {
		return []string{text}, nil
	}
	not := bad(param, "Invalid value for '%s': %s, want a string, token ids, or an array of either", param, kindOf(raw))
	if raw[0] != '[' {
		throw(not)
	}
	first := byte(0) // of the first element, the model for the others
	elements(raw, func(_, x json.RawMessage) bool {
		first = x[0]
		return false
	})
	if first == '-' || first >= '0' && first <= '9' {
		return nil, [][]int{tokenIDs(param, raw, room, answer)}
	}
	if n := count(raw); n == 0 || n > maxPrompts {
		fail(param, "%d texts, want 1 to %d", n, maxPrompts)
	}
	for i, x := range split(raw) {
		switch text, is := decodeAs[string](x); {
		case string(x) == "null":
			fail(param, "element %d is null", i)
		case x[0] != first || !is && first != '[':
			throw(not)
		case is:
			texts = append(texts, text)
		default:
			lists = append(lists, tokenIDs(param, x, room, answer))
		}
	}
	return texts, lists
}

// tokenIDs reads an array of token ids.
func tokenIDs(param string, raw json.RawMessage, room, answer int) []int {
	if n := count(raw); n > room {
		throw(tooLong(param, room, n, answer))
	}
	ids := []int{}
	elements(raw, func(_, x json.RawMessage) bool {
		id, err := strconv.Atoi(string(x))
		if err != nil {
			fail(param, "%.32q is no token id", x)
		}
		ids = append(ids, id)
		return true
	})
	return ids
}

// maxPrompts bounds the prompts of a request.
const maxPrompts = 2048

package karat

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/receipt"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/tensor"
)

// Receipt says how one answer was made: hashes of weights, settings and chat template, the ids of prompt and answer,
// the sampling, and a hash of the logits behind each token. Anybody with the model computes the answer again with
// Model.Verify. docs/receipts.md says what a receipt proves.
type Receipt struct {
	r     *receipt.Receipt
	begin func(ctx context.Context, s *Session, prompt []int32, from Sampling, o *GenerateOptions) error
}

// NewReceipt returns an empty receipt for one request of m (GenerateOptions.Receipt). The first receipt of a model
// reads all weights.
func (m *Model) NewReceipt() *Receipt {
	r := &Receipt{r: &receipt.Receipt{Version: receipt.Version, Program: "karat " + Version()}}
	r.begin = func(ctx context.Context, s *Session, prompt []int32, from Sampling, o *GenerateOptions) (err error) {
		switch {
		case len(r.r.Prompt) > 0:
			return errors.New("the receipt has an answer already, take a new one for each request")
		case o.Hooks != nil:
			return errors.New("a receipt of an answer with hooks: nobody could compute it again")
		}
		if r.r.Model, err = m.identify(ctx); err != nil {
			return err
		}
		n := m.opened.Numerics
		r.r.Numerics = receipt.Numerics{Precision: n.Precision, KV: n.KV, GPU: n.GPU > 0}
		if n.GPU > 0 {
			r.r.Distance = receipt.MaxDistance
		}
		blend, err := m.blend(o.Adapters)
		if err != nil {
			return err
		}
		if blend != nil {
			r.r.Adapters, r.r.AdaptersHash = m.factors(o.Adapters), sha256.Sum256([]byte(blend.ID))
		}
		if o.Grammar != nil {
			r.r.Form = &receipt.Form{Kind: "other"}
			if o.Grammar.kind != "" {
				r.r.Form = &receipt.Form{Kind: o.Grammar.kind, Source: o.Grammar.source}
			}
		}
		own := m.ends()
		for _, id := range o.End {
			if !slices.Contains(own, id) && !slices.Contains(r.r.Ends, int32(id)) {
				r.r.Ends = append(r.r.Ends, int32(id))
			}
		}
		r.r.Sampling, r.r.Prompt = noted(from, s.seed), slices.Clone(prompt)
		return nil
	}
	return r
}

// ends returns the tokens that end the model's turn.
func (m *Model) ends() []int { return m.opened.Checkpoint.EndOfTurn(m.opened.Tokenizer) }

// factors returns the factors of a request's adapters by their labels.
func (m *Model) factors(chosen map[string]float64) map[string]float64 {
	all := map[string]float64{}
	for _, p := range m.adapters() {
		if by, ok := chosen[p.Name]; ok {
			all[p.Label] = by
		} else if chosen == nil {
			all[p.Label] = p.By
		}
	}
	return all
}

// noted returns how tokens are chosen as a receipt has it.
func noted(s Sampling, seed uint64) receipt.Sampling {
	n := receipt.Sampling{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		RepeatPenalty: s.RepeatPenalty, RepeatLast: s.RepeatLast, PresencePenalty: s.PresencePenalty,
		FrequencyPenalty: s.FrequencyPenalty, Seed: seed}
	for id, b := range s.LogitBias {
		if math.IsInf(float64(b), -1) {
			n.Banned = append(n.Banned, int32(id))
			continue
		}
		if n.Bias == nil {
			n.Bias = map[int32]float64{}
		}
		n.Bias[int32(id)] = float64(b)
	}
	slices.Sort(n.Banned)
	return n
}

// options returns a receipt's choice of tokens as the sampler has it.
func options(n *receipt.Sampling) sample.Options {
	o := sample.Options{Temperature: n.Temperature, TopK: n.TopK, TopP: n.TopP, MinP: n.MinP,
		RepeatPenalty: n.RepeatPenalty, RepeatLast: n.RepeatLast, PresencePenalty: n.PresencePenalty,
		FrequencyPenalty: n.FrequencyPenalty, Seed: n.Seed}
	if len(n.Bias)+len(n.Banned) > 0 {
		o.LogitBias = map[int]float32{}
	}
	for id, b := range n.Bias {
		o.LogitBias[int(id)] = float32(b)
	}
	for _, id := range n.Banned {
		o.LogitBias[int(id)] = float32(math.Inf(-1))
	}
	return o
}

// add notes a token.
func (r *Receipt) add(t *engine.Token) error {
	r.r.Add(t.ID, t.Logits)
	if r.r.Numerics.GPU {
		of, _, err := sample.Logprobs(t.Logits, []int{t.ID}, 0)
		if err != nil {
			return err
		}
		r.r.Logprobs = append(r.r.Logprobs, of[0].Logprob)
	}
	if t.Stop != "" {
		r.r.End = string(t.Stop)
	}
	return nil
}

// RenderedBy notes the chat template that rendered a prompt given as ids, "" for m's own. Chat notes it itself.
func (r *Receipt) RenderedBy(m *Model, template string) { r.r.TemplateHash = m.templateHash(template) }

// ReadReceipt reads a receipt's text, at most 64 MiB.
func ReadReceipt(from io.Reader) (*Receipt, error) {
	r, err := receipt.Read(from)
	if err != nil {
		return nil, fmt.Errorf("no receipt: %w", err)
	}
	return &Receipt{r: r}, nil
}

// Sign signs the receipt of a finished answer. A later change breaks the signature.
func (r *Receipt) Sign(key ed25519.PrivateKey) error { return r.r.Sign(key) }

// Bytes returns the receipt as JSON, with a line end: about 20 bytes a token.
func (r *Receipt) Bytes() ([]byte, error) { return r.r.Bytes() }

// Signer returns the public key in the receipt, nil for none. Verify says whether the key signed the receipt.
func (r *Receipt) Signer() ed25519.PublicKey { return r.r.Key }

// Numerics returns the precision and the type of keys and values with which a model can verify the receipt: the CPU's
// float32 for an answer of a GPU.
func (r *Receipt) Numerics() (Precision, KVType) {
	if r.r.Numerics.GPU {
		return Float32, ""
	}
	if r.r.Numerics.Precision == string(Float64) {
		return Float64, ""
	}
	kv := KVType(r.r.Numerics.KV)
	if kv == KVQ8 {
		kv = KVQ8Forced
	}
	return Precision(r.r.Numerics.Precision), kv
}

// Adapters returns the names of the adapters of the answer. An adapter loaded without a name has its path's last
// element, of several equal ones with #2, #3, ... behind.
func (r *Receipt) Adapters() (names []string) {
	for name := range r.r.Adapters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Tokens returns the numbers of tokens of the prompt and of the answer.
func (r *Receipt) Tokens() (prompt, answer int) { return len(r.r.Prompt), len(r.r.Answer) }

// identify returns the names of m's parts. The first call reads all weights, others wait, each until its ctx ends.
func (m *Model) identify(ctx context.Context) (receipt.Model, error) {
	select {
	case m.parts.turn <- struct{}{}:
		defer func() { <-m.parts.turn }()
	case <-ctx.Done():
		return receipt.Model{}, ctx.Err()
	}
	if m.parts.found != nil {
		return *m.parts.found, nil
	}
	c, t := m.opened.Checkpoint, m.opened.Tokenizer
	tensors := slices.Clone(c.Tensors())
	slices.SortFunc(tensors, func(a, b tensor.Tensor) int { return strings.Compare(a.Name, b.Name) })
	order := make([]int, len(tensors)) // the largest first, which would keep one thread to the end
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tensors[b].Size(), tensors[a].Size()) })
	id := receipt.Model{Name: filepath.Base(c.Path), Types: map[string]int{}}
	leaves, errs, next := make([]receipt.Hash, len(tensors)), make([]error, len(tensors)), make(chan int)
	var wg sync.WaitGroup
	wg.Go(func() {
		h, line := sha256.New(), []byte(nil)
		for i := range t.VocabSize() {
			text, kind := t.Token(i)
			line = fmt.Appendf(strconv.AppendQuote(line[:0], text), " %d\n", kind)
			h.Write(line)
		}
		id.Tokens = receipt.Hash(h.Sum(nil))
	})
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				h := sha256.New()
				if errs[i] = ctx.Err(); errs[i] == nil {
					errs[i] = model.HashTensor(h, &tensors[i])
				}
				leaves[i] = receipt.Leaf(h.Sum(nil))
			}
		})
	}
	for _, i := range order {
		id.Types[tensors[i].DType.String()]++
		next <- i
	}
	close(next)
	wg.Wait()
	if err := cmp.Or(ctx.Err(), errors.Join(errs...)); err != nil {
		return id, err
	}
	id.Weights = receipt.Root(leaves)
	settings, err := json.Marshal([]any{c.Family.Name, finite(map[string]any(c.Values))})
	if err != nil {
		return id, err
	}
	id.Settings = sha256.Sum256(settings)
	m.parts.found = &id
	return id, nil
}

// finite returns a setting with an object in place of each number that JSON lacks: {"__float__": "+Inf"}.
func finite(v any) any {
	switch v := v.(type) {
	case float64:
		if v-v != 0 {
			return map[string]any{"__float__": fmt.Sprint(v)}
		}
	case []any:
		all := make([]any, len(v))
		for i, x := range v {
			all[i] = finite(x)
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for k, x := range v {
			all[k] = finite(x)
		}
		return all
	}
	return v
}

// VerifyOptions say how to verify a receipt. The zero value verifies all tokens.
type VerifyOptions struct {
	Key       ed25519.PublicKey // the only accepted signer; nil accepts any signature, and none
	Template  string            // the chat template of the answer, instead of the model's
	Positions []int             // tokens of the answer to verify, from 0; nil is all, and an empty list an error
	Caller    Caller            // author of the request

	// Progress is called with the verified tokens and their total. Progress may be nil.
	Progress func(done, total int)
}

// Verdict is what came of verifying a receipt.
type Verdict struct {
	Findings []ReceiptFinding `json:"findings"` // none: the answer is verified
	Tokens   int              `json:"tokens"`   // verified tokens of the answer
	Signed   bool             `json:"signed"`   // by the key in the receipt
	Bits     bool             `json:"bits"`     // logits were compared by their bits; else log-probabilities, of a GPU
	Draws    bool             `json:"draws"`    // each token was also chosen again from its logits
	Distance float64          `json:"distance"` // greatest difference of log-probabilities, of an answer from a GPU
}

// ReceiptFinding is a way in which a receipt and a model differ.
type ReceiptFinding struct {
	// Kind is tampered, unsigned, signer, model, quantization, weights, vocabulary, template, adapters, end, engine
	// or choice.
	Kind string `json:"kind"`
	At   int    `json:"at"` // token of the answer, from 0; -1 for the whole
	Text string `json:"text"`
}

// Verified reports whether nothing differs.
func (v *Verdict) Verified() bool { return len(v.Findings) == 0 }

func (v *Verdict) find(kind string, at int, format string, args ...any) {
	v.Findings = append(v.Findings, *newFinding(kind, at, format, args...))
}

func newFinding(kind string, at int, format string, args ...any) *ReceiptFinding {
	return &ReceiptFinding{kind, at, fmt.Sprintf(format, args...)}
}

// verifyRows is the number of tokens verified in a step, where their logits have room.
const verifyRows = 96

// Verify computes the answer of a receipt again, in steps of many tokens, and compares signature, parts of the model,
// logits and choices. The model must have the receipt's Numerics. An error says why nothing could be compared; the
// verdict says what differs.
func (m *Model) Verify(ctx context.Context, r *Receipt, o VerifyOptions) (*Verdict, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if err := m.makesTokens(); err != nil {
		return nil, err
	}
	v := r.VerifySignature(o.Key)
	if len(v.Findings) > 0 {
		return v, nil
	}
	if precision, kv := r.Numerics(); string(precision) != m.opened.Numerics.Precision ||
		!r.r.Numerics.GPU && r.r.Numerics.KV != m.opened.Numerics.KV {
		return nil, fmt.Errorf("the answer is computed again as %s, with %q for keys and values (Receipt.Numerics), "+
			"and this model computes as %s, with %q", precision, kv, m.opened.Numerics.Precision, m.opened.Numerics.KV)
	}
	if m.opened.Numerics.GPU > 0 && !r.r.Numerics.GPU {
		return nil, errors.New("the answer's bits are the CPU's, and this model computes on a GPU")
	}
	// Reading all weights takes a thread as long as some steps, so both begin at once.
	computing, stop := context.WithCancel(ctx)
	defer stop()
	computed, failed := &Verdict{Findings: []ReceiptFinding{}, Signed: v.Signed}, make(chan error)
	go func() { failed <- computed.logits(computing, m, r.r, o) }()
	same, err := v.parts(ctx, m, r.r, o.Template)
	if err != nil || !same {
		stop()
		<-failed
		return v, err
	}
	return computed, <-failed
}

// VerifySignature compares the receipt's signature, and its key with the one wanted, nil for any. It needs no model.
func (r *Receipt) VerifySignature(key ed25519.PublicKey) *Verdict {
	v := &Verdict{Findings: []ReceiptFinding{}}
	switch err := r.r.CheckSignature(); {
	case err == receipt.ErrUnsigned && key == nil:
	case err == receipt.ErrUnsigned:
		v.find("unsigned", -1, "%v, and one by a given key is wanted", err)
	case err != nil:
		v.find("tampered", -1, "%v", err)
	case key != nil && !bytes.Equal(r.r.Key, key):
		v.find("signer", -1, "another key signed the receipt: %x", r.r.Key)
	default:
		v.Signed = true
	}
	return v
}

// parts compares the parts of a model with the receipt's, and reports whether logits can be compared.
func (v *Verdict) parts(ctx context.Context, m *Model, r *receipt.Receipt, template string) (bool, error) {
	own, err := m.identify(ctx)
	if err != nil {
		return false, err
	}
	switch of := r.Model; {
	case of.Settings != own.Settings:
		v.find("model", -1, "the answer is of a model of other settings: %s", of.Name)
	case of.Weights == own.Weights && maps.Equal(of.Types, own.Types):
	case !maps.Equal(of.Types, own.Types):
		v.find("quantization", -1, "the answer is of weights of other types: %s has %s, this model %s", of.Name,
			typesText(of.Types), typesText(own.Types))
	default:
		v.find("weights", -1, "the answer is of other weights of the same types: %s, root %x", of.Name, of.Weights[:8])
	}
	if r.Model.Tokens != own.Tokens {
		v.find("vocabulary", -1, "the answer is of a model of another vocabulary")
	}
	if r.TemplateHash != (receipt.Hash{}) && r.TemplateHash != m.templateHash(template) {
		v.find("template", -1, "another chat template than the model's rendered the prompt")
	}
	blend, err := m.blendOf(r)
	var hash receipt.Hash
	if err == nil && blend != nil {
		hash = sha256.Sum256([]byte(blend.ID))
	}
	switch {
	case err != nil:
		v.find("adapters", -1, "%v", err)
	case hash != r.AdaptersHash:
		v.find("adapters", -1, "the answer is of other weights of the adapters")
	}
	v.end(m, r)
	return len(v.Findings) == 0, nil
}

// end compares the answer's end with the tokens that end an answer.
func (v *Verdict) end(m *Model, r *receipt.Receipt) {
	ends, vocab := m.ends(), m.opened.Graph.Result().Shape.Size()
	for at, id := range r.Answer {
		over := slices.Contains(ends, int(id)) || slices.Contains(r.Ends, id)
		said := r.End == string(StopEnd)
		switch last := at == len(r.Answer)-1; {
		case int(id) >= vocab:
			v.find("choice", at, "token %d: %d is no token of the model", at, id)
		case over && !last:
			v.find("end", at, "token %d ends the answer, and the receipt's answer goes on", at)
		case last && over != said && r.End != string(StopString): // a stop string may lie in the last token
			v.find("end", at, "the last token ends the answer: %t, and the reason of the end is %q", over, r.End)
		default:
			continue
		}
		return
	}
}

// blendOf returns the adapters of a receipt: nil for none.
func (m *Model) blendOf(r *receipt.Receipt) (*backend.Blend, error) {
	if r.Adapters == nil {
		return nil, nil
	}
	chosen := maps.Clone(r.Adapters)
	for _, p := range m.adapters() {
		if by, ok := r.Adapters[p.Label]; ok && p.Label != p.Name {
			delete(chosen, p.Label)
			chosen[p.Name] = by
		}
	}
	return m.blend(chosen)
}

func typesText(types map[string]int) (text string) {
	for _, t := range slices.Sorted(maps.Keys(types)) {
		text += fmt.Sprintf(", %d of %s", types[t], t)
	}
	return text[min(2, len(text)):]
}

// templateHash returns the hash of a chat template, or of the model's for "".
func (m *Model) templateHash(template string) receipt.Hash {
	if template == "" {
		template = m.opened.Checkpoint.Template()
	}
	return sha256.Sum256([]byte(template))
}

// logits computes prompt and answer again, and compares the logits and the choices. The first difference ends it.
func (v *Verdict) logits(ctx context.Context, m *Model, r *receipt.Receipt, o VerifyOptions) error {
	positions := slices.Clone(o.Positions)
	slices.Sort(positions)
	positions = slices.Compact(positions)
	if n := len(positions); o.Positions != nil && n == 0 {
		return errors.New("VerifyOptions.Positions: no tokens, nil is all of them")
	} else if n > 0 && (positions[0] < 0 || positions[n-1] >= len(r.Answer)) {
		return fmt.Errorf("tokens %d to %d of an answer of %d: they count from 0", positions[0], positions[n-1],
			len(r.Answer))
	}
	all := o.Positions == nil
	if all {
		for i := range r.Answer {
			positions = append(positions, i)
		}
	}
	checkers, err := m.checkers(ctx, r, all)
	if err != nil {
		return err
	}
	v.Bits, v.Draws = !r.Numerics.GPU, checkers[0].sampler != nil
	s := m.NewSession()
	defer s.Close()
	blend, err := m.blendOf(r)
	if err != nil {
		return err
	}
	s.s.Adapt(blend)
	s.s.As(o.Caller.engine())
	tokens, size := slices.Concat(r.Prompt, r.Answer), m.opened.Graph.Result().Shape.Size()
	for len(positions) > 0 {
		first, n := positions[0], 1
		for n < len(positions) && positions[n] == first+n && n < verifyRows {
			n++
		}
		// The logits behind token i follow from the prompt and the tokens before i.
		end := len(r.Prompt) + first + n - 1
		err := engine.Show(ctx, s.s, tokens[s.s.Len():end], n, func(logits []float32) {
			if rows := len(logits) / size; len(v.Findings) == 0 {
				v.rows(checkers, first, logits, size)
				first += rows
			}
		})
		if err != nil || len(v.Findings) > 0 {
			return err
		}
		positions = positions[n:]
		v.Tokens += n
		if o.Progress != nil {
			o.Progress(v.Tokens, v.Tokens+len(positions))
		}
	}
	return nil
}

// rows lets the checkers share rows of logits behind the tokens from first on. The first difference is a finding.
func (v *Verdict) rows(checkers []checker, first int, logits []float32, size int) {
	n := len(logits) / size
	found, distances := make([]*ReceiptFinding, n), make([]float64, n)
	var wg sync.WaitGroup
	for k := range checkers {
		wg.Go(func() {
			for i := k; i < n; i += len(checkers) {
				found[i], distances[i] = checkers[k].check(first+i, logits[i*size:(i+1)*size])
			}
		})
	}
	wg.Wait()
	for i, f := range found {
		if v.Distance = max(v.Distance, distances[i]); f != nil {
			v.Findings = append(v.Findings, *f)
			return
		}
	}
}

// A checker compares tokens of an answer, in order. Several share an answer, each with a sampler of its own: what a
// sampler draws for a token follows from the number of tokens before.
type checker struct {
	r       *receipt.Receipt
	sampler *sample.Sampler // nil where choices cannot be repeated
	grammar engine.Grammar  // nil for any text
	history []int           // prompt and answer
	next    int             // token of the answer that the sampler chooses next
}

// checkers returns as many checkers as there are processors, one for an answer with a grammar. Choices cannot be
// repeated of single tokens, of a GPU, and of a form whose source the receipt does not have.
func (m *Model) checkers(ctx context.Context, r *receipt.Receipt, all bool) ([]checker, error) {
	checkers := make([]checker, runtime.GOMAXPROCS(0))
	c := checker{r: r}
	for _, id := range slices.Concat(r.Prompt, r.Answer) {
		c.history = append(c.history, int(id))
	}
	draws := all && !r.Numerics.GPU && (r.Form == nil || r.Form.Kind != "other")
	if draws && r.Form != nil {
		g, err := grammarOf(r.Form)
		if err == nil {
			c.grammar, err = g.match(ctx, m)
		}
		if err != nil {
			return nil, fmt.Errorf("the receipt's form: %w", err)
		}
		checkers = checkers[:1]
	}
	for i := range checkers {
		if draws {
			o := options(&r.Sampling)
			o.Tokens = m.opened.Tokenizer.LastToken() + 1
			s, err := sample.New(o)
			if err != nil {
				return nil, fmt.Errorf("the receipt's sampling: %w", err)
			}
			c.sampler = s
		}
		checkers[i] = c
	}
	return checkers, nil
}

// check compares the logits behind a token, and the choice. Of a GPU's answer check returns the difference of
// log-probabilities as well.
func (c *checker) check(at int, logits []float32) (found *ReceiptFinding, distance float64) {
	found, distance = c.logits(at, logits)
	if found == nil && c.sampler != nil {
		found = c.choice(at, logits)
	}
	return found, distance
}

func (c *checker) logits(at int, logits []float32) (*ReceiptFinding, float64) {
	if !c.r.Numerics.GPU && receipt.Digest(logits) == c.r.DigestAt(at) {
		return nil, 0
	}
	id := int(c.r.Answer[at])
	of, _, err := sample.Logprobs(logits, []int{id}, 0)
	if err != nil {
		return newFinding("engine", at, "token %d: %v", at, err), 0
	}
	if c.r.Numerics.GPU {
		d := math.Abs(of[0].Logprob - c.r.Logprobs[at])
		if d <= c.r.Distance {
			return nil, d
		}
		return newFinding("engine", at, "token %d: its log-probability is %.6f here, and %.6f in the receipt, "+
			"more than %g apart", at, of[0].Logprob, c.r.Logprobs[at], c.r.Distance), d
	}
	rank := 1
	for _, x := range logits {
		if x > logits[id] {
			rank++
		}
	}
	return newFinding("engine", at, "token %d: other logits than here, of another engine or of other arithmetic; "+
		"the token is number %d here, with probability %.3g", at, rank, math.Exp(of[0].Logprob)), 0
}

// grammarOf returns the grammar of a receipt.
func grammarOf(f *receipt.Form) (*Grammar, error) {
	switch f.Kind {
	case "schema":
		return JSONSchema([]byte(f.Source))
	case "json":
		return JSONObject(), nil
	case "regexp":
		return Regexp(f.Source)
	case "gbnf":
		return GBNF(f.Source)
	case "lark":
		return Lark(f.Source)
	}
	return nil, fmt.Errorf("%q is not known", f.Kind)
}

// choice chooses a token again, and compares.
func (c *checker) choice(at int, logits []float32) *ReceiptFinding {
	for ; c.next < at; c.next++ {
		c.sampler.Pass(int(c.r.Answer[c.next]))
	}
	c.next++
	history := c.history[:len(c.r.Prompt)+at]
	var mask *sample.Mask
	var err error
	if c.grammar != nil {
		mask, err = c.grammar.Mask()
	}
	var id int
	switch {
	case err != nil:
	case mask != nil:
		id, err = c.sampler.SampleMasked(logits, history, mask)
	default:
		id, err = c.sampler.Sample(logits, history)
	}
	if err == nil && c.grammar != nil {
		err = c.grammar.Accept(id)
	}
	switch {
	case err != nil:
		return newFinding("choice", at, "token %d: %v", at, err)
	case id != int(c.r.Answer[at]):
		return newFinding("choice", at, "token %d: the logits and the sampling choose token %d, and the receipt has %d",
			at, id, c.r.Answer[at])
	}
	return nil
}

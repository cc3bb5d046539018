package parity

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/tokenizer"
	"github.com/karat-run/karat/internal/vision"
)

// usual is how many tokens the longest prompt has where there is no window.
const usual = 32

// keep is how many last positions have logits, as lab record has it by default.
const keep = 8

// run runs the engine, diagnoses what it dumps and scores that. The result is nil if
// there can be no such engine.
func (c *example) run(ctx context.Context) (*Result, error) {
	x := &Result{Model: c.model.Name, Condition: c.condition, Case: c.name(), Numerics: c.class.String(), Taps: c.taps,
		Want: []mistake.Injected{}, Got: []Place{}}
	prompts, err := c.model.prompts(c.seed, c.longest)
	if err != nil {
		return nil, err
	}
	engine, input, probe, looks := mistake.Split(c.faults)
	injected, err := mistake.Inputs(prompts, input, c.model.tokens(ctx))
	if err != nil {
		return nil, nil // a tokenizer that adds no BOS cannot lose it
	}
	g, edits, more, err := mistake.Inject(c.model.Graph, engine)
	if err != nil {
		return nil, err // for Applicable and Draw said that it can be
	}
	injected = append(injected, more...)
	if c.model.Eye != nil {
		if more, err = c.look(ctx, prompts, looks); err != nil {
			return nil, err
		}
		injected = append(injected, more...)
	}
	for _, in := range injected {
		if in.Positions > lab.Longest(prompts) {
			return nil, nil // no prompt shows it
		}
	}
	if len(engine) == 0 {
		g, edits = c.model.Graph, nil // as it is: Karat's own engine knows a layer's keys and values by their place
	}
	if err := c.record(ctx, g, edits, prompts); err != nil {
		return nil, err
	}
	if len(probe) > 0 {
		more, err := mistake.Probe(g, prompts, probe)
		if err != nil {
			return nil, nil // no such taps, or they would be equal
		}
		injected = append(injected, more...)
	}
	if c.condition != Clean && c.condition != Right {
		x.Want = injected
	}
	dump := &lab.Record{Path: x.Case, Names: lab.NamesHF, Prompts: prompts}
	if c.said {
		dump.Declared = c.declared()
	}
	d, err := try(ctx, diagnose.Options{Model: c.model.Name, Graph: c.model.Graph, Dump: dump, Eye: c.model.Eye,
		Asked: &diagnose.Asked{Tokenizer: c.model.Tokenizer, Template: c.model.Template}})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		x.Error = err.Error()
		d = &diagnose.Diagnosis{}
	}
	x.score(c, d)
	return c.held(ctx, x, d, injected)
}

// held is the result, scored by what the dump holds of the faults; nil if that is none.
func (c *example) held(ctx context.Context, x *Result, d *diagnose.Diagnosis, injected []mistake.Injected) (
	*Result, error) {
	switch {
	case (c.condition == Single || c.condition == Pictures) && fine(d.Verdict):
		if shown, err := c.shown(ctx); err != nil || !shown {
			return nil, err // float32, in which dumps are, does not hold the fault
		}
	case slices.Contains([]Condition{Single, Pictures, Multi, Within}, c.condition) &&
		slices.Contains(x.Failed, exactSet):
		want, err := c.seen(ctx, injected)
		if err != nil {
			return nil, err
		}
		x.Want = want
		x.score(c, d)
	}
	return x, nil
}

// try diagnoses. A panic is an error, which costs that case its scores and not the
// others theirs.
func try(ctx context.Context, o diagnose.Options) (d *diagnose.Diagnosis, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return diagnose.Run(ctx, o)
}

// record computes the prompts, and takes off the taps that the condition has not.
func (c *example) record(ctx context.Context, g *graph.Graph, edits reference.Edits, prompts []*lab.Prompt) error {
	longest := 0
	for _, p := range prompts {
		longest = max(longest, len(p.IDs))
	}
	rows := keep
	if c.taps == NoTaps {
		rows = longest
	}
	b, err := c.backend(edits)
	if err != nil {
		return err
	}
	defer b.Close()
	r, err := lab.NewRecorder(ctx, g, b, longest, rows)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, p := range prompts {
		if err := r.Record(ctx, p, c.taps != NoTaps && c.taps != States); err != nil {
			return err
		}
		p.Show(vision.Mixed{}) // unknown in a dump
		c.taps.leave(p)
	}
	return nil
}

// look computes the pictures of prompts as an engine with some faults does.
func (c *example) look(ctx context.Context, prompts []*lab.Prompt, faults []mistake.Fault) ([]mistake.Injected,
	error) {
	e, err := mistake.InjectSight(c.model.Eye.Model, faults)
	if err != nil {
		return nil, err
	}
	b, err := c.backend(e.Edits)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	m, err := vision.Open(c.model.Tower, b, "")
	if err != nil {
		return nil, err
	}
	eye := e.Eye(c.model.Eye, m)
	defer eye.Close()
	for _, p := range prompts {
		err := eye.Look(ctx, p, c.taps != NoTaps && c.taps != States, func(text string) ([]int32, error) {
			return ids32(c.model.Tokenizer.Encode(text, tokenizer.Options{AddSpecial: true, ParseSpecial: true})), nil
		})
		if err != nil {
			return nil, err
		}
	}
	return e.Done, nil
}

// The prompts' texts. Every script and many kinds of token are in the second.
const (
	shortText = "The color of the sky is"
	mixedText = "func f() { x := 3.14 } // naïve, 東京"
)

// prompts are a short text, a mixed one whose last tokens are decoded one by one, and
// one of random tokens that is longer than the window, if it may be.
func (m *Model) prompts(seed uint64, longest int) ([]*lab.Prompt, error) {
	if m.Eye != nil {
		return m.seeing(seed)
	}
	length := usual
	for _, n := range m.Graph.Nodes {
		if a, ok := n.Attr.(*graph.KV); ok && n.Op == graph.StoreKV && a.Window > 0 {
			length = a.Window + 8
			break
		}
	}
	for _, n := range m.Graph.Nodes {
		if a, ok := n.Attr.(graph.ScalePosAttr); ok {
			length = max(length, a.Every+8)
		}
	}
	if longest > 0 && length > longest {
		length = min(usual, longest)
	}
	var prompts []*lab.Prompt
	for i, text := range []string{shortText, mixedText} {
		prompts = append(prompts, &lab.Prompt{Index: i, Input: lab.Input{Text: &text}, Text: text, IDs: m.encode(text)})
	}
	if !m.Graph.Bidirectional() && !slices.ContainsFunc(m.Graph.Nodes, func(n *graph.Node) bool {
		return n.Op == graph.Pool
	}) {
		prompts[1].Decode = 4 // an encoder reads a prompt in one step
	}
	r := rand.New(rand.NewPCG(seed, uint64(length)))
	long := &lab.Prompt{Index: 2}
	for range length {
		long.IDs = append(long.IDs, int32(r.IntN(m.Graph.Result().Shape.Size())))
	}
	long.Input.IDs = long.IDs
	if slices.ContainsFunc(m.Graph.Nodes, sectioned) {
		long.Parts = placed(len(long.IDs))
	}
	return append(prompts, long), nil
}

// sectioned reports whether n turns by positions of three parts.
func sectioned(n *graph.Node) bool {
	a, ok := n.Attr.(graph.RoPEAttr)
	return ok && a.Sections != [3]int{}
}

// placed is the positions of so many tokens: an image of rows of four, behind two tokens of text and before four.
func placed(tokens int) (parts [][3]int32) {
	next := int32(0)
	for i := range int32(tokens) {
		p := [3]int32{next, next, next}
		if i >= 2 && i < int32(tokens)-4 {
			p = [3]int32{2, 2 + (i-2)/4, 2 + (i-2)%4}
		}
		parts, next = append(parts, p), max(next, slices.Max(p[:])+1)
	}
	return parts
}

func (m *Model) encode(text string) []int32 {
	return ids32(m.Tokenizer.Encode(text, tokenizer.Options{AddSpecial: true}))
}

func ids32(ids []int) []int32 {
	list := make([]int32, len(ids))
	for i, id := range ids {
		list[i] = int32(id)
	}
	return list
}

// tokens is the model's tokenizer as faults of the input use it.
func (m *Model) tokens(ctx context.Context) mistake.Tokens {
	t := mistake.Tokens{BOS: -1, Encode: func(text string) ([]int32, error) { return m.encode(text), nil }}
	if ids := m.encode(""); len(ids) > 0 {
		t.BOS = ids[0]
	}
	t.Render = func(messages []lab.Message) ([]int32, error) {
		if m.Template == "" {
			return nil, errors.New("the model has no chat template")
		}
		template, err := chat.Parse(m.Template, chat.Limits{})
		if err != nil {
			return nil, err
		}
		in := chat.Input{AddGenerationPrompt: true}
		if t.BOS >= 0 {
			in.BOSToken, _ = m.Tokenizer.Token(int(t.BOS))
		}
		for _, x := range messages {
			in.Messages = append(in.Messages, chat.Message(x.Role, x.Content))
		}
		text, err := template.Render(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("template: %w", err)
		}
		return ids32(m.Tokenizer.Encode(text, tokenizer.Options{ParseSpecial: true})), nil
	}
	return t
}

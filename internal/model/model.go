// Package model opens models: files become a checkpoint, its tensors a graph, and the graph runs on a backend in an
// engine. The library, the command, the lab, the web page and servers all come through here.
//
// Open does all steps. Graph, Fits and Compile are its steps, for callers who only read a graph, change it first, or
// bring a backend of their own. The files in reading order:
//
//	model.go    Open and its steps
//	adapter.go  low-rank adapters
//	read.go     files read into memory, and errors of files
//	memory.go   the check against the machine's memory
//	options.go  settings of a run
//	hash.go     the files behind a number
package model

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Files are the contents of a model's files, before anything runs: the checkpoint, its graph and its tokenizer.
type Files struct {
	Checkpoint *checkpoint.Checkpoint
	Graph      *graph.Graph
	Tokenizer  *tokenizer.Tokenizer
	Notes      []string // assumptions, tensors set aside, keys not read
}

// OpenFiles makes the graph and the tokenizer of a checkpoint, and takes the checkpoint over: an error closes c. The
// graph is for sequences of a number of tokens; 0 is the model's own maximum.
func OpenFiles(ctx context.Context, c *checkpoint.Checkpoint, tokens int) (f *Files, err error) {
	f = &Files{Checkpoint: c}
	if f.Graph, f.Notes, err = Graph(ctx, c, tokens); err == nil {
		f.Tokenizer, err = c.Tokenizer()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return f, nil
}

// Close closes the files.
func (f *Files) Close() error { return f.Checkpoint.Close() }

// Piece returns the spelling of a token, "" where ok is false.
func (f *Files) Piece(id int, ok bool) string {
	if !ok {
		return ""
	}
	text, _ := f.Tokenizer.Token(id)
	return text
}

// Model is an opened model.
type Model struct {
	Files
	Numerics numerics.Numerics
	Adapters []backend.Part // by the factors of Options, and Adopt's
	Blend    *backend.Blend // of Adapters, for sequences without a choice
	Backend  backend.Backend
	Engine   *engine.Engine
	Head     bool // Engine has drafts by the model's head
}

// Opened returns the opened model behind a model of package karat, which sets Opened: the command's instruments look at
// the library's models.
var Opened func(m any) *Model

// Open opens the GGUF file (any part of a split one) or the Hugging Face folder at path. Open ends with ctx,
// between two pieces of work: a file, a tensor to repack or to upload. A model that would not fit the memory
// is an error that wraps ErrMemory, except with Options.NoFit.
func Open(ctx context.Context, path string, o Options) (*Model, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := checkpoint.Open(path)
	if err == nil {
		err = checkpoint.FitProjector(c, o.Projector)
	}
	if err != nil {
		return nil, ofFiles(err)
	}
	return Start(ctx, c, o)
}

// Read opens a GGUF file without a path, or all parts of a split file. The CPU needs all bytes in memory; from files
// without Data a GPU, and a browser's CPU, reads large tensors in pieces, while the model is open.
func Read(ctx context.Context, files []gguf.Source, o Options) (*Model, error) {
	if o.Numerics.GPU == 0 && runtime.GOOS != "js" { // whose memory stays as large as it ever was
		var err error
		if files, err = inMemory(ctx, files, o.NoFit); err != nil {
			return nil, err
		}
	}
	c, err := checkpoint.Read(files...)
	if err == nil && o.Projector != "" {
		err = checkpoint.FitProjector(c, o.Projector)
	}
	if err != nil {
		return nil, ofFiles(err)
	}
	return Start(ctx, c, o)
}

// Start opens a checkpoint, and takes the checkpoint over: an error closes c.
func Start(ctx context.Context, c *checkpoint.Checkpoint, o Options) (*Model, error) {
	m := &Model{Files: Files{Checkpoint: c}, Numerics: o.Numerics}
	if err := m.start(ctx, o); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Model) start(ctx context.Context, o Options) (err error) {
	if o.Engine.Context == 0 {
		o.Engine.Context = DefaultContext
		if most := m.Checkpoint.ContextLength(); most > 0 {
			o.Engine.Context = min(most, DefaultContext)
		}
	}
	if o.Engine.Context < 1 || o.Engine.Context > MaxContext {
		return fmt.Errorf("a context of %d tokens, want 1 to %d", o.Engine.Context, MaxContext)
	}
	if !o.NoFit { // before anything of the file is copied
		if err := fits(m.Checkpoint, 0, 0, 0, o.Memory); err != nil {
			return err
		}
	}
	o.Engine.Memory = o.Memory
	all, notes, err := GraphsFor(ctx, m.Checkpoint, o.Engine.Context, o.Head)
	m.Graph, m.Notes, m.Head, o.Engine.Head = all.Model, notes, all.Draft != nil, all.Draft
	if err != nil {
		return err
	}
	o.Engine.Context = min(o.Engine.Context, longest(m.Checkpoint, m.Graph))
	if err = coarse(m.Checkpoint, o.Numerics); err != nil {
		return err
	}
	if !o.NoFit {
		cache := cacheBytes(all.Fed, o.Numerics, o.Threads, o.Engine.Context, o.Engine.Budget)
		if err := fits(m.Checkpoint, o.Numerics.Repacked(all.Whole()), cache, o.Engine.Context, o.Memory); err != nil {
			return err
		}
	}
	if m.Tokenizer, err = m.Checkpoint.Tokenizer(); err != nil {
		return err
	}
	if m.Adapters, notes, err = Adapters(ctx, m.Checkpoint, m.Graph, o); err != nil {
		return err
	}
	m.Notes = append(m.Notes, notes...)
	if m.Blend, err = backend.NewBlend(m.Adapters...); err != nil {
		return err
	}
	o.Engine.Adapters = m.Blend
	if m.Backend, err = o.Numerics.Backend(o.Threads, o.NoFuse...); err != nil {
		return err
	}
	if !o.NoFit {
		cache := o.Engine.Budget
		if cache <= 0 {
			cache = o.Numerics.CacheBytes(m.Graph, o.Threads, o.Engine.Context)
		}
		var adapters int64
		for _, p := range m.Adapters {
			adapters += p.Bytes()
		}
		if err := fitsRemote(m.Checkpoint.Path, m.Backend, m.Graph, adapters, cache); err != nil {
			return err
		}
	}
	o.Engine.Tokens = m.Tokenizer.LastToken() + 1
	if t := m.Checkpoint.Tower; t != nil {
		o.Engine.Group = t.Rows()
	}
	m.Engine, err = Compile(ctx, all.Fed, m.Backend, o.Engine)
	return err
}

// coarse refuses keys and values in 8 bits where they move predictions much.
func coarse(c *checkpoint.Checkpoint, n numerics.Numerics) error {
	if n.KV != "q8_0" || n.Forced || c.Family.Coarse == nil {
		return nil
	}
	if kl := c.Family.Coarse(c.Values); kl > 0 {
		return fmt.Errorf("keys and values as q8_0 move the predictions of models like this: by a mean KL divergence "+
			"of %.1e in a small model, more than %.0e, mostly where a row changes its experts. "+
			"Take f16, or q8_0! to force it", kl, family.MostCoarse)
	}
	return nil
}

// Plan compiles the graph anew for Engine, by the fields of a plan in o. The plan shares Engine's pool of keys and
// values.
func (m *Model) Plan(ctx context.Context, o engine.Options) (*engine.Plan, error) {
	o.Progress = guard(ctx, o.Progress)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m.Engine.Plan(o)
}

// Memory returns the maximum bytes of the machine's memory for the weights, as kept, and all keys and values of Engine:
// 0 on a GPU with its own memory.
func (m *Model) Memory() int64 {
	if _, elsewhere := m.Backend.(backend.Metered); elsewhere {
		return 0
	}
	return m.Checkpoint.Bytes() + m.Numerics.Repacked(m.Graph) + m.Engine.Stats().KVBudget
}

// Close ends the engine, and frees the backend and the files. Requests under way end first.
func (m *Model) Close() error {
	var errs []error
	if m.Engine != nil {
		errs = append(errs, m.Engine.Close())
	}
	if m.Backend != nil {
		errs = append(errs, m.Backend.Close())
	}
	return errors.Join(append(errs, m.Files.Close())...)
}

// Graph makes c's graph for sequences of a number of tokens; 0 is the model's maximum. The notes are c's,
// with further assumptions and tensors not read; notes also come with an error.
func Graph(ctx context.Context, c *checkpoint.Checkpoint, tokens int) (*graph.Graph, []string, error) {
	g, notes, err := GraphsFor(ctx, c, tokens, false)
	return g.Model, notes, err
}

// GraphsFor does Graph's work for a model with drafts by its head, if wanted.
func GraphsFor(ctx context.Context, c *checkpoint.Checkpoint, tokens int, head bool) (g arch.Graphs, notes []string,
	err error) {
	if err := ctx.Err(); err != nil {
		return g, c.Notes, err
	}
	if head {
		g, notes, err = arch.LoadHead(c, tokens)
	} else {
		g.Model, notes, err = arch.LoadFor(c, tokens)
		g.Fed = g.Model
	}
	return g, append(c.Notes[:len(c.Notes):len(c.Notes)], notes...), err
}

// Compile makes the engine of g on b. It ends with ctx while the weights are prepared.
func Compile(ctx context.Context, g *graph.Graph, b backend.Backend, o engine.Options) (*engine.Engine, error) {
	o.Progress = guard(ctx, o.Progress)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Chunk == 0 && g.Bidirectional() { // a text is one step
		o.Chunk = o.Context
	}
	return engine.New(g, b, o)
}

// guard returns progress, perhaps nil, as a function that also ends with ctx.
func guard(ctx context.Context, progress func(done, total int64) error) func(done, total int64) error {
	return func(done, total int64) error {
		if progress != nil {
			if err := progress(done, total); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
}

// Hidden returns the input of g's head, or the result if g has no head: the source of embeddings.
func Hidden(g *graph.Graph) *graph.Node {
	n := g.Result()
	for n.Op == graph.Softcap || n.Op == graph.Scale {
		n = n.In[0]
	}
	if e := g.Nodes[0]; n.Op == graph.Add && len(n.W) == 1 && e.Op == graph.Embed &&
		n.Shape.Size() == e.W[0].Shape[0] { // a head's bias
		n = n.In[0]
	}
	if n.Op == graph.Linear {
		return n.In[0]
	}
	return g.Result()
}

// Encoder reports whether g ends in vectors of tokens, without a head for logits.
func Encoder(g *graph.Graph) bool { return Hidden(g) == g.Result() }

// longest returns the maximum number of tokens in a sequence of g, for any requested context: the rows of its table of
// positions, and for an encoder its own maximum.
func longest(c *checkpoint.Checkpoint, g *graph.Graph) int {
	most := MaxContext
	if n := c.ContextLength(); n > 0 && Encoder(g) {
		most = n
	}
	for _, n := range g.Nodes {
		if n.Op == graph.EmbedPos {
			most = min(most, n.W[0].Shape[0])
		}
	}
	return most
}

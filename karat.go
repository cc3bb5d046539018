// Package karat runs language models in pure Go: Llama 3, Qwen 2 and 3,
// Gemma 3 and Gemma 4, from GGUF files and Hugging Face folders.
//
//	m, err := karat.Load("model.gguf", karat.Options{})
//	if err != nil { ... }
//	defer m.Close()
//	for token, err := range m.Generate(ctx, "The color of the sky is", karat.GenerateOptions{}) {
//		if err != nil { ... }
//		fmt.Print(token.Text)
//	}
//
// A request's logits, and so its tokens, have the same bits whatever the
// number of threads, the other requests that run, and the machine. GPUs may
// differ from each other; and where one's matrix units are used (Options.Backend),
// other requests make a difference, too, but not with Float32.
package karat

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/machine"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Errors that requests' errors wrap.
var (
	ErrFull   = engine.ErrFull   // the context has no room for the prompt, or for another token
	ErrClosed = engine.ErrClosed // the model, or the session, was closed
	ErrInTap  = engine.ErrInTap  // a request, or Close, inside Taps' see
)

var errNilContext = errors.New("nil context")

// Options say how to run a model. The zero value is usable.
type Options struct {
	Threads   int       // 0 is one for each physical core that the process may use
	Context   int       // most tokens of a sequence; 0 is the model's own, at most 8192
	Precision Precision // "" is Fast
	KV        string    // keys and values as "f16" or "f32"; "" is f16 with Fast and f32 otherwise

	// Backend is what computes: "cpu", which "" is, "webgpu" for the first GPU, or
	// "webgpu:1" for the second. A GPU computes in float32, or with Fast in binary16 where
	// it has matrix units and KARAT_WEBGPU_LIB names what reaches them; it refuses
	// Float64.
	Backend string

	// Progress is called while Load prepares the weights, with the bytes of the
	// file that are done, and all. It may be nil. Load waits for it.
	Progress func(done, total int64)
}

// Precision is the arithmetic of a model's products.
type Precision string

// The precisions.
const (
	Fast    Precision = "fast" // quantized weights times activations of 16 bits, else float32
	Float32 Precision = "f32"  // float32 throughout
	Float64 Precision = "f64"  // float64 throughout: slow, for comparison
)

// Model is a loaded model. It is safe for concurrent use.
type Model struct {
	checkpoint *checkpoint.Checkpoint
	graph      *graph.Graph
	backend    backend.Backend
	engine     *engine.Engine
	tokenizer  *tokenizer.Tokenizer
	template   *chat.Template // nil if the model has none
	broken     error          // why the template cannot be used
	notes      []string

	tapping sync.Mutex // held by the Taps that runs
	see     func(n *graph.Node, values []float32)

	mu     sync.Mutex     // guards what follows
	tapped *engine.Engine // of Taps; nil before the first
	closed bool
}

// Load opens a GGUF file (any part of a split one) or a Hugging Face folder.
// A model that would not fit the machine's free memory is refused.
func Load(path string, o Options) (*Model, error) {
	c, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	return load(c, o)
}

// LoadGGUF is Load for a GGUF file that is in memory, such as an embedded one.
// data must not change while the model is in use. name is for messages.
func LoadGGUF(name string, data []byte, o Options) (*Model, error) {
	c, err := checkpoint.Parse(name, data)
	if err != nil {
		return nil, err
	}
	return load(c, o)
}

// Source is a GGUF file that has no path, or a part of a split one: its bytes, or what reads them.
type Source = gguf.Source

// LoadSources is Load for a GGUF file that has no path, or for all parts of a split one.
// On a GPU what is large of files without Data is never in memory as a whole; the CPU
// reads them first. They must stay readable, and Data as it is, while the model is in use.
func LoadSources(files []Source, o Options) (*Model, error) {
	if o.Backend == "" || o.Backend == "cpu" {
		var err error
		if files, err = inMemory(files); err != nil {
			return nil, fmt.Errorf("karat: %w", err)
		}
	}
	c, err := checkpoint.Read(files...)
	if err != nil {
		return nil, err
	}
	return load(c, o)
}

// inMemory is files with all their Data, if that has room.
func inMemory(files []Source) ([]Source, error) {
	files = slices.Clone(files)
	var size int64
	for _, s := range files {
		if s.Data != nil || s.At == nil {
			continue // is in memory already, or nowhere
		}
		if s.Size < 0 || s.Size > math.MaxInt-size {
			return nil, fmt.Errorf("%s: %d bytes", s.Name, s.Size)
		}
		size += s.Size
	}
	if err := machine.Fits(size, 0, 0); err != nil {
		return nil, fmt.Errorf("the files: %w", err)
	}
	for i := range files {
		s := &files[i]
		if s.Data != nil || s.At == nil {
			continue
		}
		s.Data = make([]byte, s.Size)
		if n, err := s.At.ReadAt(s.Data, 0); n < len(s.Data) {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return files, nil
}

func load(c *checkpoint.Checkpoint, o Options) (_ *Model, err error) {
	m := &Model{checkpoint: c}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	n, err := numerics.Parse(string(o.Precision), o.KV)
	if err == nil {
		n, err = n.On(o.Backend)
	}
	if err != nil {
		return nil, fmt.Errorf("karat: %w", err)
	}
	if o.Context == 0 {
		o.Context = defaultContext(c.ContextLength())
	}
	if o.Context < 1 || o.Context > 1<<24 {
		return nil, fmt.Errorf("karat: a context of %d tokens, possible are 1 to %d", o.Context, 1<<24)
	}
	if err := m.fits(0, 0, 0); err != nil { // before anything of the file is copied
		return nil, err
	}
	g, notes, err := arch.Load(c)
	if err != nil {
		return nil, err
	}
	m.graph, m.notes = g, append(c.Notes, notes...)
	cache := backend.CacheBytes(g, o.Context, engine.DefaultChunk, n.KVBytes())
	if err := m.fits(n.Repacked(g), o.Context, cache); err != nil {
		return nil, err
	}
	if m.backend, err = n.Backend(o.Threads); err != nil {
		return nil, fmt.Errorf("karat: %w", err)
	}
	if m.tokenizer, err = c.Tokenizer(); err != nil {
		return nil, err
	}
	m.template, m.broken = chat.Parse(c.Template(), chat.Limits{})
	m.engine, err = engine.New(g, m.backend, engine.Options{Context: o.Context, Progress: func(done, total int64) error {
		if o.Progress != nil {
			o.Progress(done, total)
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// maxContext is the default where a model allows more: its cache stays small.
const maxContext = 8192

func defaultContext(model int) int {
	if model == 0 {
		return maxContext
	}
	return min(model, maxContext)
}

// fits compares what the model needs with the memory that is free: weights that
// take so many bytes more than in the file, and a cache of the given size.
func (m *Model) fits(repacked int64, context int, cache int64) error {
	if err := machine.Fits(m.checkpoint.Bytes()+repacked, cache, context); err != nil {
		return fmt.Errorf("karat: %s %w", m.checkpoint.Path, err)
	}
	return nil
}

// Close frees the model. Requests under way end with ErrClosed, after the step
// that runs. A second Close does nothing; one inside Taps' see is refused with ErrInTap.
func (m *Model) Close() error {
	if m.engine != nil && m.engine.InTap() {
		return ErrInTap
	}
	var errs []error
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, e := range []*engine.Engine{m.engine, m.tapped} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if m.backend != nil {
		errs = append(errs, m.backend.Close())
	}
	return errors.Join(append(errs, m.checkpoint.Close())...)
}

// Info describes a loaded model.
type Info struct {
	Path         string
	Format       string // GGUF or Hugging Face
	Architecture string
	Bytes        int64 // of the weights
	VocabSize    int
	Context      int // tokens that a sequence may have
	MaxContext   int // tokens that the model was made for; 0 if unknown
	Template     string
	Notes        []string // what was assumed, set aside or not read in loading
}

// Info describes the model.
func (m *Model) Info() Info {
	c := m.checkpoint
	return Info{Path: c.Path, Format: string(c.Format), Architecture: c.Arch, Bytes: c.Bytes(), VocabSize: m.engine.VocabSize(),
		Context: m.engine.Context(), MaxContext: c.ContextLength(), Template: c.Template(), Notes: m.notes}
}

// Tokenize is the ids of text as Generate has them, with the tokens that the model
// wants around a text (BOS, for most). With special, the names of special tokens
// in it stand for these tokens; Generate takes them for text.
func (m *Model) Tokenize(text string, special bool) []int {
	return m.tokenizer.Encode(text, tokenizer.Options{ParseSpecial: special, AddSpecial: true})
}

// Detokenize is the text of ids, special tokens included.
func (m *Model) Detokenize(ids []int) string { return m.tokenizer.Decode(ids, false) }

// TokenBytes is the bytes of one token. They need not be UTF-8: a token may be a part
// of a character.
func (m *Model) TokenBytes(id int) []byte { return m.tokenizer.Bytes(id) }

// Logits computes the logits after each of ids, as one sequence from position
// 0: [len(ids)][VocabSize].
func (m *Model) Logits(ctx context.Context, ids []int) ([][]float32, error) {
	return feed(ctx, m.engine, ids)
}

// feed computes ids as one sequence of e.
func feed(ctx context.Context, e *engine.Engine, ids []int) ([][]float32, error) {
	s := e.NewSequence()
	defer s.Close()
	tokens := make([]int32, len(ids))
	for i, id := range ids {
		if tokens[i] = int32(id); int(tokens[i]) != id {
			return nil, fmt.Errorf("karat: token id %d, the vocabulary has %d", id, e.VocabSize())
		}
	}
	return s.Feed(ctx, tokens, len(ids))
}

// Version is the version that the module system knows, "(devel)" in a checkout.
func Version() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		if b.Main.Path == "github.com/karat-run/karat" {
			return b.Main.Version
		}
		for _, d := range b.Deps {
			if d.Path == "github.com/karat-run/karat" {
				return d.Version
			}
		}
	}
	return "(devel)"
}

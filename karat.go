// Package karat runs language models in pure Go, from GGUF files and Hugging Face folders (docs/families.md lists the
// families).
//
//	m, err := karat.Load(ctx, "model.gguf", karat.Options{})
//	if err != nil { ... }
//	defer m.Close()
//	for token, err := range m.Generate(ctx, "The color of the sky is", karat.GenerateOptions{}) {
//		if err != nil { ... }
//		fmt.Print(token.Text)
//	}
//
// Models run on the CPU. For GPUs a program imports karat/webgpu for its side effect. Without the import no code for
// GPUs is linked.
//
// A request's logits, and so its tokens, have the same bits with any number of threads, beside any other requests, and
// on any machine. GPUs may differ from each other. On a GPU's matrix units (Options.Backend) other requests also change
// the bits, except with Float32.
//
// Files, users before the files they use: convert.go (files of models); parts.go (answers in parts), embed.go (vectors
// and scores), taps.go (values inside), state.go (saved states), stats.go (load), receipt.go (proofs of answers),
// general.go (tools as text), generate.go (texts and chats), image.go (pictures), ids.go (ids of calls), grammar.go
// (forms of answers), message.go (conversations), score.go (log-probabilities), pull.go (downloads), karat.go (Load and
// Model).
package karat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/embed"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/grammar"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/hub/local"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/receipt"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Errors wrapped by the errors of requests.
var (
	ErrFull   = engine.ErrFull   // the context has no room for the prompt, or for another token
	ErrBudget = engine.ErrBudget // wraps ErrFull: the KV cache is full (Options.KVBudget)
	ErrClosed = engine.ErrClosed // the model, or the session, was closed
	ErrInTap  = engine.ErrInTap  // a request, or Close, inside Taps' see
	ErrMemory = model.ErrMemory  // Load: the model does not fit the free memory

	ErrNoModel = local.ErrNoModel              // Load: no file, no folder and no pulled model has the name
	ErrDamaged = model.ErrDamaged              // Load: a file is damaged, cut off, or no model known to Karat
	ErrTooLong = errors.New("prompt too long") // an ErrFull: the prompt has more tokens than the context holds
)

var errNilContext = errors.New("the context is nil")

// Options say how to run a model. The zero value is usable.
type Options struct {
	Threads int // 0 is the number of physical cores open to the process
	// Context is the maximum number of tokens of a sequence. 0 is the model's own, at most 8192. An encoder, or a table
	// of positions, has no more than its own.
	Context   int
	Precision Precision // "" is Fast
	KV        KVType    // type of the KV cache; "" is KVF16 with Fast, KVF32 with Float32, and float64 with Float64

	// KVBudget is the maximum size of the KV cache in bytes, for all requests of the model together: generation, Embed,
	// Rerank, Taps and states. Requests without room wait. 0 is half of the free memory, or the size of one sequence if
	// larger; on a GPU at most four sequences.
	KVBudget int64

	Memory   int64   // maximum bytes of the machine's memory for the model; 0 is the free memory
	Parallel int     // maximum number of running requests, the rest waits; 0 is the number with room in KVBudget
	Backend  Backend // "" is CPU

	// Projector is the file of a GGUF model's part for pictures, often named mmproj; "" is a fitting one beside the
	// model, if any. A folder has its own.
	Projector string

	Draft Draft // of requests without a choice of their own; "" is DraftAuto

	// Adapters are loaded with the model, for requests to choose from (GenerateOptions.Adapters).
	Adapters []Adapter

	// NoFit also loads a model larger than the free memory: the model may be slow, or ended by the system.
	NoFit bool

	// Progress is called while Load prepares the weights, with the finished bytes of the file and their total. Progress
	// may be nil. Load waits for its return.
	Progress func(done, total int64)
}

// Adapter is a low-rank adapter (LoRA): a GGUF file with pairs of matrices for some of the model's linear layers, or a
// folder saved by PEFT.
type Adapter struct {
	Name  string  // name in requests; "" is Path
	Path  string  //
	Scale float64 // default factor of the adapter's additions; 0 is off
}

// Precision is the arithmetic of a model's products.
type Precision string

// The precisions.
const (
	Fast    Precision = "fast" // quantized weights times activations of 16 bits, else float32
	Float32 Precision = "f32"  // float32 throughout
	Float64 Precision = "f64"  // float64 throughout: slow, for comparison
)

// KVType is the number format of the keys and values of a context.
type KVType string

// The types of keys and values. With Float64, keys and values are float64 and neither may be chosen.
const (
	KVF16 KVType = "f16" // IEEE 754 binary16: two bytes an element
	KVF32 KVType = "f32" // four bytes an element
	// KVQ8 is 8 bits and a scale for every 32 elements, of positions at least 128 before the newest. The newest
	// positions, the first 64 and windows of at most 512 are KVF16.
	KVQ8 KVType = "q8_0"
	// KVQ8Forced is KVQ8 also for models with predictions moved much by KVQ8: Load refuses KVQ8 for these.
	KVQ8Forced KVType = "q8_0!"
)

// Backend names the computing device: the CPU or a GPU.
type Backend string

// The backends. WebGPU is the machine's first GPU, WebGPU + ":1" the second. The program needs import _
// "github.com/karat-run/karat/webgpu". A GPU computes in float32. With Fast a GPU computes in binary16 if the GPU has
// matrix units and KARAT_WEBGPU_LIB names a library reaching them. A GPU refuses Float64.
const (
	CPU    Backend = "cpu"
	WebGPU Backend = "webgpu"
)

// Model is a loaded model, safe for concurrent use.
type Model struct {
	opened *model.Model
	drafts Draft    // Options.Draft
	chat   struct { // the model's template, parsed at the first use
		once     sync.Once
		template *chat.Template
		broken   error // parsing error; nil for a usable template
	}

	vocab struct { // the tokens in the form of grammars
		once   sync.Once
		tokens *grammar.Vocabulary
	}

	tapping sync.Mutex // held by the running Taps
	eye     eye

	parts struct { // the names of receipts, found at the first use
		turn  chan struct{} // has a value while a request reads the weights
		found *receipt.Model
	}

	adapted struct { // opened.Adapters
		turn       sync.Mutex // held by LoadAdapter
		sync.Mutex            // guards the list, which is never changed itself
		changes    int        // of the list
	}

	split struct { // the heads of nodes' values, found at the first use
		once  sync.Once
		heads map[*graph.Node]int
	}

	mu       sync.Mutex   // guards the fields below
	tapped   *engine.Plan // of Taps and Hooks; nil before the first
	unshared *engine.Plan // of saved states; nil before the first
	hidden   *engine.Plan // of Embed and Rerank, where the graph ends in a head; nil before the first
	head     *embed.Head  // of Embed; nil before the first
	rank     *embed.Head  // of Rerank; nil before the first
	closed   bool
}

func init() { model.Opened = func(m any) *model.Model { return m.(*Model).opened } }

// Load opens a model: the GGUF file (any part of a split file) or the Hugging Face folder at a path, or a pulled model
// by its name or by the reference of its pull, as "Qwen3-0.6B:Q4_K_M" or "hf:Qwen/Qwen3-0.6B-GGUF:Q4_K_M". An existing
// path wins. Load never downloads: Pull does. The end of ctx stops Load. A model larger than the free memory is an
// error wrapping ErrMemory, unless Options.NoFit is set.
func Load(ctx context.Context, name string, o Options) (*Model, error) {
	if name == "" {
		return nil, errors.New("the name of the model is empty")
	}
	found, err := local.Find(name)
	if err != nil {
		return nil, err
	}
	return load(ctx, o, func(x model.Options) (*model.Model, error) { return model.Open(ctx, found.Path, x) })
}

// Source is a GGUF file without a path, or a part of a split file: its bytes, or a reader of them.
type Source struct {
	Name string // for messages; NAME-00001-of-0000N.gguf tells a part's place in a split model
	Data []byte // the whole file; nil with At

	At   io.ReaderAt
	Size int64 // of At's file, in bytes
}

// LoadSources loads a GGUF file without a path, such as an embedded file, or all parts of a split file. For sources
// without Data, a GPU reads large tensors in pieces, never as a whole; the CPU reads the whole file first. Sources must
// stay readable, and Data unchanged, while the model is in use.
func LoadSources(ctx context.Context, files []Source, o Options) (*Model, error) {
	list := make([]gguf.Source, len(files))
	for i, f := range files {
		list[i] = gguf.Source(f)
	}
	return load(ctx, o, func(x model.Options) (*model.Model, error) { return model.Read(ctx, list, x) })
}

func load(ctx context.Context, o Options, open func(model.Options) (*model.Model, error)) (*Model, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	n, err := o.numerics()
	if err != nil {
		return nil, err
	}
	x := model.Options{Numerics: n, Threads: o.Threads, NoFit: o.NoFit, Memory: o.Memory,
		Projector: o.Projector}
	x.Engine.Context, x.Engine.Budget, x.Engine.Parallel = o.Context, o.KVBudget, o.Parallel
	for _, a := range o.Adapters {
		x.Adapters = append(x.Adapters, model.Adapter{Name: a.Name, Path: a.Path, By: a.Scale})
	}
	if o.Progress != nil {
		x.Engine.Progress = func(done, total int64) error {
			o.Progress(done, total)
			return nil
		}
	}
	x.Head = o.Draft.guesses()
	opened, err := open(x)
	if err != nil {
		return nil, err
	}
	if o.Draft == DraftMTP && !opened.Head {
		return nil, errors.Join(fmt.Errorf("Options.Draft: %w", errNoHead), opened.Close())
	}
	m := &Model{opened: opened, drafts: o.Draft}
	m.parts.turn = make(chan struct{}, 1)
	return m, nil
}

// numerics returns the numerics chosen by o; an error names the impossible field.
func (o *Options) numerics() (n numerics.Numerics, err error) {
	for _, x := range []struct {
		field string
		value int64
		most  int64
	}{{"Threads", int64(o.Threads), 1024}, {"Context", int64(o.Context), model.MaxContext},
		{"KVBudget", o.KVBudget, math.MaxInt64}, {"Parallel", int64(o.Parallel), math.MaxInt},
		{"Memory", o.Memory, math.MaxInt64}} {
		if x.value < 0 || x.value > x.most {
			return n, fmt.Errorf("%s is %d, want 0 to %d", "Options."+x.field, x.value, x.most)
		}
	}
	if _, err = numerics.Parse(string(o.Precision), ""); err != nil {
		return n, fmt.Errorf("Options.Precision: %w", err)
	}
	if n, err = numerics.Parse(string(o.Precision), string(o.KV)); err != nil {
		return n, fmt.Errorf("Options.KV: %w", err)
	}
	if n, err = n.On(string(o.Backend)); err != nil {
		return n, fmt.Errorf("Options.Backend: %w", err)
	}
	if err = o.Draft.Validate(); err != nil {
		return n, fmt.Errorf("Options.Draft: %w", err)
	}
	return n, nil
}

// blend returns the adapters of a request.
func (m *Model) blend(chosen map[string]float64) (*backend.Blend, error) {
	if chosen == nil {
		return m.opened.Blend, nil
	}
	var parts []backend.Part // in the order of Options, for the same bits from the same choice
	for _, p := range m.adapters() {
		if by, ok := chosen[p.Name]; ok {
			parts = append(parts, backend.Part{Adapter: p.Adapter, By: by})
		}
	}
	if len(parts) < len(chosen) {
		for name := range chosen {
			if !slices.ContainsFunc(parts, func(p backend.Part) bool { return p.Name == name }) {
				return nil, fmt.Errorf("no adapter %q is loaded", name)
			}
		}
	}
	return backend.NewBlend(parts...)
}

// Close frees the model. Requests under way end with ErrClosed, after the running step. A second Close does nothing; a
// Close inside Taps' see is refused with ErrInTap.
func (m *Model) Close() error {
	if m.opened.Engine.InTap() {
		return ErrInTap
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return errors.Join(m.eye.close(), m.opened.Close())
}

// Info describes a loaded model.
type Info struct {
	Path         string
	Format       string // GGUF or Hugging Face
	Architecture string
	Bytes        int64  // of the weights
	Parameters   int64  // numbers in the weights
	Type         string // of most weights, as BF16 or Q4_K
	Memory       int64  // maximum bytes of the machine's memory for the weights and KVBudget; a GPU's is not counted
	VocabSize    int
	Context      int  // maximum tokens of a sequence, the prompt and the answer
	MaxContext   int  // tokens planned by the model's makers; 0 if unknown
	Encoder      bool // the model makes vectors (Embed), and no tokens
	Template     string
	Notes        []string // assumptions, tensors set aside, keys not read
}

// Info describes the model.
func (m *Model) Info() Info {
	c, g := m.opened.Checkpoint, m.opened.Graph
	i := Info{Path: c.Path, Format: string(c.Format), Architecture: c.Arch, Bytes: c.Bytes(),
		VocabSize: m.opened.Engine.VocabSize(), Context: m.opened.Engine.Context(), MaxContext: c.ContextLength(),
		Encoder: m.encoder(), Template: c.Template(), Notes: m.opened.Notes}
	i.Memory = m.opened.Memory()
	i.Parameters, i.Type = c.Parameters()
	if i.Encoder {
		i.VocabSize = int(backend.Vocab(g)) // its result is no logits
	}
	return i
}

// encoder reports whether the model makes vectors, and no tokens.
func (m *Model) encoder() bool { return model.Encoder(m.opened.Graph) }

// TokenizeOptions select the special tokens made by Tokenize. The zero value gives the ids of a prompt of Generate.
type TokenizeOptions struct {
	// ParseSpecial turns the name of a special token in the text, such as <|im_end|>, into the token. By default a name
	// is text. Never set ParseSpecial for a user's text.
	ParseSpecial bool
	// OmitSpecial leaves out the model's tokens around a text, such as BOS.
	OmitSpecial bool
	// Embed gives the ids used by Embed under these options, with its prompt before the text. Nil is none.
	Embed *EmbedOptions
}

// Tokenize returns the ids of a text. For a conversation there is TokenizeChat.
func (m *Model) Tokenize(ctx context.Context, text string, o TokenizeOptions) ([]int, error) {
	if o.Embed != nil {
		_, prompt, err := m.embedHead(*o.Embed)
		if err != nil {
			return nil, err
		}
		text = prompt + text
	}
	return m.tokenize(ctx, text, tokenizer.Options{ParseSpecial: o.ParseSpecial, AddSpecial: !o.OmitSpecial})
}

func (m *Model) tokenize(ctx context.Context, text string, o tokenizer.Options) (ids []int, err error) {
	if ctx == nil {
		return nil, errNilContext
	}
	for piece, err := range m.opened.Tokenizer.IDs(ctx, text, o) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, piece...)
	}
	return ids, nil
}

// Detokenize returns the text of ids, special tokens included.
func (m *Model) Detokenize(ids []int) string { return m.opened.Tokenizer.Decode(ids, false) }

// TokenBytes returns the bytes of a token. The bytes need not be UTF-8: a token may be a part of a character.
func (m *Model) TokenBytes(id int) []byte { return m.opened.Tokenizer.Bytes(id) }

// TokenText returns the text of a token, and the name of a special token. A token of a part of a character is no UTF-8.
func (m *Model) TokenText(id int) string {
	if b := m.TokenBytes(id); len(b) > 0 {
		return string(b)
	}
	return m.Detokenize([]int{id})
}

// Logits computes the logits after each id, in one sequence from position 0: [len(ids)][VocabSize].
func (m *Model) Logits(ctx context.Context, ids []int) ([][]float32, error) {
	return feed(ctx, m.opened.Engine, ids)
}

// feed computes ids in a sequence of e.
func feed(ctx context.Context, e *engine.Engine, ids []int) ([][]float32, error) {
	tokens, err := tokensOf(e, ids)
	if err != nil {
		return nil, err
	}
	s := e.NewSequence()
	defer s.Close()
	return s.Feed(ctx, tokens, len(ids))
}

// tokensOf converts ids for e, checked against the vocabulary.
func tokensOf(e *engine.Engine, ids []int) ([]int32, error) {
	tokens := make([]int32, len(ids))
	for i, id := range ids {
		if tokens[i] = int32(id); int(tokens[i]) != id {
			return nil, fmt.Errorf("token id %d, the vocabulary has %d", id, e.VocabSize())
		}
	}
	return tokens, nil
}

// Version returns the module's version, or "(devel)" in a checkout.
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

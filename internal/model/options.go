package model

import (
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/engine"
)

// Options say how to run a model. Numerics must be set; all else may be zero.
type Options struct {
	Numerics numerics.Numerics
	Threads  int      // 0 is sysinfo.Threads
	NoFuse   []string // fusions to do without
	NoFit    bool     // also open a model beyond the memory
	Memory   int64    // most bytes of the machine's memory to take; 0 is the free memory

	Adapters []Adapter // low-rank adapters
	// Projector is the file of the part for pictures, of a GGUF model; "" is a fitting one beside the model, if any.
	Projector string
	Head      bool // drafts by the model's head, if its file has one, on the CPU

	// Engine's Context is the tokens of a sequence, 1 to MaxContext; 0 is the model's own, at
	// most DefaultContext. Its Progress may be nil.
	Engine engine.Options
}

// DefaultContext bounds the context, in tokens, without a request: its keys and values stay small. MaxContext is the
// maximum of a request.
const (
	DefaultContext = 8192
	MaxContext     = 1 << 24
)

// Adapter is a low-rank adapter, a GGUF file or a PEFT folder.
type Adapter struct {
	Name string // "" is Path
	Path string
	By   float64 // the factor for sequences without a choice
}

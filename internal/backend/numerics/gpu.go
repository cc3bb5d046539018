package numerics

import (
	"errors"

	"github.com/karat-run/karat/internal/backend"
)

// ErrNotLinked is wrapped by the errors of those who ask for a GPU in a program that has none linked.
var ErrNotLinked = errors.New(`this program is built without GPUs; it needs import _ "github.com/karat-run/karat/webgpu"`)

// GPUs makes the backends of a machine's GPUs, numbered from 0.
type GPUs interface {
	// Matrices reports whether GPU n has matrix units that can be reached.
	Matrices(n int) bool
	// Open makes the backend of GPU n.
	Open(n int, o GPUOptions) (backend.Backend, error)
}

// GPUOptions say how a GPU computes.
type GPUOptions struct {
	KV       string   // keys and values: f16 or f32
	Matrices bool     // products of binary16 on matrix units
	NoFuse   []string // names of fusions to do without
}

// gpus is nil until a package registers its own.
var gpus GPUs

// Register makes g what "webgpu" names. A package that links GPUs calls it in its init;
// a second one panics, as two of the same name do in database/sql.
func Register(g GPUs) {
	if gpus != nil {
		panic("numerics: GPUs are registered twice")
	}
	gpus = g
}

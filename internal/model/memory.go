package model

import (
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/sysinfo"
)

// ErrMemory is wrapped by the errors of models that would not fit the memory.
var ErrMemory = errors.New("not enough memory")

// Fits returns an error that wraps ErrMemory if c's weights, as kept by n, and keys and values for context tokens, or
// budget bytes if less and not 0, are more than the machine's free memory. Threads 0 is sysinfo.Threads. A GPU's memory
// is checked at opening; if unknown, the upload of weights fails.
func Fits(c *checkpoint.Checkpoint, g *graph.Graph, n numerics.Numerics, threads, context int, budget int64) error {
	return fits(c, n.Repacked(g), cacheBytes(g, n, threads, context, budget), context, 0)
}

// FitsBudget returns an error that wraps engine.ErrBudget if a budget of keys and values, in bytes, has no room for the
// first page of a sequence on the CPU.
func FitsBudget(g *graph.Graph, n numerics.Numerics, budget int64) error {
	if one := n.CacheBytes(g, 0, 1); one > budget {
		return fmt.Errorf("%w: the first %d tokens of a sequence need %d bytes, it has %d",
			engine.ErrBudget, kv.PageSize, one, budget)
	}
	return nil
}

// cacheBytes returns the bytes of keys and values of context tokens, or budget if less and not 0.
func cacheBytes(g *graph.Graph, n numerics.Numerics, threads, context int, budget int64) int64 {
	cache := n.CacheBytes(g, threads, context)
	if budget > 0 {
		cache = min(cache, budget)
	}
	return cache
}

func fits(c *checkpoint.Checkpoint, repacked, cache int64, context int, most int64) error {
	if err := sysinfo.FitsIn(c.Bytes()+repacked, cache, context, most); err != nil {
		return fmt.Errorf("%s %w", c.Path, tooLarge{err})
	}
	return nil
}

// fitsRemote does Fits's work for the known memory of a GPU: g's weights there, bytes of adapters, and cache bytes of
// keys and values, the most of an explicit budget.
func fitsRemote(path string, b backend.Backend, g *graph.Graph, adapters, cache int64) error {
	r, ok := b.(backend.Remote)
	if !ok {
		return nil
	}
	name, all := r.Memory()
	weights := r.Weights(g) + adapters
	if all <= 0 || cache <= all-weights { // without a sum: a huge budget would overflow
		return nil
	}
	gib := func(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }
	return fmt.Errorf("%s %w", path, tooLarge{fmt.Errorf("needs %s (weights %s, keys and values %s), but %s has "+
		"only %s", gib(weights+cache), gib(weights), gib(cache), name, gib(all))})
}

// tooLarge is an ErrMemory with a text of its own.
type tooLarge struct{ error }

func (tooLarge) Is(target error) bool { return target == ErrMemory }

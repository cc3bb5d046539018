package cpu

import (
	"runtime"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
)

// TestPages: pages lie outside the heap, and are given back.
func TestPages(t *testing.T) {
	for _, kind := range []KVType{KVF16, KVF32} {
		a := newAttending(t, Options{Threads: 1, KV: kind}, 8, &graph.KV{Heads: 8, Dim: 128}, kv.PageSize+1, 2*kv.PageSize)
		a.step(0, kv.PageSize+1)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := a.store(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		c := a.e.step.Cache.(*cache)
		if want := int64(2 * kv.PageSize * 2 * 8 * 128 * kind.Bytes()); c.Bytes() != want || c.memory.bytes() != want {
			t.Errorf("%d bytes, of memory %d, want %d", c.Bytes(), c.memory.bytes(), want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
			t.Errorf("%d bytes of the heap", n)
		}
		if err := c.Close(); err != nil || c.memory.bytes() != 0 {
			t.Errorf("after Close %d bytes, %v", c.memory.bytes(), err)
		}
	}
}

// TestForeignCache: a cache has room for its backend's threads only.
func TestForeignCache(t *testing.T) {
	store := &graph.KV{Heads: 1, Dim: 32}
	one, three := newAttending(t, Options{Threads: 1}, 1, store, 1, 1), newAttending(t, Options{Threads: 3}, 1, store, 1, 1)
	for _, a := range []*attending{one, three} {
		a.step(0, 1)
		a.e.vocab = 1
	}
	one.e.step.Cache, three.e.step.Cache = three.e.step.Cache, one.e.step.Cache
	for _, a := range []*attending{one, three} {
		if _, err := a.e.Run(t.Context(), a.e.step, nil); err == nil || err.Error() != "the step's cache is not this backend's" {
			t.Errorf("with the cache of another backend: %v", err)
		}
	}
}

func (a *arena) bytes() (n int64) {
	for _, m := range a.parts {
		n += int64(len(m.Data()))
	}
	return n
}

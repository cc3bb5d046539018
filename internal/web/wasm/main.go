//go:build js

// Command wasm is Karat for a web page's worker, or for Node: it sets the global karat, an object of functions for
// loading models, running them and measuring them. gpu.Shim must have run before.
//
// Files in reading order: main.go (the global and loading), chat.go (answers), form.go (their forms and parts), full.go
// and lean.go (with and without the npm package's functions), proof.go (a model's proof), model.go (a loaded model),
// prompt.go (requests), values.go (values and errors for JavaScript), file.go (files of a model).
package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"syscall/js"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/checkpoint"
	opener "github.com/karat-run/karat/internal/model"
	_ "github.com/karat-run/karat/webgpu"
)

func main() {
	debug.SetGCPercent(10) // weights are most of the heap, and the memory never shrinks
	api := js.Global().Get("Object").New()
	api.Set("version", karat.Version())
	export(api, "adapters", func([]js.Value) (any, error) { return gpu.Adapters() }, nil)
	export(api, "check", check, nil)
	export(api, "load", load, nil)
	api.Set("sha256", js.FuncOf(func(js.Value, []js.Value) any { return newHash() }))
	js.Global().Set("karat", api)
	select {}
}

// loadOptions are the options of load.
type loadOptions struct {
	Backend string `json:"backend"`
	KV      string `json:"kv"`
	Context int    `json:"context"`
}

func load(args []js.Value) (any, error) {
	files, err := newFiles(argument(args, 0))
	if err != nil {
		return nil, err
	}
	options := argument(args, 1)
	var o loadOptions
	if err := read(options, "load", &o); err != nil {
		return nil, err
	}
	m := &model{files: files, o: karat.Options{Backend: karat.Backend(o.Backend), KV: karat.KVType(o.KV),
		Context: o.Context, Threads: 1}}
	progress := function(options, "onProgress")
	m.o.Progress = func(done, total int64) {
		if done == 0 {
			runtime.GC() // the remains of reading the vocabulary
		}
		spare(done)
		progress(done, total)
	}
	if err := m.choose(); err != nil {
		return nil, err
	}
	if err := m.open(); err != nil {
		return nil, unusable{err}
	}
	return m.object()
}

// check finds out whether files are a model known to Karat, without loading it.
func check(args []js.Value) (any, error) {
	files, err := newFiles(argument(args, 0))
	if err != nil {
		return nil, err
	}
	list, err := sources(files, false)
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.Read(list...)
	if err != nil {
		return nil, unusable{err}
	}
	defer c.Close()
	if _, _, err := opener.Graph(context.Background(), c, 0); err != nil {
		return nil, unusable{err}
	}
	return nil, nil
}

//go:build js

package main

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall/js"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
)

// model is a loaded model for JavaScript: an object of functions, running one at a time.
type model struct {
	files   []*file
	o       karat.Options
	adapter *gpu.Adapter // nil on the CPU
	notes   []string

	busy    sync.Mutex
	m       *karat.Model
	session *karat.Session
}

// choose finds the backend: by default the GPU, if there is one. A software GPU begins later than the CPU, and is
// hardly faster.
func (m *model) choose() error {
	if m.o.Backend == "cpu" {
		return nil
	}
	all, err := gpu.Adapters()
	why := ""
	switch {
	case err == nil && (m.o.Backend != "" || all[0].Kind != "cpu"):
		m.o.Backend, m.adapter = "webgpu", &all[0]
		return nil
	case err == nil:
		why = all[0].Name + " is a program that stands in for a GPU"
	case m.o.Backend != "":
		return err
	default:
		why = err.Error()
	}
	m.o.Backend, m.notes = "cpu", []string{why + ": the CPU computes"}
	return nil
}

// open loads the model.
func (m *model) open() (err error) {
	list, err := sources(m.files, m.adapter == nil)
	if err != nil {
		return err
	}
	files := make([]karat.Source, len(list))
	for i, f := range list {
		files[i] = karat.Source(f)
	}
	if m.m, err = karat.LoadSources(context.Background(), files, m.o); err == nil {
		m.session = m.m.NewSession()
		for _, f := range list {
			f.At.(*window).close()
		}
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		spare(int64(s.HeapAlloc))
	}
	return err
}

// spare lets garbage be 4 MiB of a heap: weights are most of the heap, and the memory never shrinks.
func spare(heap int64) {
	debug.SetGCPercent(int(max(1, min(10, 100*(4<<20)/max(1, heap)))))
}

// close frees the model, until the next open.
func (m *model) close() error {
	if m.m == nil {
		return nil
	}
	m.session.Close()
	err := m.m.Close()
	m.m = nil
	return err
}

// object returns m for JavaScript.
func (m *model) object() (js.Value, error) {
	o := js.Global().Get("Object").New()
	info, err := plain(m.info())
	if err != nil {
		return o, err
	}
	o.Set("info", info)
	all := map[string]func([]js.Value) (any, error){
		"render": m.render, "tokenize": m.tokenize, "generate": m.generate, "reset": m.reset, "stats": m.stats,
		"prove": m.prove, "nodes": m.nodes, "probe": m.probe, "change": m.change, "verify": m.verify,
	}
	maps.Copy(all, moreOf(m))
	for name, f := range all {
		export(o, name, func(args []js.Value) (any, error) {
			defer m.busy.Unlock()
			if m.m == nil {
				return nil, karat.ErrClosed
			}
			return f(args)
		}, func() error {
			if !m.busy.TryLock() {
				return errors.New("the model is busy with another call")
			}
			return nil
		})
	}
	o.Set("progress", js.FuncOf(func(js.Value, []js.Value) any { // beside another call
		done, total := m.session.Progress()
		return []any{done, total}
	}))
	export(o, "close", func([]js.Value) (any, error) {
		m.busy.Lock()
		defer m.busy.Unlock()
		return nil, m.close()
	}, nil)
	return o, nil
}

// info describes a model for the page.
type info struct {
	Name         string       `json:"name"`
	Format       string       `json:"format"`
	Architecture string       `json:"architecture"`
	Bytes        int64        `json:"bytes"`
	Vocab        int          `json:"vocab"`
	Context      int          `json:"context"`
	MaxContext   int          `json:"maxContext"`
	Template     string       `json:"template"`
	Notes        []string     `json:"notes"`
	Backend      string       `json:"backend"`
	Adapter      *gpu.Adapter `json:"adapter"`
	Threads      int          `json:"threads"`
	Sampling     sampling     `json:"sampling"`
	Sees         bool         `json:"sees"` // pictures
}

func (m *model) info() info {
	i := m.m.Info()
	return info{Name: i.Path, Format: i.Format, Architecture: i.Architecture, Bytes: i.Bytes, Vocab: i.VocabSize,
		Context: i.Context, MaxContext: i.MaxContext, Template: i.Template, Notes: append(m.notes, i.Notes...),
		Backend: string(m.o.Backend), Adapter: m.adapter, Threads: m.o.Threads, Sampling: sampling(m.m.Sampling()),
		Sees: m.m.Sees()}
}

// withPrompt calls f with the prompt in argument at, and its tokens. The options after the prompt may hold a signal.
func (m *model) withPrompt(args []js.Value, at int, what string,
	f func(ctx context.Context, p prompt, ids []int) (any, error)) (any, error) {
	p, err := readPrompt(argument(args, at))
	if err != nil {
		return nil, err
	}
	var o generateOptions
	if err := read(argument(args, at+1), what, &o); err != nil {
		return nil, err
	}
	p.options = o.options()
	p.options.Tools = o.tools()
	ctx, end := until(argument(args, at+1))
	defer end()
	var ids []int
	if p.messages == nil {
		ids, err = m.m.Tokenize(ctx, p.text, karat.TokenizeOptions{})
	} else {
		ids, err = m.m.TokenizeChat(ctx, p.messages, p.options)
	}
	if err != nil {
		return nil, err
	}
	return f(ctx, p, ids)
}

func (m *model) tokenize(args []js.Value) (any, error) {
	o := karat.TokenizeOptions{ParseSpecial: argument(args, 1).Truthy()}
	ids, err := m.m.Tokenize(context.Background(), argument(args, 0).String(), o)
	return tokensOf(m, ids), err
}

func (m *model) render(args []js.Value) (any, error) {
	return m.withPrompt(args, 0, "render", func(ctx context.Context, p prompt, ids []int) (_ any, err error) {
		text := p.text
		if p.messages != nil {
			text, err = m.m.Render(ctx, p.messages, p.options)
		}
		return map[string]any{"text": text, "tokens": tokensOf(m, ids)}, err
	})
}

func (m *model) reset([]js.Value) (any, error) {
	m.session.Close()
	m.session = m.m.NewSession()
	return nil, nil
}

// stats returns the memory in use, in bytes.
func (m *model) stats([]js.Value) (any, error) {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return map[string]any{"wasmBytes": s.Sys, "heapBytes": s.HeapInuse, "gpuBytes": gpu.Bytes()}, nil
}

// aside runs f with the model put aside, if memory has no room for two.
func (m *model) aside(f func() error) error {
	if m.m.Info().Bytes < large {
		return f()
	}
	if err := m.close(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return errors.Join(err, m.open())
	}
	return m.open()
}

// large is the size of weights not to be loaded twice.
const large = 256 << 20

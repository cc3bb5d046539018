//go:build js

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"syscall/js"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/jsasync"
	"github.com/karat-run/karat/internal/web/probe"
	"github.com/karat-run/karat/jinja"
)

// export gives an object a function returning a promise of f's result, in JavaScript's objects. begin, if any, runs
// before the call returns, so that calls begin in order; an error of begin is the result.
func export(o js.Value, name string, f func(args []js.Value) (any, error), begin func() error) {
	o.Set(name, js.FuncOf(func(_ js.Value, args []js.Value) any {
		var err error
		if begin != nil {
			err = begin()
		}
		return jsasync.New(func() (v any, _ error) {
			if err == nil {
				v, err = f(args)
			}
			if err == nil {
				v, err = plain(v)
			}
			if err != nil {
				return nil, failure{err}
			}
			return v, nil
		})
	}))
}

// kinds are the words of errors.
var kinds = []struct {
	is   error
	kind string
}{
	{context.Canceled, "aborted"}, {gpu.ErrLost, "lost"}, {gpu.ErrNone, "no-gpu"}, {gpu.ErrShader, "shader"},
	{gpu.ErrMemory, "memory"}, {karat.ErrFull, "full"}, {chat.ErrNoTemplate, "template"},
	{checkpoint.ErrUnsupported, "architecture"},
}

// failure is an error with a word for programs.
type failure struct{ error }

// Kind returns the error's word.
func (f failure) Kind() string {
	for _, k := range kinds {
		if errors.Is(f.error, k.is) {
			return k.kind
		}
	}
	switch {
	case errors.As(f.error, new(*jinja.Error)):
		return "template"
	case errors.As(f.error, new(unusable)):
		return "file"
	}
	return "other"
}

// unusable is an error about a model's files.
type unusable struct{ error }

func (u unusable) Unwrap() error { return u.error }

// argument returns args[i], or undefined.
func argument(args []js.Value, i int) js.Value {
	if i < len(args) {
		return args[i]
	}
	return js.Undefined()
}

// plain returns v as JavaScript's own objects, by its JSON form.
func plain(v any) (js.Value, error) {
	if v, ok := v.(js.Value); ok {
		return v, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return js.Undefined(), err
	}
	return js.Global().Get("JSON").Call("parse", string(data)), nil
}

// read reads v, an object, into the fields of to. Functions and absent fields are left out.
func read(v js.Value, what string, to any) error {
	if v.IsUndefined() || v.IsNull() {
		return nil
	}
	text := js.Global().Get("JSON").Call("stringify", v)
	if text.Type() != js.TypeString {
		return fmt.Errorf("%s: no object", what)
	}
	if err := json.Unmarshal([]byte(text.String()), to); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// function returns o's function of a name, or a function without effect.
func function(o js.Value, name string) func(args ...any) {
	if o.Type() == js.TypeObject {
		if f := o.Get(name); f.Type() == js.TypeFunction {
			return func(args ...any) { f.Invoke(args...) }
		}
	}
	return func(...any) {}
}

// patience is how long computing may keep JavaScript's event loop from its events.
const patience = 40 * time.Millisecond

// patient is a context for the only thread: its Err, called often by computations, gives the event loop its turn.
type patient struct {
	context.Context
	last time.Time
}

func (p *patient) Err() error {
	if time.Since(p.last) > patience {
		time.Sleep(time.Millisecond)
		p.last = time.Now()
	}
	return p.Context.Err()
}

// until returns a context ended by the AbortSignal of options.
func until(options js.Value) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signal := js.Undefined()
	if options.Type() == js.TypeObject {
		signal = options.Get("signal")
	}
	if signal.Type() != js.TypeObject {
		return &patient{ctx, time.Now()}, cancel
	}
	if signal.Get("aborted").Bool() {
		cancel()
	}
	f := js.FuncOf(func(js.Value, []js.Value) any {
		cancel()
		return nil
	})
	signal.Call("addEventListener", "abort", f)
	return &patient{ctx, time.Now()}, func() {
		signal.Call("removeEventListener", "abort", f)
		f.Release()
		cancel()
	}
}

// newHash returns a SHA-256 of the written bytes: write(bytes), and sum(), in hexadecimal, as the end.
func newHash() js.Value {
	h, buf := sha256.New(), make([]byte, 64<<10)
	o := js.Global().Get("Object").New()
	write := js.FuncOf(func(_ js.Value, args []js.Value) any {
		for b := args[0]; b.Length() > 0; {
			n := js.CopyBytesToGo(buf, b)
			h.Write(buf[:n])
			b = b.Call("subarray", n)
		}
		return nil
	})
	var sum js.Func
	sum = js.FuncOf(func(js.Value, []js.Value) any {
		write.Release()
		sum.Release()
		return hex.EncodeToString(h.Sum(nil))
	})
	o.Set("write", write)
	o.Set("sum", sum)
	return o
}

// token is a token and its text.
type token struct {
	ID   int    `json:"id"`
	Text string `json:"text"`
}

// tokensOf returns tokens for JavaScript.
func tokensOf(m *model, ids []int) []token {
	list := make([]token, len(ids))
	for i, id := range ids {
		list[i] = token{id, probe.Text(m.m.TokenBytes(id))}
	}
	return list
}

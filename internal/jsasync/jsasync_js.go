// Package jsasync lets goroutines wait for JavaScript's promises, and JavaScript
// for goroutines. It exists in builds for js.
package jsasync

import (
	"errors"
	"fmt"
	"syscall/js"
)

// Await returns the value of a promise, or its reason as an error. The goroutine sleeps,
// and the event loop goes on; so a callback from JavaScript must not call it. A value
// that is not a promise is returned unchanged.
func Await(v js.Value) (js.Value, error) {
	if v.Type() != js.TypeObject || v.Get("then").Type() != js.TypeFunction {
		return v, nil
	}
	type outcome struct {
		value js.Value
		err   error
	}
	done := make(chan outcome, 1)
	fulfilled := js.FuncOf(func(_ js.Value, args []js.Value) any {
		done <- outcome{value: first(args)}
		return nil
	})
	defer fulfilled.Release()
	rejected := js.FuncOf(func(_ js.Value, args []js.Value) any {
		done <- outcome{err: Error(first(args))}
		return nil
	})
	defer rejected.Release()
	v.Call("then", fulfilled, rejected)
	r := <-done
	return r.value, r.err
}

func first(args []js.Value) js.Value {
	if len(args) == 0 {
		return js.Undefined()
	}
	return args[0]
}

// Error is what JavaScript threw, as an error of the same message.
func Error(v js.Value) error {
	if v.Type() == js.TypeObject && v.Get("message").Type() == js.TypeString {
		return errors.New(v.Get("message").String())
	}
	return errors.New(js.Global().Get("String").Invoke(v).String())
}

// Call is object.method(args...). What the method throws is an error.
func Call(object js.Value, method string, args ...any) (v js.Value, err error) {
	defer func() {
		if x := recover(); x != nil {
			thrown, ok := x.(js.Error)
			if !ok {
				panic(x)
			}
			err = fmt.Errorf("%s: %w", method, Error(thrown.Value))
		}
	}()
	return object.Call(method, args...), nil
}

// New is a promise of f's value, which runs in a goroutine of its own. An error, and
// a panic, is its reason, as an Error, whose kind is the error's Kind() where it has one.
func New(f func() (any, error)) js.Value {
	executor := js.FuncOf(func(_ js.Value, settle []js.Value) any {
		go func() {
			v, err := protected(f)
			if err != nil {
				e := js.Global().Get("Error").New(err.Error())
				if k, ok := err.(interface{ Kind() string }); ok {
					e.Set("kind", k.Kind())
				}
				settle[1].Invoke(e)
				return
			}
			settle[0].Invoke(v)
		}()
		return nil
	})
	defer executor.Release() // the constructor has called it
	return js.Global().Get("Promise").New(executor)
}

// protected is f(), whose panics are errors: the program lives on.
func protected(f func() (any, error)) (v any, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("this is a bug: %v", x)
		}
	}()
	return f()
}

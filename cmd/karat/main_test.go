package main

import (
	"errors"
	"testing"
)

// TestErrorText names a file once, whatever its problems are, and keeps line ends of strangers visible.
func TestErrorText(t *testing.T) {
	for _, x := range []struct {
		err  error
		want string
	}{
		{errors.New("a\nb"), "a⏎b"},
		{errors.Join(errors.New("m.gguf: A is missing"), errors.New("m.gguf: B is missing"), errors.New("n: C")), "m.gguf: A is missing; B is missing; n: C"},
		{errors.Join(errors.New("one")), "one"},
	} {
		if got := errorText(x.err); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

//go:build !nogpu

package gpu

import (
	"errors"
	"strings"
	"syscall/js"
	"testing"
)

// TestLost: a device that is lost, while nothing runs or while something does, is an
// error at once and from then on, and another can be opened.
func TestLost(t *testing.T) {
	for range 2 {
		d := open(t)
		b := buffers(t, d, 1024)[0]
		var l List
		l.Read(make([]byte, 1024), b, 0)
		if err := d.Run(&l); err != nil {
			t.Fatal(err)
		}
		raw := d.(*device).binding.(*browser).js.Get("device")
		submit := raw.Get("queue").Get("submit")
		f := js.FuncOf(func(queue js.Value, args []js.Value) any { // as what runs has it
			submit.Call("call", queue, args[0])
			raw.Call("destroy")
			return nil
		})
		raw.Get("queue").Set("submit", f)
		for range 2 {
			if err := d.Run(&l); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), d.Adapter().Name) {
				t.Error("Run:", err)
			}
		}
		f.Release()
		if _, err := d.NewBuffer("b", 16); !errors.Is(err, ErrLost) {
			t.Error("NewBuffer:", err)
		}
		if _, err := d.NewPipeline("double", double, nil); !errors.Is(err, ErrLost) {
			t.Error("NewPipeline:", err)
		}
	}
}

// TestScopes: what the browser finds wrong is an error that names the thing, and the
// device goes on.
func TestScopes(t *testing.T) {
	d := open(t)
	raw := d.(*device).binding.(*browser).js.Get("device")
	pop := raw.Get("popErrorScope")
	f := js.FuncOf(func(device js.Value, _ []js.Value) any {
		pop.Call("call", device)
		return js.Global().Get("Promise").Call("resolve", map[string]any{"message": "Out of memory"})
	})
	defer f.Release()
	raw.Set("popErrorScope", f)
	if _, err := d.NewBuffer("blk.0.ffn_up", 1024); err == nil || err.Error() != "buffer blk.0.ffn_up of 1024 bytes: no memory: Out of memory" {
		t.Error(err)
	}
	raw.Set("popErrorScope", pop)
	access := []Access{Uniform, Read, ReadWrite}
	if _, err := d.NewPipeline("typed", strings.Replace(double, "2u *", "missing *", 1), access); err == nil || !strings.Contains(err.Error(), "shader typed: line 9: ") {
		t.Error(err)
	}
	p, err := d.NewPipeline("double", double, access)
	if err != nil {
		t.Fatal(err)
	}
	b := buffers(t, d, 16, 1<<17, 1024)
	var l List
	l.Write(b[0], 0, make([]byte, 16))
	if _, err := d.NewGroup(p, Range{Buffer: b[1]}, Range{Buffer: b[0]}, Range{Buffer: b[2]}); err != nil { // more than a uniform may have
		t.Fatal(err)
	}
	if err := d.Run(&l); err == nil || !strings.HasPrefix(err.Error(), "double: ") {
		t.Error("a group that the browser refuses:", err)
	}
	g, err := d.NewGroup(p, Range{Buffer: b[0], Size: 8}, Range{Buffer: b[1]}, Range{Buffer: b[2]}) // less than the shader reads
	if err != nil {
		t.Fatal(err)
	}
	l.Dispatch(p, g, 1, 1, 1)
	if err := d.Run(&l); err == nil {
		t.Error("a dispatch that the browser refuses:", err)
	}
	l.Reset()
	l.Read(make([]byte, 16), b[0], 0)
	if err := d.Run(&l); err != nil {
		t.Error("after the errors:", err)
	}
}

// TestTimes: gpu.js takes the times of kernels when it is told to, and knows what is in use.
func TestTimes(t *testing.T) {
	before := Bytes()
	d := open(t)
	p, err := d.NewPipeline("double", double, []Access{Uniform, Read, ReadWrite})
	if err != nil {
		t.Fatal(err)
	}
	b := buffers(t, d, 16, 4096, 4096)
	if got := Bytes() - before; got != 16+2*4096 {
		t.Errorf("%d bytes are in use", got)
	}
	g, err := d.NewGroup(p, Range{Buffer: b[0]}, Range{Buffer: b[1]}, Range{Buffer: b[2]})
	if err != nil {
		t.Fatal(err)
	}
	var l List
	l.Write(b[0], 0, words(4, func(int) uint32 { return 1000 }))
	for range 3 {
		l.Dispatch(p, g, 16, 1, 1)
	}
	back := make([]byte, 4096)
	l.Read(back, b[2], 0)
	s, err := shim()
	if err != nil {
		t.Fatal(err)
	}
	s.Call("time", true)
	for range 2 {
		if err := d.Run(&l); err != nil {
			t.Fatal(err)
		}
	}
	all := s.Call("time", false)
	if !d.Adapter().Timestamps {
		t.Skip("there are no time stamps")
	}
	if all.Length() != 1 || all.Index(0).Get("name").String() != "double" || all.Index(0).Get("dispatches").Int() != 6 || !(all.Index(0).Get("seconds").Float() > 0) {
		t.Error("times:", js.Global().Get("JSON").Call("stringify", all).String())
	}
	if back[0] != 1 {
		t.Error("a timed kernel did not run")
	}
	b[1].Release()
	if got := Bytes() - before; got != 16+4096 {
		t.Errorf("%d bytes are in use behind a release", got)
	}
	if err := d.Close(); err != nil || Bytes() != before {
		t.Errorf("%d bytes are in use behind the end: %v", Bytes()-before, err)
	}
}

//go:build !nogpu

package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall/js"
	"time"
	"unsafe"

	"github.com/karat-run/karat/internal/jsasync"
)

// A call from Go to JavaScript costs microseconds, so a list is encoded as words, replayed by gpu.js in one call.
// gpu.js holds the objects of WebGPU, by number.

// upload is how many bytes of writes are handed over at once.
const upload = 4 << 20

// shim returns gpu.js as an object.
func shim() (js.Value, error) {
	s := js.Global().Get("karatGPU")
	if s.IsUndefined() {
		return s, fmt.Errorf("%w: gpu.js was not loaded", ErrNone)
	}
	return s, nil
}

// Bytes returns the memory of the buffers of all devices.
func Bytes() int64 {
	s, err := shim()
	if err != nil {
		return 0
	}
	return int64(s.Call("bytes").Float())
}

// Reaches returns false: no matrix units are in reach.
func Reaches() bool { return false }

// Adapters lists the browser's GPUs: a single GPU, or an error that wraps ErrNone.
func Adapters() ([]Adapter, error) {
	s, err := shim()
	if err != nil {
		return nil, err
	}
	v, err := jsasync.Await(s.Call("describe"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	a := Adapter{Name: v.Get("name").String(), API: "WebGPU", Kind: "other", Limits: standard,
		Timestamps: v.Get("timestamps").Bool()}
	if v.Get("fallback").Bool() {
		a.Kind = "cpu"
	}
	has := func(name string) uint64 { return uint64(v.Get(name).Int()) }
	a.Limits.lower(has("buffer"), has("binding"), has("bindings"), has("groups"), has("invocations"),
		has("workgroupBytes"))
	return []Adapter{a}, nil
}

// Open opens the n-th of Adapters.
func Open(n int) (Device, error) {
	all, err := Adapters()
	if err != nil {
		return nil, err
	}
	if n < 0 || n >= len(all) {
		return nil, Missing(n, len(all))
	}
	s, err := shim()
	if err != nil {
		return nil, err
	}
	v, err := jsasync.Await(s.Call("open"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", all[n].Name, err)
	}
	return newDevice(all[n], &browser{js: v, data: v.Call("room", upload)}), nil
}

// browser is the binding to gpu.js.
type browser struct {
	js     js.Value // a Device of gpu.js
	ids    int      // of objects so far
	unused []int    // released ones
	data   js.Value // memory of writes until replayed, of upload bytes
	staged int      // bytes of the writes
	words  []uint32 // commands to replay
}

// id is the number of an object in gpu.js.
type id int

// pipeline is a pipeline's number.
type pipeline struct {
	id
	name  string
	ready bool // compiled by the driver
}

// add numbers a new object, from 1.
func (d *browser) add() id {
	if n := len(d.unused); n > 0 {
		i := d.unused[n-1]
		d.unused = d.unused[:n-1]
		return id(i)
	}
	d.ids++
	return id(d.ids)
}

func (d *browser) free(made any) {
	if p, ok := made.(*pipeline); ok {
		made = p.id
	}
	i := int(made.(id))
	d.js.Call("release", i)
	d.unused = append(d.unused, i)
}

// make has gpu.js make an object, and waits.
func (d *browser) make(method string, i id, args ...any) error {
	p, err := jsasync.Call(d.js, method, append([]any{int(i)}, args...)...)
	if err != nil {
		return err
	}
	wrong, err := jsasync.Await(p)
	if err == nil && wrong.Type() == js.TypeString && wrong.String() != "" {
		d.free(i)
		return errors.New(wrong.String())
	}
	return err
}

func (d *browser) lost() string { return d.js.Get("lost").String() }

func (d *browser) newBuffer(name string, size int) (any, error) {
	b := d.add()
	if err := d.make("buffer", b, name, size); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return b, nil
}

// newPipeline implements binding. The browser looks for faults of the shader; the driver, perhaps slowly, compiles the
// shader for its first run.
func (d *browser) newPipeline(name, wgsl string, access []Access) (any, error) {
	list := make([]any, len(access))
	for i, a := range access {
		list[i] = int(a)
	}
	p := &pipeline{id: d.add(), name: name}
	return p, d.make("pipeline", p.id, name, wgsl, list)
}

// newGroup implements binding. The browser's objections to the group come with the next run.
func (d *browser) newGroup(name string, p any, ranges []Range) (any, error) {
	var list []any
	for _, r := range ranges {
		list = append(list, int(madeOf[id](r.Buffer)), r.At, r.Size)
	}
	g := d.add()
	_, err := jsasync.Call(d.js, "group", int(g), name, int(p.(*pipeline).id), list)
	return g, err
}

// close implements binding. The device frees its buffers.
func (d *browser) close(func()) error {
	d.js.Call("destroy")
	return nil
}

// The commands of gpu.js.
const (
	opWrite = iota
	opCopy
	opDispatch
	opRead
	opStamp
)

// run implements binding.
func (d *browser) run(l *List, n counts) error {
	if err := d.compiled(l); err != nil {
		return err
	}
	if n.read += n.read & 4; n.write+n.read+n.stamps+len(l.commands) == 0 { // stamps lie at multiples of 8
		return nil
	}
	if err := l.fill(); err != nil {
		return err
	}
	d.js.Call("begin", n.read, n.stamps)
	back := 0
	for i := range l.commands {
		c := &l.commands[i]
		switch c.kind {
		case write:
			d.write(c)
		case copyBuffer:
			d.words = append(d.words, opCopy, uint32(madeOf[id](c.dst)), uint32(c.to), uint32(madeOf[id](c.src)),
				uint32(c.from), uint32(c.size))
		case dispatch:
			d.words = append(d.words, opDispatch, uint32(madeOf[*pipeline](c.pipeline).id), uint32(madeOf[id](c.group)),
				uint32(c.x), uint32(c.y), uint32(c.z))
		case read:
			d.words = append(d.words, opRead, uint32(madeOf[id](c.src)), uint32(c.from), uint32(back), uint32(c.size))
			back += c.size
		case stamp:
			if n.stamps > 0 {
				d.words = append(d.words, opStamp)
			}
		}
	}
	d.replay()
	all, err := jsasync.Await(d.js.Call("end"))
	if err != nil || d.lost() != "" {
		return err
	}
	d.fetch(l, all, n)
	return nil
}

// compiled has the pipelines of a list compiled, all at once, and waits.
func (d *browser) compiled(l *List) error {
	started := map[*pipeline]js.Value{}
	for i := range l.commands {
		if l.commands[i].kind != dispatch {
			continue
		}
		if p := madeOf[*pipeline](l.commands[i].pipeline); !p.ready {
			p.ready = true
			started[p] = d.js.Call("ready", int(p.id))
		}
	}
	for p, v := range started {
		wrong, err := jsasync.Await(v)
		if err != nil {
			return err
		}
		if wrong.String() != "" {
			p.ready = false
			return fmt.Errorf("%w %s: %w", ErrShader, p.name, errors.New(wrong.String()))
		}
	}
	return nil
}

// fill makes the data to write.
func (l *List) fill() error {
	for i := range l.commands {
		if c := &l.commands[i]; c.fill != nil {
			c.data = make([]byte, c.size)
			if err := c.fill(c.data); err != nil {
				return err
			}
		}
	}
	return nil
}

// write encodes a write, in as many pieces as have room.
func (d *browser) write(c *command) {
	for at := 0; at < c.size; {
		if d.staged == upload {
			d.replay()
		}
		n := min(c.size-at, upload-d.staged)
		js.CopyBytesToJS(d.data.Call("subarray", d.staged), c.data[at:at+n])
		d.words = append(d.words, opWrite, uint32(madeOf[id](c.dst)), uint32(c.to+at), uint32(d.staged), uint32(n))
		d.staged += n
		at += n
	}
}

// replay hands over the encoded list.
func (d *browser) replay() {
	if n := len(d.words); n > 0 {
		js.CopyBytesToJS(d.js.Call("script", cap(d.words)),
			unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(d.words))), 4*n))
		d.js.Call("replay", n)
		d.words, d.staged = d.words[:0], 0
	}
}

// fetch fills the list's reads, and gives its stamps their times.
func (d *browser) fetch(l *List, back js.Value, n counts) {
	if n.read+n.stamps == 0 {
		return
	}
	at := 0
	for i := range l.commands {
		if c := &l.commands[i]; c.kind == read {
			js.CopyBytesToGo(c.data, back.Call("subarray", at))
			at += c.size
		}
	}
	ticks := make([]byte, 8*n.stamps)
	js.CopyBytesToGo(ticks, back.Call("subarray", n.read))
	d.js.Call("taken")
	for i := range n.stamps {
		l.times = append(l.times,
			time.Duration(binary.LittleEndian.Uint64(ticks[8*i:])-binary.LittleEndian.Uint64(ticks)))
	}
}

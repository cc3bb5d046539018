//go:build !nogpu

package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall/js"
	"time"
	"unsafe"

	"github.com/karat-run/karat/internal/jsasync"
)

// A call from Go to JavaScript costs microseconds, so a list is encoded as words, which
// gpu.js replays with one call. Objects of WebGPU are there, by number.

// upload is how many bytes of writes are handed over at once.
const upload = 4 << 20

// shim is gpu.js, as an object.
func shim() (js.Value, error) {
	s := js.Global().Get("karatGPU")
	if s.IsUndefined() {
		return s, fmt.Errorf("%w: gpu.js was not loaded", ErrNone)
	}
	return s, nil
}

// Bytes is what the buffers of all devices take.
func Bytes() int64 {
	s, err := shim()
	if err != nil {
		return 0
	}
	return int64(s.Call("bytes").Float())
}

// Adapters lists the GPUs that the browser gives: one, or an error that wraps ErrNone.
func Adapters() ([]Adapter, error) {
	s, err := shim()
	if err != nil {
		return nil, err
	}
	v, err := jsasync.Await(s.Call("describe"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNone, err)
	}
	a := Adapter{Name: v.Get("name").String(), API: "WebGPU", Kind: "other", Limits: standard, Timestamps: v.Get("timestamps").Bool()}
	if v.Get("fallback").Bool() {
		a.Kind = "cpu"
	}
	l := &a.Limits
	for name, to := range map[string]*int{"buffer": &l.Buffer, "binding": &l.Binding, "bindings": &l.Bindings, "groups": &l.Groups,
		"invocations": &l.Invocations, "workgroupBytes": &l.WorkgroupBytes} {
		*to = min(*to, v.Get(name).Int())
	}
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
	return &device{adapter: all[n], js: v, data: v.Call("room", upload)}, nil
}

// device is a Device.
type device struct {
	adapter Adapter
	js      js.Value // a Device of gpu.js
	ids     int      // of objects so far
	unused  []int    // released ones
	data    js.Value // where writes lie until they are replayed, of upload bytes
	staged  int      // bytes of them
	words   []uint32 // commands that are to be replayed
	lost    error    // why nothing runs any more
}

// object is something that gpu.js has.
type object struct {
	d  *device
	id int // 0 is none
}

// add numbers a new object, from 1.
func (d *device) add() *object {
	if n := len(d.unused); n > 0 {
		id := d.unused[n-1]
		d.unused = d.unused[:n-1]
		return &object{d, id}
	}
	d.ids++
	return &object{d, d.ids}
}

// Release implements Buffer, Pipeline and Group.
func (o *object) Release() {
	if o.id != 0 {
		o.d.js.Call("release", o.id)
		o.d.unused, o.id = append(o.d.unused, o.id), 0
	}
}

type buffer struct {
	*object
	size int
}

func (b *buffer) Size() int { return b.size }

type pipeline struct {
	*object
	name   string
	access []Access
	ready  bool // the driver has compiled it
}

// Adapter implements Device.
func (d *device) Adapter() Adapter { return d.adapter }

// make has gpu.js make an object, and waits. An error of JavaScript's is the device's.
func (d *device) make(method string, o *object, args ...any) error {
	p, err := jsasync.Call(d.js, method, append([]any{o.id}, args...)...)
	if err != nil {
		return err
	}
	wrong, err := jsasync.Await(p)
	if err := d.check(err); err != nil {
		return err
	}
	if wrong.Type() == js.TypeString && wrong.String() != "" {
		o.Release()
		return errors.New(wrong.String())
	}
	return nil
}

// check is err, or that the device is lost.
func (d *device) check(err error) error {
	if why := d.js.Get("lost").String(); why != "" && d.lost == nil {
		d.lost = fmt.Errorf("%s: %w: %s", d.adapter.Name, ErrLost, why)
	}
	if d.lost != nil {
		return d.lost
	}
	return err
}

// NewBuffer implements Device.
func (d *device) NewBuffer(name string, size int) (Buffer, error) {
	if err := d.check(d.adapter.Limits.checkSize(name, size)); err != nil {
		return nil, err
	}
	b := &buffer{d.add(), size}
	if err := d.make("buffer", b.object, name, size); err != nil {
		if d.lost != nil {
			return nil, d.lost
		}
		return nil, fmt.Errorf("buffer %s of %d bytes: %w: %w", name, size, ErrMemory, err)
	}
	return b, nil
}

// NewPipeline implements Device. The browser looks for faults of the shader; the
// driver, which may be slow, compiles it for the first run that wants it.
func (d *device) NewPipeline(name, wgsl string, access []Access) (Pipeline, error) {
	if err := d.check(nil); err != nil {
		return nil, err
	}
	list := make([]any, len(access))
	for i, a := range access {
		list[i] = int(a)
	}
	p := &pipeline{object: d.add(), name: name, access: access}
	if err := d.make("pipeline", p.object, name, wgsl, list); err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrShader, name, err)
	}
	return p, nil
}

// NewGroup implements Device. What the browser has against it is told by the next run.
func (d *device) NewGroup(of Pipeline, ranges ...Range) (Group, error) {
	if err := d.check(nil); err != nil {
		return nil, err
	}
	p := of.(*pipeline)
	ranges = slices.Clone(ranges)
	if err := d.adapter.Limits.checkRanges(p.name, p.access, ranges); err != nil {
		return nil, err
	}
	var list []any
	for _, r := range ranges {
		list = append(list, r.Buffer.(*buffer).id, r.At, r.Size)
	}
	g := d.add()
	if _, err := jsasync.Call(d.js, "group", g.id, p.name, p.id, list); err != nil {
		return nil, fmt.Errorf("shader %s: %w", p.name, err)
	}
	return g, nil
}

// Close implements Device.
func (d *device) Close() error {
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

// Run implements Device.
func (d *device) Run(l *List) error {
	if err := d.check(nil); err != nil {
		return err
	}
	n, err := l.count(&d.adapter)
	if err != nil {
		return err
	}
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
			d.words = append(d.words, opCopy, id(c.dst), uint32(c.to), id(c.src), uint32(c.from), uint32(c.size))
		case dispatch:
			d.words = append(d.words, opDispatch, uint32(c.pipeline.(*pipeline).id), uint32(c.group.(*object).id), uint32(c.x), uint32(c.y), uint32(c.z))
		case read:
			d.words = append(d.words, opRead, id(c.src), uint32(c.from), uint32(back), uint32(c.size))
			back += c.size
		case stamp:
			if n.stamps > 0 {
				d.words = append(d.words, opStamp)
			}
		}
	}
	d.replay()
	all, err := jsasync.Await(d.js.Call("end"))
	if d.check(err); d.lost != nil {
		return d.lost
	}
	if err != nil {
		return err
	}
	d.fetch(l, all, n)
	return nil
}

// compiled has the pipelines of a list compiled, all at once, and waits.
func (d *device) compiled(l *List) error {
	started := map[*pipeline]js.Value{}
	for i := range l.commands {
		if p, ok := l.commands[i].pipeline.(*pipeline); ok && !p.ready {
			p.ready = true
			started[p] = d.js.Call("ready", p.id)
		}
	}
	for p, v := range started {
		wrong, err := jsasync.Await(v)
		if err := d.check(err); err != nil {
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

func id(b Buffer) uint32 { return uint32(b.(*buffer).id) }

// write encodes a write, in as many pieces as have room.
func (d *device) write(c *command) {
	for at := 0; at < c.size; {
		if d.staged == upload {
			d.replay()
		}
		n := min(c.size-at, upload-d.staged)
		js.CopyBytesToJS(d.data.Call("subarray", d.staged), c.data[at:at+n])
		d.words = append(d.words, opWrite, id(c.dst), uint32(c.to+at), uint32(d.staged), uint32(n))
		d.staged += n
		at += n
	}
}

// replay hands over the encoded list.
func (d *device) replay() {
	if n := len(d.words); n > 0 {
		js.CopyBytesToJS(d.js.Call("script", cap(d.words)), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(d.words))), 4*n))
		d.js.Call("replay", n)
		d.words, d.staged = d.words[:0], 0
	}
}

// fetch gives the list's reads what they wanted, and its stamps their times.
func (d *device) fetch(l *List, back js.Value, n counts) {
	l.times = nil
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
		l.times = append(l.times, time.Duration(binary.LittleEndian.Uint64(ticks[8*i:])-binary.LittleEndian.Uint64(ticks)))
	}
}

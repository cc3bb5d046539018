//go:build !nogpu && ((linux && !android) || darwin) && (amd64 || arm64)

package gpu

import (
	"errors"
	"fmt"
	"unsafe"
)

// run implements binding.
func (d *cDevice) run(l *List, n counts) error {
	err := d.stage(l, n)
	if err == nil {
		err = d.scoped(func() { d.submit(l, n) })
	}
	if err == nil && d.lost() == "" {
		err = d.fetch(l, n)
	}
	return err
}

// room makes *b a buffer of at least size bytes; sizes change often.
func (d *cDevice) room(b **cBuffer, name string, size int, usage uint64) error {
	if *b != nil {
		if (*b).size >= size {
			return nil
		}
		d.free(*b)
		*b = nil
	}
	made, err := d.buffer(name, roomySize(size), usage)
	if err == nil {
		*b = made
	}
	return err
}

// stage makes room for the host's writes, reads and times, and copies the writes there: the library's own way of
// writing makes a new buffer for each large write.
func (d *cDevice) stage(l *List, n counts) error {
	if err := d.room(&d.up, "upload", max(n.write, 4), usageMapWrite|usageCopySrc); err != nil {
		return err
	}
	if n.write > 0 {
		all, err := d.mapped(d.up, mapWrite, n.write)
		if err != nil {
			return err
		}
		err = l.stage(all)
		d.call("wgpuBufferUnmap", d.up.handle)
		if err != nil {
			return err
		}
	}
	if n.stamps > d.stamped {
		if d.stamps != 0 {
			d.call("wgpuQuerySetRelease", d.stamps)
		}
		d.stamps, d.stamped = d.call("wgpuDeviceCreateQuerySet", d.device,
			unsafe.Pointer(&querySetDescriptor{kind: queryTimestamp, count: uint32(n.stamps)})), n.stamps
	}
	if err := d.room(&d.ticks, "stamps", 8*n.stamps, usageQueryResolve|usageCopySrc); err != nil {
		return err
	}
	return d.room(&d.down, "readback", readback(n), usageMapRead|usageCopyDst)
}

// mapped returns the memory of a buffer open to the host, once the device is done. The caller unmaps the buffer.
func (d *cDevice) mapped(b *cBuffer, mode, size int) ([]byte, error) {
	a := d.ask(callbacks().mapped, "wgpuBufferMapAsync", b.handle, mode, 0, size)
	if a.status != statusSuccess {
		return nil, errors.New(oneLine(a.message))
	}
	get := "wgpuBufferGetConstMappedRange"
	if mode == mapWrite {
		get = "wgpuBufferGetMappedRange"
	}
	at := d.call(get, b.handle, 0, size)
	if at == 0 {
		return nil, errors.New("the buffer's memory is not seen")
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), size), nil // the library's memory
}

// readback returns the number of bytes to read back: the values read, the stamps, and a word to wait for if there is
// nothing else.
func readback(n counts) int { return (n.read+7)&^7 + 8*n.stamps + 4 }

// cRecorder encodes commands.
type cRecorder struct {
	*cDevice
	encoder, pass    handle
	up, down, stamps int // so far
	dispatches       int // of the piece

	frame                               *frame
	setPipeline, setGroup, runWorkgroup function
}

// Dispatches of a list's first piece, and of the others: the device begins with a piece while the next is being
// encoded.
const (
	firstPiece = 16
	nextPiece  = 64
)

// submit encodes l piece by piece and submits each.
func (d *cDevice) submit(l *List, n counts) {
	r := cRecorder{cDevice: d, frame: newFrame(), setPipeline: d.functions["wgpuComputePassEncoderSetPipeline"],
		setGroup:     d.functions["wgpuComputePassEncoderSetBindGroup"],
		runWorkgroup: d.functions["wgpuComputePassEncoderDispatchWorkgroups"]}
	r.start()
	room := firstPiece
	for i := range l.commands {
		if r.encode(&l.commands[i], n); r.dispatches == room {
			r.finish()
			r.start()
			room = nextPiece
		}
	}
	r.end()
	if n.stamps > 0 {
		d.call("wgpuCommandEncoderResolveQuerySet", r.encoder, d.stamps, 0, n.stamps, d.ticks.handle, 0)
		r.copy(d.down, (n.read+7)&^7, d.ticks, 0, 8*n.stamps)
	}
	r.copy(d.down, readback(n)-4, d.up, 0, 4)
	r.finish()
}

// start starts a piece.
func (r *cRecorder) start() {
	r.encoder, r.dispatches = r.call("wgpuDeviceCreateCommandEncoder", r.device,
		unsafe.Pointer(&labelDescriptor{label: view("list")})), 0
}

// finish submits the piece.
func (r *cRecorder) finish() {
	r.end()
	commands := new(handle)
	*commands = r.call("wgpuCommandEncoderFinish", r.encoder, unsafe.Pointer(&labelDescriptor{label: view("list")}))
	r.call("wgpuQueueSubmit", r.queue, 1, unsafe.Pointer(commands))
	r.call("wgpuCommandBufferRelease", *commands)
	r.call("wgpuCommandEncoderRelease", r.encoder)
}

func (r *cRecorder) copy(dst *cBuffer, to int, src *cBuffer, from, size int) {
	r.end()
	r.call("wgpuCommandEncoderCopyBufferToBuffer", r.encoder, src.handle, from, dst.handle, to, size)
}

// begin begins a pass, with its time if w is not nil.
func (r *cRecorder) begin(w *timestampWrites) {
	r.end()
	r.pass = r.call("wgpuCommandEncoderBeginComputePass", r.encoder,
		unsafe.Pointer(&computePassDescriptor{label: view("pass"), writes: unsafe.Pointer(w)}))
}

// end ends the open pass.
func (r *cRecorder) end() {
	if r.pass != 0 {
		r.call("wgpuComputePassEncoderEnd", r.pass)
		r.call("wgpuComputePassEncoderRelease", r.pass)
		r.pass = 0
	}
}

func (r *cRecorder) encode(c *command, n counts) {
	switch c.kind {
	case dispatch:
		if r.pass == 0 {
			r.begin(nil)
		}
		pass := uint64(r.pass)
		r.frame.call(r.setPipeline, pass, uint64(madeOf[cPipeline](c.pipeline).made))
		r.frame.call(r.setGroup, pass, 0, uint64(madeOf[cGroup](c.group).handle), 0, 0)
		r.frame.call(r.runWorkgroup, pass, uint64(c.x), uint64(c.y), uint64(c.z))
		r.dispatches++
	case stamp:
		if n.stamps > 0 {
			r.begin(&timestampWrites{querySet: r.cDevice.stamps, begin: uint32(r.stamps), end: queryUndefined})
			r.stamps++
		}
	case write:
		r.copy(madeOf[*cBuffer](c.dst), c.to, r.cDevice.up, r.up, c.size)
		r.up += c.size
	case read:
		r.copy(r.cDevice.down, r.down, madeOf[*cBuffer](c.src), c.from, c.size)
		r.down += c.size
	case copyBuffer:
		r.copy(madeOf[*cBuffer](c.dst), c.to, madeOf[*cBuffer](c.src), c.from, c.size)
	}
}

// fetch waits, and fills the list's reads.
func (d *cDevice) fetch(l *List, n counts) error {
	all, err := d.mapped(d.down, mapRead, readback(n))
	if err != nil {
		return fmt.Errorf("what was computed: %w", err)
	}
	defer d.call("wgpuBufferUnmap", d.down.handle)
	l.take(all, (n.read+7)&^7, n.stamps, 1)
	return nil
}

//go:build !nogpu && ((linux && !android) || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"errors"
	"slices"
	"time"

	"github.com/gogpu/gputypes"
	"github.com/gogpu/wgpu/hal"
)

// run implements binding.
func (d *native) run(l *List, n counts) error {
	return runStill(func() error {
		ticks := (n.read + 7) &^ 7 // where the stamps lie
		if err := d.stage(l, n.write, ticks+8*n.stamps, n.stamps); err != nil {
			return err
		}
		if d.broken = d.submit(l, ticks, n.stamps); d.broken == nil {
			d.broken = d.fetch(l, ticks, n.stamps)
		}
		return d.broken
	})
}

// stage makes room for the host's writes, reads and times, and copies the writes to memory open to the device.
func (d *native) stage(l *List, up, down, stamps int) error {
	if up > 0 {
		if err := d.room(&d.up, "upload", up, gputypes.BufferUsageMapWrite|gputypes.BufferUsageCopySrc); err != nil {
			return err
		}
		all, err := d.bytes(d.up, up)
		if err != nil {
			return err
		}
		if err := errors.Join(l.stage(all), d.hal.UnmapBuffer(d.up.hal)); err != nil {
			return err
		}
	}
	if stamps > 0 {
		if err := d.stampRoom(stamps); err != nil {
			return err
		}
	}
	if down > 0 {
		return d.room(&d.down, "readback", down, gputypes.BufferUsageMapRead|gputypes.BufferUsageCopyDst)
	}
	return nil
}

// pieces returns l's commands between cuts.
func (l *List) pieces() (all [][]command) {
	rest := l.commands
	for {
		i := slices.IndexFunc(rest, func(c command) bool { return c.kind == cut })
		if i < 0 {
			return append(all, rest)
		}
		all, rest = append(all, rest[:i]), rest[i+1:]
	}
}

// submit runs l, and waits. An error is the device's.
//
// The first piece of a list that has been run before, as in decoding, is encoded for the next time while the device
// computes: the device waits for no other.
func (d *native) submit(l *List, ticks, stamps int) (err error) {
	pieces := l.pieces()
	again := d.isEncoded(l)
	if d.next != nil && (!again || len(d.fresh) > 0 || d.up != d.before[0] || d.down != d.before[1]) {
		d.encoder[1].ResetAll([]hal.CommandBuffer{d.next})
		d.next = nil
	}
	for len(d.cuts) < len(pieces)-1 {
		d.cuts = append(d.cuts, nil)
	}
	r := recorder{d: d}
	first := func(to *hal.CommandEncoder) (hal.CommandBuffer, error) {
		return d.encode(to, &r, pieces[0], len(pieces) == 1, ticks, stamps)
	}
	commands := d.next
	if d.next = nil; commands != nil {
		d.encoder[0], d.encoder[1], r = d.encoder[1], d.encoder[0], d.behind
	} else {
		if commands, err = first(&d.encoder[0]); err != nil {
			return err
		}
		d.last = d.last[:0]
		for i := range l.commands {
			c := l.commands[i]
			c.data, c.fill = nil, nil
			d.last = append(d.last, c)
		}
	}
	running := []hal.CommandBuffer{commands}
	at, err := d.queue.Submit(running)
	for i := 1; i < len(pieces) && err == nil; i++ {
		last := i == len(pieces)-1
		if commands, err = d.encode(&d.cuts[i-1], &r, pieces[i], last, ticks, stamps); err != nil {
			break
		}
		running = append(running, commands)
		at, err = d.queue.Submit(running[i:])
	}
	if err != nil {
		return err
	}
	if again {
		r = recorder{d: d}
		if d.next, err = first(&d.encoder[1]); err != nil {
			return err
		}
		d.before, d.behind = [2]*buffer{d.up, d.down}, r
	}
	if err := d.wait(at); err != nil {
		return err
	}
	for i, commands := range running {
		encoder := d.encoder[0]
		if i > 0 {
			encoder = d.cuts[i-1]
		}
		encoder.ResetAll([]hal.CommandBuffer{commands})
		commands.Destroy()
	}
	return nil
}

// awake is the time of asking before a thread sleeps: longer than a token takes, or several.
const awake = 20 * time.Millisecond

// wait waits for a submission. A sleeping thread is woken late, by a tenth of a millisecond or more, so at first wait
// asks again and again; a software GPU needs the processor itself.
func (d *native) wait(at uint64) error {
	for start := time.Now(); d.adapter.Kind != "cpu" && time.Since(start) < awake; {
		if d.queue.PollCompleted() >= at {
			return nil
		}
	}
	return d.hal.WaitIdle()
}

// isEncoded reports whether l was the last list encoded, apart from the written data.
func (d *native) isEncoded(l *List) bool {
	if len(d.last) != len(l.commands) {
		return false
	}
	for i := range l.commands {
		if !d.last[i].like(&l.commands[i]) {
			return false
		}
	}
	return true
}

// like reports whether c and o are the same, apart from the written data.
func (c *command) like(o *command) bool {
	return c.kind == o.kind && c.group == o.group && c.pipeline == o.pipeline && c.x == o.x && c.y == o.y &&
		c.z == o.z && c.dst == o.dst && c.src == o.src && c.to == o.to && c.from == o.from && c.size == o.size
}

// encode turns commands into the device's; the last ones of a list read back its stamps.
func (d *native) encode(
	to *hal.CommandEncoder, r *recorder, commands []command, last bool, ticks, stamps int,
) (hal.CommandBuffer, error) {
	e, err := d.begin(to)
	if err != nil {
		return nil, err
	}
	for _, b := range d.fresh {
		e.ClearBuffer(b.hal, 0, uint64(b.size))
		e.TransitionBuffers([]hal.BufferBarrier{barrier(b, copyTarget, storage)})
	}
	d.fresh = d.fresh[:0]
	r.e = e
	for i := range commands {
		r.encode(&commands[i])
	}
	r.end()
	r.copies()
	if last && stamps > 0 {
		e.ResolveQuerySet(d.stamps, 0, uint32(stamps), d.down.hal, uint64(ticks))
	}
	return e.EndEncoding()
}

// begin begins encoding. There are two encoders, and one for each piece of a list, since the library's Vulkan makes 16
// command buffers for each new encoder and frees none.
func (d *native) begin(to *hal.CommandEncoder) (hal.CommandEncoder, error) {
	if *to == nil {
		e, err := d.hal.CreateCommandEncoder(&hal.CommandEncoderDescriptor{Label: "list"})
		if err != nil {
			return nil, err
		}
		if pool, ok := e.(interface{ SetPoolManaged(bool) }); ok {
			pool.SetPoolManaged(true)
		}
		*to = e
	}
	return *to, (*to).BeginEncoding("list")
}

// recorder encodes commands: dispatches in passes, copies between them. The library puts a barrier after each dispatch;
// the recorder puts barriers about copies.
type recorder struct {
	d        *native
	e        hal.CommandEncoder
	pass     hal.ComputePassEncoder
	up, down int // bytes staged so far
	stamps   int
	moves    []move // waiting copies, since neighbours share barriers
}

// move is a copy.
type move struct {
	dst, src       *buffer
	to, from, size int
}

const (
	storage    = gputypes.BufferUsageStorage
	copySource = gputypes.BufferUsageCopySrc
	copyTarget = gputypes.BufferUsageCopyDst
)

func barrier(b *buffer, from, to gputypes.BufferUsage) hal.BufferBarrier {
	return hal.BufferBarrier{Buffer: b.hal, Usage: hal.BufferUsageTransition{OldUsage: from, NewUsage: to}}
}

// end ends the open pass.
func (r *recorder) end() {
	if r.pass != nil {
		r.pass.End()
		r.pass = nil
	}
}

func (r *recorder) encode(c *command) {
	switch c.kind {
	case dispatch:
		r.copies()
		if r.pass == nil {
			r.pass = r.e.BeginComputePass(&hal.ComputePassDescriptor{Label: "pass"})
		}
		r.pass.SetPipeline(madeOf[*pipeline](c.pipeline).hal)
		r.pass.SetBindGroup(0, madeOf[hal.BindGroup](c.group), nil)
		r.pass.Dispatch(uint32(c.x), uint32(c.y), uint32(c.z))
	case stamp:
		r.end()
		r.copies()
		if r.d.adapter.Timestamps {
			i := uint32(r.stamps)
			r.stamps++
			r.pass = r.e.BeginComputePass(&hal.ComputePassDescriptor{Label: "pass",
				TimestampWrites: &hal.ComputePassTimestampWrites{
					QuerySet: r.d.stamps, BeginningOfPassWriteIndex: &i}})
		}
	case write:
		r.copy(madeOf[*buffer](c.dst), c.to, r.d.up, r.up, c.size)
		r.up += c.size
	case read:
		r.copy(r.d.down, r.down, madeOf[*buffer](c.src), c.from, c.size)
		r.down += c.size
	case copyBuffer:
		r.copy(madeOf[*buffer](c.dst), c.to, madeOf[*buffer](c.src), c.from, c.size)
	}
}

// copy notes a copy between two buffers, at least one of them a shader's.
func (r *recorder) copy(dst *buffer, to int, src *buffer, from, size int) {
	r.end()
	for _, m := range r.moves {
		if m.dst == dst && dst != r.d.down || m.dst == src || m.src == dst { // each sees the writes of the one before
			r.copies()
			break
		}
	}
	r.moves = append(r.moves, move{dst, src, to, from, size})
}

// copies encodes the waiting copies.
func (r *recorder) copies() {
	if len(r.moves) == 0 {
		return
	}
	var before, after []hal.BufferBarrier
	for _, m := range r.moves {
		if m.src != r.d.up {
			before, after = append(before, barrier(m.src, storage, copySource)),
				append(after, barrier(m.src, copySource, storage))
		}
		if m.dst != r.d.down {
			before, after = append(before, barrier(m.dst, storage, copyTarget)),
				append(after, barrier(m.dst, copyTarget, storage))
		}
	}
	r.e.TransitionBuffers(before)
	for _, m := range r.moves {
		r.e.CopyBufferToBuffer(m.src.hal, m.dst.hal, []hal.BufferCopy{{SrcOffset: uint64(m.from),
			DstOffset: uint64(m.to), Size: uint64(m.size)}})
	}
	r.e.TransitionBuffers(after)
	r.moves = r.moves[:0]
}

// fetch fills the list's reads.
func (d *native) fetch(l *List, ticks, stamps int) error {
	if ticks+8*stamps == 0 {
		return nil
	}
	all, err := d.bytes(d.down, ticks+8*stamps)
	if err != nil {
		return err
	}
	l.take(all, ticks, stamps, d.queue.GetTimestampPeriod())
	return nil
}

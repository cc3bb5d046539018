//go:build !nogpu && ((linux && !android) || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"encoding/binary"
	"fmt"

	"github.com/gogpu/gputypes"
	"github.com/gogpu/wgpu/hal"
)

// Run implements Device.
func (d *device) Run(l *List) error {
	if d.lost != nil {
		return d.lost
	}
	n, err := l.count(d.adapter.Limits)
	if err != nil {
		return err
	}
	ticks := (n.read + 7) &^ 7 // where the stamps lie
	if err := d.stage(l, n.write, ticks+8*n.stamps, n.stamps); err != nil {
		return fmt.Errorf("gpu: %w", err)
	}
	if err := d.submit(l, ticks, n.stamps); err != nil {
		return d.lose(err)
	}
	return d.fetch(l, ticks, n.stamps)
}

// stage makes room for what the host writes, reads and times, and copies what it
// writes to where the device sees it.
func (d *device) stage(l *List, up, down, stamps int) error {
	if up > 0 {
		if err := d.staging(&d.up, "upload", up, gputypes.BufferUsageMapWrite|gputypes.BufferUsageCopySrc); err != nil {
			return err
		}
		at := 0
		for i := range l.commands {
			if c := &l.commands[i]; c.kind == write {
				if err := d.queue.WriteBuffer(d.up.hal, uint64(at), c.data); err != nil {
					return err
				}
				at += c.size
			}
		}
	}
	if stamps > 0 && d.adapter.Timestamps {
		if err := d.stampRoom(stamps); err != nil {
			return err
		}
	}
	if down > 0 {
		return d.staging(&d.down, "readback", down, gputypes.BufferUsageMapRead|gputypes.BufferUsageCopyDst)
	}
	return nil
}

// submit encodes l, runs it, and waits. An error is the device's.
func (d *device) submit(l *List, ticks, stamps int) error {
	e, err := d.begin()
	if err != nil {
		return err
	}
	for _, b := range d.fresh {
		if d.live[b] {
			e.ClearBuffer(b.hal, 0, uint64(b.size))
			e.TransitionBuffers([]hal.BufferBarrier{barrier(b, copyTarget, storage)})
		}
	}
	d.fresh = d.fresh[:0]
	r := recorder{d: d, e: e}
	for i := range l.commands {
		r.encode(&l.commands[i])
	}
	r.end()
	if stamps > 0 && d.adapter.Timestamps {
		e.ResolveQuerySet(d.stamps, 0, uint32(stamps), d.down.hal, uint64(ticks))
	}
	commands, err := e.EndEncoding()
	if err != nil {
		return err
	}
	if _, err := d.queue.Submit([]hal.CommandBuffer{commands}); err != nil {
		return err
	}
	if err := d.hal.WaitIdle(); err != nil {
		return err
	}
	e.ResetAll([]hal.CommandBuffer{commands})
	commands.Destroy()
	return nil
}

// begin begins encoding. There is one encoder, for the library's Vulkan makes 16
// command buffers for each new one and does not free them.
func (d *device) begin() (hal.CommandEncoder, error) {
	if d.encoder == nil {
		e, err := d.hal.CreateCommandEncoder(&hal.CommandEncoderDescriptor{Label: "list"})
		if err != nil {
			return nil, err
		}
		if pool, ok := e.(interface{ SetPoolManaged(bool) }); ok {
			pool.SetPoolManaged(true)
		}
		d.encoder = e
	}
	return d.encoder, d.encoder.BeginEncoding("list")
}

// recorder encodes commands: dispatches in passes, copies between them. The library
// puts a barrier after each dispatch; those about copies are put here.
type recorder struct {
	d        *device
	e        hal.CommandEncoder
	pass     hal.ComputePassEncoder
	up, down int // bytes staged so far
	stamps   int
}

const (
	storage    = gputypes.BufferUsageStorage
	copySource = gputypes.BufferUsageCopySrc
	copyTarget = gputypes.BufferUsageCopyDst
)

func barrier(b *buffer, from, to gputypes.BufferUsage) hal.BufferBarrier {
	return hal.BufferBarrier{Buffer: b.hal, Usage: hal.BufferUsageTransition{OldUsage: from, NewUsage: to}}
}

// end ends the pass that is open.
func (r *recorder) end() {
	if r.pass != nil {
		r.pass.End()
		r.pass = nil
	}
}

func (r *recorder) encode(c *command) {
	switch c.kind {
	case dispatch:
		if r.pass == nil {
			r.pass = r.e.BeginComputePass(&hal.ComputePassDescriptor{Label: "pass"})
		}
		r.pass.SetPipeline(c.pipeline.(*pipeline).hal)
		r.pass.SetBindGroup(0, c.group.(*group).hal, nil)
		r.pass.Dispatch(uint32(c.x), uint32(c.y), uint32(c.z))
	case stamp:
		r.end()
		if r.d.adapter.Timestamps {
			i := uint32(r.stamps)
			r.stamps++
			r.pass = r.e.BeginComputePass(&hal.ComputePassDescriptor{Label: "pass", TimestampWrites: &hal.ComputePassTimestampWrites{
				QuerySet: r.d.stamps, BeginningOfPassWriteIndex: &i}})
		}
	case write:
		r.copy(c.dst.(*buffer), c.to, r.d.up, r.up, c.size)
		r.up += c.size
	case read:
		r.copy(r.d.down, r.down, c.src.(*buffer), c.from, c.size)
		r.down += c.size
	case copyBuffer:
		r.copy(c.dst.(*buffer), c.to, c.src.(*buffer), c.from, c.size)
	}
}

// copy copies between two buffers of which one, or both, are a shader's.
func (r *recorder) copy(dst *buffer, to int, src *buffer, from, size int) {
	r.end()
	var before, after []hal.BufferBarrier
	if src != r.d.up {
		before, after = append(before, barrier(src, storage, copySource)), append(after, barrier(src, copySource, storage))
	}
	if dst != r.d.down {
		before, after = append(before, barrier(dst, storage, copyTarget)), append(after, barrier(dst, copyTarget, storage))
	}
	r.e.TransitionBuffers(before)
	r.e.CopyBufferToBuffer(src.hal, dst.hal, []hal.BufferCopy{{SrcOffset: uint64(from), DstOffset: uint64(to), Size: uint64(size)}})
	r.e.TransitionBuffers(after)
}

// fetch gives the list's reads what they wanted.
func (d *device) fetch(l *List, ticks, stamps int) error {
	l.times = nil
	if ticks+8*stamps == 0 {
		return nil
	}
	all, err := d.bytes(d.down, ticks+8*stamps)
	if err != nil {
		return d.lose(err)
	}
	for i := range l.commands {
		if c := &l.commands[i]; c.kind == read {
			copy(c.data, all[:c.size])
			all = all[c.size:]
		}
	}
	if stamps > 0 && d.adapter.Timestamps {
		list := make([]uint64, stamps)
		all = all[len(all)-8*stamps:]
		for i := range list {
			list[i] = binary.LittleEndian.Uint64(all[8*i:])
		}
		l.times = durations(list, d.queue.GetTimestampPeriod())
	}
	return nil
}

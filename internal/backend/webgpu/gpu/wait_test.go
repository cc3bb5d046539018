//go:build !nogpu && ((linux && !android) || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"encoding/binary"
	"fmt"
	"testing"
	"unsafe"

	"github.com/gogpu/wgpu/hal"
)

// lateGPU is a GPU that begins with what was submitted only when it is asked for the
// third time whether it has finished, or when it is waited for.
type lateGPU struct {
	hal.Device
	hal.Queue
	submitted []func()
	done      uint64
	asked     int
}

func (g *lateGPU) CreateBuffer(d *hal.BufferDescriptor) (hal.Buffer, error) {
	return &lateBuffer{bytes: make([]byte, d.Size)}, nil
}

func (g *lateGPU) MapBuffer(b hal.Buffer, _, _ uint64) (hal.BufferMapping, error) {
	return hal.BufferMapping{Ptr: unsafe.Pointer(unsafe.SliceData(b.(*lateBuffer).bytes))}, nil
}

func (g *lateGPU) CreateCommandEncoder(*hal.CommandEncoderDescriptor) (hal.CommandEncoder, error) {
	return &lateEncoder{}, nil
}

func (g *lateGPU) Submit(all []hal.CommandBuffer) (uint64, error) {
	for _, c := range all {
		g.submitted = append(g.submitted, c.(*lateCommands).run)
	}
	return g.done + uint64(len(g.submitted)), nil
}

func (g *lateGPU) PollCompleted() uint64 {
	if g.asked++; g.asked%3 == 0 && len(g.submitted) > 0 {
		g.submitted[0]()
		g.submitted, g.done = g.submitted[1:], g.done+1
	}
	return g.done
}

func (g *lateGPU) WaitIdle() error {
	for _, run := range g.submitted {
		run()
	}
	g.submitted, g.done = nil, g.done+uint64(len(g.submitted))
	return nil
}

func (g *lateGPU) UnmapBuffer(hal.Buffer) error { return nil }
func (g *lateGPU) DestroyBuffer(hal.Buffer)     {}
func (g *lateGPU) Destroy()                     {}
func (g *lateGPU) GetTimestampPeriod() float32  { return 1 }

type lateBuffer struct{ bytes []byte }

func (*lateBuffer) Destroy()              {}
func (*lateBuffer) NativeHandle() uintptr { return 0 }

// lateEncoder keeps copies until the GPU makes them.
type lateEncoder struct {
	hal.CommandEncoder
	steps []func()
}

type lateCommands struct{ steps []func() }

func (c *lateCommands) run() {
	for _, f := range c.steps {
		f()
	}
}

func (*lateCommands) Destroy() {}

func (e *lateEncoder) CopyBufferToBuffer(src, dst hal.Buffer, all []hal.BufferCopy) {
	for _, c := range all {
		e.steps = append(e.steps, func() {
			copy(dst.(*lateBuffer).bytes[c.DstOffset:][:c.Size], src.(*lateBuffer).bytes[c.SrcOffset:])
		})
	}
}

func (e *lateEncoder) ClearBuffer(b hal.Buffer, at, size uint64) {
	e.steps = append(e.steps, func() { clear(b.(*lateBuffer).bytes[at:][:size]) })
}

func (e *lateEncoder) EndEncoding() (hal.CommandBuffer, error) {
	c := &lateCommands{e.steps}
	e.steps = nil
	return c, nil
}

func (*lateEncoder) BeginEncoding(string) error            { return nil }
func (*lateEncoder) TransitionBuffers([]hal.BufferBarrier) {}
func (*lateEncoder) ResetAll([]hal.CommandBuffer)          {}
func (*lateEncoder) Destroy()                              {}

// TestWait: a run ends when the GPU has, and not before. If nobody waited, it would read
// what an earlier run left, and the next run's writes would reach this one's commands.
func TestWait(t *testing.T) {
	for _, kind := range []string{"discrete", "cpu"} { // asked again and again, and slept for
		for name, cut := range map[string]func(*List){"one piece": func(*List) {}, "pieces": (*List).Cut} {
			t.Run(fmt.Sprintf("%s, %s", kind, name), func(t *testing.T) {
				g := &lateGPU{}
				a := Adapter{Kind: kind, Limits: standard}
				d := newDevice(a, &native{adapter: &a, hal: g, queue: g})
				b := buffers(t, d, 4, 4)
				for i := range uint32(5) { // the third is encoded while the second runs
					var l List
					got := make([]byte, 4)
					l.Write(b[0], 0, words(1, func(int) uint32 { return 10 + i }))
					cut(&l)
					l.Copy(b[1], 0, b[0], 0, 4)
					cut(&l)
					l.Read(got, b[1], 0)
					if err := d.Run(&l); err != nil {
						t.Fatal(err)
					}
					if v := binary.LittleEndian.Uint32(got); v != 10+i || len(g.submitted) > 0 {
						t.Errorf("run %d reads %d, want %d; the GPU still has %d lists to do", i, v, 10+i, len(g.submitted))
					}
				}
			})
		}
	}
}

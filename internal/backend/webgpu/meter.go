package webgpu

import (
	"errors"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
)

// Meter implements backend.Metered. Steps are measured from the first call on.
func (b *Backend) Meter() backend.Meter {
	b.busy.Lock()
	defer b.busy.Unlock()
	m := b.meter
	b.meter = &backend.Meter{}
	if m == nil || !b.d.Adapter().Timestamps {
		return backend.Meter{}
	}
	return *m
}

// measured adds a list of so many steps to the measurement.
func (b *Backend) measured(l *gpu.List, dispatches, steps int) {
	if b.meter == nil || b.times != nil {
		return
	}
	if t := l.Times(); len(t) > 1 {
		b.meter.Device += t[len(t)-1] - t[0]
	}
	b.meter.Steps, b.meter.Dispatches = b.meter.Steps+steps, b.meter.Dispatches+dispatches
}

// Bandwidth implements backend.Metered: the speed of a kernel that only reads.
func (b *Backend) Bandwidth() (bytesPerSecond float64, err error) {
	b.busy.Lock()
	defer b.busy.Unlock()
	const buffers, rounds = 4, 8 // more than a cache has
	d := b.d
	pipe, err := d.pipe("read", nil)
	if err != nil {
		return 0, err
	}
	size := d.Adapter().Limits.Binding &^ (1<<15 - 1)
	data, err := pipe.pack(params{"quads": size / 16})
	if err != nil {
		return 0, err
	}
	made := make([]gpu.Buffer, 0, buffers+2)
	defer func() { b.memory.release(made...) }()
	var l gpu.List
	for i, n := range [buffers + 2]int{len(data), 4, size, size, size, size} {
		x, err := b.memory.empty("read", n)
		if err != nil {
			return 0, err
		}
		if made = append(made, x); i == 0 {
			l.Write(x, 0, data)
		}
	}
	l.Stamp()
	for range 2 {
		for _, x := range made[2:] {
			g, err := d.gpu.NewGroup(pipe.Pipeline,
				gpu.Range{Buffer: made[0]}, gpu.Range{Buffer: made[1]}, gpu.Range{Buffer: x})
			if err != nil {
				return 0, err
			}
			defer g.Release()
			l.Dispatch(pipe.Pipeline, g, size/(2048*16), 1, 1)
		}
	}
	l.Stamp()
	var best time.Duration
	for range rounds {
		if err := d.gpu.Run(&l); err != nil {
			return 0, err
		}
		if t := l.Times(); len(t) < 2 {
			return 0, errors.New("this GPU has no time stamps")
		} else if best == 0 || t[1] < best {
			best = t[1]
		}
	}
	return 2 * buffers * float64(size) / best.Seconds(), nil
}

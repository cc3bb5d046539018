//go:build !nogpu && ((linux && !android) || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/gogpu/gputypes"
	"github.com/gogpu/wgpu/hal"
)

// The layer below WebGPU's own (hal) is used: hal lists all adapters, has time stamps, and needs neither validation nor
// textures. List and its callers do the checks of WebGPU.

// found is an adapter and the objects keeping it alive.
type found struct {
	Adapter
	instance hal.Instance
	exposed  hal.ExposedAdapter
}

// enumerate makes an instance of each API and lists their adapters, real ones first.
// The instances must be destroyed.
func enumerate() (all []found, instances []hal.Instance, err error) {
	var errs []error
	for _, b := range apis {
		i, err := b.CreateInstance(&hal.InstanceDescriptor{})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		instances = append(instances, i)
		for _, e := range i.EnumerateAdapters(nil) {
			all = append(all, found{describe(e), i, e})
		}
	}
	if len(all) == 0 {
		destroy(instances)
		if err := errors.Join(errs...); err != nil {
			return nil, nil, fmt.Errorf("%w: %s", ErrNone, advised(strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		return nil, nil, fmt.Errorf("%w: the drivers of this machine list none", ErrNone)
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(rank[a.Kind], rank[b.Kind]) })
	return all, instances, nil
}

// advised returns the library's text, with advice if no driver is found: Vulkan's loader then says
// VK_ERROR_INCOMPATIBLE_DRIVER.
func advised(text string) string {
	if strings.Contains(text, "vkCreateInstance failed: -9") {
		return text + ", which is that no driver for Vulkan was found: " +
			"install that of the GPU (vulkaninfo shows what there is)"
	}
	if strings.Contains(text, "libvulkan.so.1") && strings.Contains(text, "cannot open") {
		return "the Vulkan loader (libvulkan.so.1) is not installed; on Debian and Ubuntu: apt install libvulkan1"
	}
	return text
}

// rank is the order of adapters by kind.
var rank = map[string]int{"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "cpu": 4}

func destroy(instances []hal.Instance) {
	for _, i := range instances {
		i.Destroy()
	}
}

func describe(e hal.ExposedAdapter) Adapter {
	a := Adapter{Name: e.Info.Name, API: e.Info.Backend.String(), Kind: "other", Driver: e.Info.DriverInfo,
		Memory: memoryOf(e.Adapter), Limits: standard}
	switch e.Info.DeviceType {
	case gputypes.DeviceTypeDiscreteGPU:
		a.Kind = "discrete"
	case gputypes.DeviceTypeIntegratedGPU:
		a.Kind = "integrated"
	case gputypes.DeviceTypeVirtualGPU:
		a.Kind = "virtual"
	case gputypes.DeviceTypeCPU:
		a.Kind = "cpu"
	}
	// The library's Vulkan has time stamps, but does not say so.
	a.Timestamps = e.Info.Backend == gputypes.BackendVulkan ||
		e.Features&gputypes.Features(gputypes.FeatureTimestampQuery) != 0
	l := e.Capabilities.Limits
	if e.Info.Backend == gputypes.BackendMetal { // which may allow a shader fewer than the device, and is not asked
		l.MaxComputeInvocationsPerWorkgroup = uint32(standard.Invocations)
	}
	a.Limits.lower(l.MaxBufferSize, l.MaxStorageBufferBindingSize, uint64(l.MaxStorageBuffersPerShaderStage),
		uint64(l.MaxComputeWorkgroupsPerDimension), uint64(l.MaxComputeInvocationsPerWorkgroup),
		uint64(l.MaxComputeWorkgroupStorageSize))
	a.Matrices = matricesOf(e.Adapter, l.MaxComputeInvocationsPerWorkgroup, l.MaxComputeWorkgroupStorageSize)
	return a
}

// Reaches reports whether matrix units are in reach, by Vulkan or by a library of webgpu.h.
func Reaches() bool { return true }

// Adapters lists the GPUs of this machine, real GPUs before programs in place of a GPU. Without any the error wraps
// ErrNone. If KARAT_WEBGPU_LIB names a shared library of webgpu.h, the adapters are the library's.
func Adapters() (list []Adapter, err error) {
	if path := os.Getenv(libraryName); path != "" {
		return cAdapters(path)
	}
	err = runStill(func() error {
		all, instances, err := enumerate()
		if err != nil {
			return err
		}
		for _, f := range all {
			list = append(list, f.Adapter)
		}
		destroy(instances)
		return nil
	})
	return list, err
}

// Open opens the n-th of Adapters.
func Open(n int) (d Device, err error) {
	if path := os.Getenv(libraryName); path != "" {
		return cOpen(path, n)
	}
	err = runStill(func() error {
		d, err = openNth(n)
		return err
	})
	return d, err
}

func openNth(n int) (Device, error) {
	all, instances, err := enumerate()
	if err != nil {
		return nil, err
	}
	if n < 0 || n >= len(all) {
		destroy(instances)
		return nil, Missing(n, len(all))
	}
	f := all[n]
	open := func(e hal.ExposedAdapter) (hal.OpenDevice, error) {
		return e.Adapter.Open(e.Features, e.Capabilities.Limits)
	}
	if f.Matrices != nil {
		open = openUnits
	}
	opened, err := open(f.exposed)
	if err != nil {
		destroy(instances)
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	return newDevice(f.Adapter, &native{adapter: &f.Adapter, instances: instances, hal: opened.Device,
		queue: opened.Queue}), nil
}

// runStill runs f, a call of the library, on a stack that neither grows nor shrinks meanwhile. The library hands
// drivers the addresses of variables on the stack as numbers, unknown to the runtime when the stack moves: a result
// would be written to the old stack.
func runStill(f func() error) error {
	large()
	_, err := keep(f)
	return err
}

// large makes the stack so large, in two frames: the compiler takes an array of more than 128 KiB
// from the heap.
//
//go:noinline
func large() (n byte) {
	var room [100 << 10]byte
	for i := range room[:1] {
		room[i] = n
	}
	return room[len(room)-1] + larger()
}

//go:noinline
func larger() (n byte) {
	var room [100 << 10]byte
	for i := range room[:1] {
		room[i] = n
	}
	return room[len(room)-1]
}

// keep uses so much of the stack, a quarter, that the runtime does not shrink it.
//
//go:noinline
func keep(f func() error) (n byte, err error) {
	var room [80 << 10]byte
	err = f()
	return room[len(room)/2], err
}

// native is the binding to package hal.
type native struct {
	adapter   *Adapter
	instances []hal.Instance
	hal       hal.Device
	queue     hal.Queue
	fresh     []*buffer             // to be cleared by the next run
	encoder   [2]hal.CommandEncoder // the running one, and the one being encoded
	cuts      []hal.CommandEncoder  // encoders of a list's pieces
	last      []command             // last encoded commands, without written data
	next      hal.CommandBuffer     // the first piece of the same again, or nil
	behind    recorder              // the state behind next
	before    [2]*buffer            // up and down at the time of next
	up, down  *buffer               // for the host's writes and reads
	stamps    hal.QuerySet
	stamped   int   // room of stamps
	broken    error // why nothing runs any more
}

type buffer struct {
	hal  hal.Buffer
	size int
}

type pipeline struct {
	hal    hal.ComputePipeline
	layout hal.BindGroupLayout
	all    hal.PipelineLayout
	module hal.ShaderModule
}

func (d *native) lost() string {
	if d.broken == nil {
		return ""
	}
	return d.broken.Error()
}

func (d *native) free(made any) {
	switch x := made.(type) {
	case *buffer:
		d.fresh = slices.DeleteFunc(d.fresh, func(b *buffer) bool { return b == x })
		d.hal.DestroyBuffer(x.hal)
	case hal.BindGroup:
		d.hal.DestroyBindGroup(x)
	case *pipeline:
		if x.hal != nil {
			d.hal.DestroyComputePipeline(x.hal)
		}
		if x.module != nil {
			d.hal.DestroyShaderModule(x.module)
		}
		if x.all != nil {
			d.hal.DestroyPipelineLayout(x.all)
		}
		if x.layout != nil {
			d.hal.DestroyBindGroupLayout(x.layout)
		}
	}
}

func (d *native) newBuffer(name string, size int) (any, error) {
	b, err := d.buffer(name, size,
		gputypes.BufferUsageStorage|gputypes.BufferUsageUniform|gputypes.BufferUsageCopySrc|gputypes.BufferUsageCopyDst)
	if err == nil {
		d.fresh = append(d.fresh, b)
	}
	return b, err
}

func (d *native) buffer(name string, size int, usage gputypes.BufferUsage) (b *buffer, err error) {
	err = runStill(func() error {
		h, err := d.hal.CreateBuffer(&hal.BufferDescriptor{Label: name, Size: uint64(size), Usage: usage})
		b = &buffer{h, size}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return b, nil
}

func (d *native) newPipeline(name, wgsl string, access []Access) (made any, err error) {
	err = runStill(func() error {
		made, err = d.compile(name, wgsl, access)
		return err
	})
	return made, err
}

func (d *native) compile(name, wgsl string, access []Access) (p *pipeline, err error) {
	p = &pipeline{}
	defer func() {
		if x := recover(); x != nil { // the compiler of WGSL is young
			err = fmt.Errorf("%v", x)
		}
		if err != nil {
			d.free(p)
		}
	}()
	var entries []gputypes.BindGroupLayoutEntry
	for i, a := range access {
		t := map[Access]gputypes.BufferBindingType{Uniform: gputypes.BufferBindingTypeUniform,
			Read: gputypes.BufferBindingTypeReadOnlyStorage, ReadWrite: gputypes.BufferBindingTypeStorage}[a]
		entries = append(entries, gputypes.BindGroupLayoutEntry{Binding: uint32(i),
			Visibility: gputypes.ShaderStageCompute, Buffer: &gputypes.BufferBindingLayout{Type: t}})
	}
	source := hal.ShaderSource{WGSL: wgsl}
	if d.adapter.API == gputypes.BackendVulkan.String() {
		source = hal.ShaderSource{}
		if source.SPIRV, err = spirv(wgsl); err != nil {
			return p, err
		}
	}
	if p.module, err = d.hal.CreateShaderModule(&hal.ShaderModuleDescriptor{Label: name, Source: source}); err != nil {
		return p, err
	}
	if p.layout, err = d.hal.CreateBindGroupLayout(&hal.BindGroupLayoutDescriptor{Label: name,
		Entries: entries}); err != nil {
		return p, err
	}
	if p.all, err = d.hal.CreatePipelineLayout(&hal.PipelineLayoutDescriptor{Label: name,
		BindGroupLayouts: []hal.BindGroupLayout{p.layout}}); err != nil {
		return p, err
	}
	if p.hal, err = d.hal.CreateComputePipeline(&hal.ComputePipelineDescriptor{Label: name, Layout: p.all,
		Compute: hal.ComputeState{Module: p.module, EntryPoint: "main"}}); err != nil {
		return p, err
	}
	return p, nil
}

func (d *native) newGroup(name string, p any, ranges []Range) (made any, err error) {
	var entries []gputypes.BindGroupEntry
	for i, r := range ranges {
		entries = append(entries, gputypes.BindGroupEntry{Binding: uint32(i), Resource: gputypes.BufferBinding{
			Buffer: madeOf[*buffer](r.Buffer).hal.NativeHandle(), Offset: uint64(r.At), Size: uint64(r.Size)}})
	}
	err = runStill(func() error {
		made, err = d.hal.CreateBindGroup(&hal.BindGroupDescriptor{Label: name, Layout: p.(*pipeline).layout,
			Entries: entries})
		return err
	})
	return made, err
}

func (d *native) close(free func()) error {
	err := d.hal.WaitIdle()
	free()
	for _, b := range []*buffer{d.up, d.down} {
		if b != nil {
			d.free(b)
		}
	}
	if d.stamps != nil {
		d.hal.DestroyQuerySet(d.stamps)
	}
	for _, e := range append(d.cuts, d.encoder[:]...) {
		if e != nil {
			e.Destroy()
		}
	}
	d.hal.Destroy()
	destroy(d.instances)
	if d.broken != nil {
		return nil // has been told
	}
	return err
}

// room makes *b a buffer of at least size bytes; sizes change often.
func (d *native) room(b **buffer, name string, size int, usage gputypes.BufferUsage) (err error) {
	if *b != nil {
		if (*b).size >= size {
			return nil
		}
		d.free(*b)
	}
	*b, err = d.buffer(name, roomySize(size), usage)
	return err
}

// roomySize returns a size of buffer for at least size bytes, so that the buffer need not be replaced soon.
func roomySize(size int) int { return (max(size, 1<<16) + 4095) &^ 4095 }

// bytes returns the memory of a buffer open to the host.
func (d *native) bytes(b *buffer, size int) ([]byte, error) {
	m, err := d.hal.MapBuffer(b.hal, 0, uint64(size))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(m.Ptr), size), nil // MapBuffer gives size bytes
}

// stampRoom makes room for n stamps.
func (d *native) stampRoom(n int) (err error) {
	if n <= d.stamped {
		return nil
	}
	if d.stamps != nil {
		d.hal.DestroyQuerySet(d.stamps)
		d.stamps, d.stamped, d.last = nil, 0, nil // next would write into the buffer
	}
	if d.stamps, err = d.hal.CreateQuerySet(&hal.QuerySetDescriptor{Label: "stamps", Type: hal.QueryTypeTimestamp,
		Count: uint32(n)}); err == nil {
		d.stamped = n
	}
	return err
}

// take fills l's reads from all bytes read back, and l's times: from stamps, in ticks of period nanoseconds from byte
// at on.
func (l *List) take(all []byte, at, stamps int, period float32) {
	ticks := all[at:]
	for i := range l.commands {
		if c := &l.commands[i]; c.kind == read {
			copy(c.data, all[:c.size])
			all = all[c.size:]
		}
	}
	l.times = nil
	for i := range stamps {
		t := binary.LittleEndian.Uint64(ticks[8*i:]) - binary.LittleEndian.Uint64(ticks)
		l.times = append(l.times, time.Duration(float64(t)*float64(period)))
	}
}

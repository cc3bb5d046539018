//go:build !nogpu && ((linux && !android) || darwin) && (amd64 || arm64)

package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// cFound is an adapter of a library's.
type cFound struct {
	Adapter
	handle
	limits   *limits // all limits of the adapter
	features []uint32
	wanted   []uint32 // of the features, for matrix units
}

// cInstance is an instance of a library's and its adapters, real ones first.
type cInstance struct {
	*library
	instance handle
	adapters []cFound
	spin     time.Duration // time of asking again at once before sleeping, since a sleep takes long to end
}

// toggles enables Dawn's features not yet in the standard, f16 on all GPUs, and the needs of matrix units on Vulkan;
// leaves workgroups' memory unchanged, since Karat's kernels write before reading, and has the time exact. Other
// libraries have none.
func (l *library) toggles() unsafe.Pointer {
	if !l.dawn {
		return nil
	}
	on := cStrings("allow_unsafe_apis", "use_vulkan_memory_model", "vulkan_enable_f16_on_nvidia",
		"disable_workgroup_init", "disable_robustness")
	off := cStrings("timestamp_quantization")
	return unsafe.Pointer(&togglesDescriptor{chain: chainedStruct{kind: kindDawnTogglesDescriptor},
		enabledCount: uint64(len(on)), enabled: unsafe.Pointer(&on[0]), disabledCount: uint64(len(off)),
		disabled: unsafe.Pointer(&off[0])})
}

// cStrings returns texts as C's.
func cStrings(all ...string) (list []unsafe.Pointer) {
	for _, s := range all {
		list = append(list, unsafe.Pointer(unsafe.StringData(s+"\x00")))
	}
	return list
}

// newInstance makes an instance and finds its adapters. A library gives an adapter for each wish, often the same.
func newInstance(path string) (*cInstance, error) {
	l, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	i := &cInstance{library: l, spin: 20 * time.Microsecond}
	i.instance = l.call("wgpuCreateInstance", unsafe.Pointer(&instanceDescriptor{next: l.toggles()}))
	if i.instance == 0 {
		return nil, fmt.Errorf("%w: %s makes no instance", ErrNone, path)
	}
	backend := uint32(backendVulkan)
	if runtime.GOOS == "darwin" {
		backend = backendMetal
	}
	var why []string
	for _, o := range []requestAdapterOptions{{power: powerHigh}, {power: powerLow}, {forceFallback: 1}} {
		o.level, o.backend = levelCore, backend
		h, err := i.request(o)
		if err != nil {
			if m := err.Error(); !slices.Contains(why, m) {
				why = append(why, m)
			}
			continue
		}
		f := i.describe(h)
		known := func(o cFound) bool { return o.Name == f.Name && o.Driver == f.Driver && o.Kind == f.Kind }
		if slices.ContainsFunc(i.adapters, known) {
			l.call("wgpuAdapterRelease", h)
			continue
		}
		i.adapters = append(i.adapters, f)
	}
	if len(i.adapters) == 0 {
		i.release()
		return nil, fmt.Errorf("%w: %s lists none: %s "+
			"(that takes a driver of the GPU: for Vulkan, vulkaninfo shows what there is)",
			ErrNone, path, strings.Join(why, "; "))
	}
	slices.SortStableFunc(i.adapters, func(a, b cFound) int { return cmp.Compare(rank[a.Kind], rank[b.Kind]) })
	return i, nil
}

// request asks for an adapter.
func (i *cInstance) request(o requestAdapterOptions) (handle, error) {
	o.next = i.toggles()
	a := i.ask(callbacks().object, "wgpuInstanceRequestAdapter", i.instance, unsafe.Pointer(&o))
	if a.status != statusSuccess || a.made == 0 {
		return 0, errors.New(oneLine(a.message))
	}
	return a.made, nil
}

// featuresOf returns the numbers of an adapter's features.
func (l *library) featuresOf(adapter handle) []uint32 {
	list := &supportedFeatures{}
	l.call("wgpuAdapterGetFeatures", adapter, unsafe.Pointer(list))
	return slices.Clone(unsafe.Slice((*uint32)(list.features), list.count))
}

// patience is how long an answer is waited for: longer than any list runs.
const patience = time.Hour

// ask calls a function that answers by a callback, and waits for the answer.
func (i *cInstance) ask(callback uintptr, name string, args ...any) answer {
	id := expect()
	defer forget(id)
	i.call(name, append(args, &callbackInfo{mode: callbackProcessEvents, callback: callback,
		userdata: [2]uintptr{id}})...)
	for start := time.Now(); ; {
		i.call("wgpuInstanceProcessEvents", i.instance)
		if a := told(id); a.done {
			return a
		}
		waited := time.Since(start)
		if waited > patience {
			return answer{message: fmt.Sprintf("%s has not been answered for %v", name, patience)}
		}
		if waited > i.spin {
			nap(min(max(waited/256, 10*time.Microsecond), time.Millisecond))
		}
	}
}

// oneLine returns a library's message on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// release frees the instance and its adapters.
func (i *cInstance) release() {
	for _, f := range i.adapters {
		i.call("wgpuAdapterRelease", f.handle)
	}
	i.call("wgpuInstanceRelease", i.instance)
}

// describe asks an adapter for its names. The names stay allocated: the function for freeing takes more by value than
// can be passed here.
func (i *cInstance) describe(h handle) cFound {
	l := i.library
	f := cFound{handle: h, limits: &limits{}, features: l.featuresOf(h)}
	info, configs := &adapterInfo{}, &subgroupMatrixConfigs{chain: chainedStruct{kind: kindSubgroupMatrixConfigs}}
	if l.features.matrices != 0 && slices.Contains(f.features, l.features.matrices) &&
		uint32(l.call("wgpuInstanceHasWGSLLanguageFeature", i.instance, languageBufferView)) != 0 {
		info.next = unsafe.Pointer(configs)
	}
	l.call("wgpuAdapterGetInfo", h, unsafe.Pointer(info))
	l.call("wgpuAdapterGetLimits", h, unsafe.Pointer(f.limits))
	a := &f.Adapter
	*a = Adapter{Name: cmp.Or(info.device.text(), info.architecture.text(), "unnamed"), API: "Vulkan", Kind: "other",
		Driver: info.description.text(), Library: l.name, Limits: standard, Timestamps: slices.Contains(f.features,
			l.features.timestamps)}
	switch info.kind {
	case adapterDiscrete:
		a.Kind = "discrete"
	case adapterIntegrated:
		a.Kind = "integrated"
	case adapterCPU:
		a.Kind = "cpu"
	}
	if info.backend == backendMetal {
		a.API = "Metal"
	}
	has := f.limits
	a.Limits.lower(has.buffer, has.storageBinding, uint64(has.storageBuffers), uint64(has.groups),
		uint64(has.invocations), uint64(has.workgroupBytes))
	if configs.count == 0 || !slices.Contains(f.features, l.features.f16) ||
		!slices.Contains(f.features, l.features.subgroups) {
		return f
	}
	m := &Matrices{Subgroup: [2]int{int(info.subgroupMin), int(info.subgroupMax)},
		Invocations: int(min(has.invocations, has.sizeX)), WorkgroupBytes: int(has.workgroupBytes), Views: true}
	for _, c := range unsafe.Slice((*subgroupMatrixConfig)(configs.configs), configs.count) {
		if c.component == matrixF16 && c.result == matrixF32 {
			m.Shapes = append(m.Shapes, Shape{int(c.m), int(c.n), int(c.k)})
		}
	}
	if len(m.Shapes) > 0 {
		a.Matrices, f.wanted = m, []uint32{l.features.matrices, l.features.f16, l.features.subgroups}
	}
	return f
}

// cAdapters lists the adapters of a library. Finding adapters takes long, so is done once.
func cAdapters(path string) ([]Adapter, error) {
	l, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	l.listing.Lock()
	defer l.listing.Unlock()
	if l.listed == nil {
		i, err := newInstance(path)
		if err != nil {
			return nil, err
		}
		defer i.release()
		for _, f := range i.adapters {
			l.listed = append(l.listed, f.Adapter)
		}
	}
	return slices.Clone(l.listed), nil
}

// cDevice is the binding to a library's device.
type cDevice struct {
	*cInstance
	device, queue handle
	gone, wrong   uintptr // numbers of expect: for the loss of the device, and for an error outside of scopes
	closed        bool

	up, down, ticks *cBuffer // for the host's writes and reads, and for stamps
	stamps          handle
	stamped         int // room of stamps
}

type cBuffer struct {
	handle
	size int
}

type cPipeline struct{ made, layout handle }

type cGroup struct{ handle }

// cOpen opens the n-th of cAdapters.
func cOpen(path string, n int) (Device, error) {
	i, err := newInstance(path)
	if err != nil {
		return nil, err
	}
	if n < 0 || n >= len(i.adapters) {
		i.release()
		return nil, Missing(n, len(i.adapters))
	}
	f := i.adapters[n]
	d := &cDevice{cInstance: i, gone: expect(), wrong: expect()}
	want := f.wanted
	if f.Timestamps {
		want = append(want, i.features.timestamps)
	}
	if f.Kind != "cpu" { // else the awaited work needs the processors
		i.spin = 2 * time.Millisecond
	}
	c := callbacks()
	a := i.ask(c.object, "wgpuAdapterRequestDevice", f.handle, unsafe.Pointer(&deviceDescriptor{
		next: i.toggles(), label: view("karat"), featureCount: uint64(len(want)),
		features: unsafe.Pointer(unsafe.SliceData(want)), limits: unsafe.Pointer(f.limits),
		lost:            callbackInfo{mode: callbackSpontaneous, callback: c.device, userdata: [2]uintptr{d.gone}},
		uncapturedError: uncapturedErrorCallbackInfo{callback: c.device, userdata: [2]uintptr{d.wrong}},
	}))
	if a.status != statusSuccess || a.made == 0 {
		i.release()
		forget(d.gone)
		forget(d.wrong)
		return nil, fmt.Errorf("%s: %s", f.Name, oneLine(a.message))
	}
	d.device = a.made
	d.queue = d.call("wgpuDeviceGetQueue", d.device)
	return newDevice(f.Adapter, d), nil
}

// lost implements binding. An error outside of all scopes belongs to no call, and the results are unknown: the device
// then counts as lost.
func (d *cDevice) lost() string {
	if d.closed {
		return "it was closed"
	}
	for _, id := range []uintptr{d.gone, d.wrong} {
		if a := told(id); a.done {
			return oneLine(a.message)
		}
	}
	return ""
}

// scoped runs f, and returns the library's objections. Dawn keeps the scopes of each thread apart.
func (d *cDevice) scoped(f func()) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for scope := scopeValidation; scope <= scopeLast; scope++ {
		d.call("wgpuDevicePushErrorScope", d.device, scope)
	}
	f()
	for range scopeLast {
		a := d.ask(callbacks().scope, "wgpuDevicePopErrorScope", d.device)
		if a.message == "" || err != nil {
			continue
		}
		if err = errors.New(strings.TrimSpace(a.message)); a.kind == errorOutOfMemory {
			err = fmt.Errorf("%w: %w", ErrMemory, err)
		}
	}
	return err
}

func (d *cDevice) free(made any) {
	switch x := made.(type) {
	case *cBuffer:
		d.call("wgpuBufferDestroy", x.handle)
		d.call("wgpuBufferRelease", x.handle)
	case cPipeline:
		d.call("wgpuBindGroupLayoutRelease", x.layout)
		d.call("wgpuComputePipelineRelease", x.made)
	case cGroup:
		d.call("wgpuBindGroupRelease", x.handle)
	}
}

func (d *cDevice) newBuffer(name string, size int) (any, error) {
	return d.buffer(name, size, usageStorage|usageUniform|usageCopySrc|usageCopyDst)
}

func (d *cDevice) buffer(name string, size int, usage uint64) (*cBuffer, error) {
	b := &cBuffer{size: size}
	return b, d.scoped(func() {
		b.handle = d.call("wgpuDeviceCreateBuffer", d.device, unsafe.Pointer(&bufferDescriptor{label: view(name),
			usage: usage, size: uint64(size)}))
	})
}

// newPipeline implements binding. The library reads the layout from the shader, where every
// binding is used.
func (d *cDevice) newPipeline(name, wgsl string, _ []Access) (any, error) {
	var module handle
	var p cPipeline
	err := d.scoped(func() {
		module = d.call("wgpuDeviceCreateShaderModule", d.device, unsafe.Pointer(&labelDescriptor{label: view(name),
			next: unsafe.Pointer(&shaderSourceWGSL{chain: chainedStruct{kind: kindShaderSourceWGSL},
				code: view(wgsl)})}))
	})
	if err == nil {
		err = d.scoped(func() {
			p.made = d.call("wgpuDeviceCreateComputePipeline", d.device,
				unsafe.Pointer(&computePipelineDescriptor{label: view(name), module: module, entry: view("main")}))
			p.layout = d.call("wgpuComputePipelineGetBindGroupLayout", p.made, 0)
		})
	}
	d.call("wgpuShaderModuleRelease", module)
	if err != nil && p.made != 0 { // an invalid pipeline is also an object
		d.free(p)
	}
	return p, err
}

func (d *cDevice) newGroup(name string, p any, ranges []Range) (any, error) {
	var entries []bindGroupEntry
	for i, r := range ranges {
		entries = append(entries, bindGroupEntry{binding: uint64(i), buffer: madeOf[*cBuffer](r.Buffer).handle,
			offset: uint64(r.At), size: uint64(r.Size)})
	}
	var g cGroup
	err := d.scoped(func() {
		g.handle = d.call("wgpuDeviceCreateBindGroup", d.device, unsafe.Pointer(&bindGroupDescriptor{label: view(name),
			layout: p.(cPipeline).layout,
			count:  uint64(len(entries)), entries: unsafe.Pointer(unsafe.SliceData(entries))}))
	})
	return g, err
}

func (d *cDevice) close(free func()) error {
	free()
	for _, b := range []*cBuffer{d.up, d.down, d.ticks} {
		if b != nil {
			d.free(b)
		}
	}
	if d.stamps != 0 {
		d.call("wgpuQuerySetRelease", d.stamps)
	}
	d.call("wgpuQueueRelease", d.queue)
	d.call("wgpuDeviceDestroy", d.device)
	d.call("wgpuDeviceRelease", d.device)
	d.release()
	forget(d.gone)
	forget(d.wrong)
	d.closed = true
	return nil
}

//go:build !nogpu && ((linux && !android) || darwin) && (amd64 || arm64)

package gpu

import "unsafe"

// The memory layout of webgpu.h, in its version 1 of 2025: structs by their names there, without WGPU. Fields passed
// but not used are zero.

// handle is a pointer to an object of the library's.
type handle uintptr

type stringView struct {
	data   unsafe.Pointer
	length uint64
}

// view returns s, which must stay in memory.
func view(s string) stringView {
	return stringView{unsafe.Pointer(unsafe.StringData(s)), uint64(len(s))}
}

// text returns the library's text v.
func (v stringView) text() string {
	const null = ^uint64(0) // length of text ended by a zero
	if v.data == nil {
		return ""
	}
	if v.length == null {
		for v.length = 0; *(*byte)(unsafe.Add(v.data, v.length)) != 0; {
			v.length++
		}
	}
	return string(unsafe.Slice((*byte)(v.data), v.length))
}

type chainedStruct struct {
	next unsafe.Pointer
	kind uint32
	_    uint32
}

// Kinds of chained structs.
const (
	kindShaderSourceWGSL       = 0x00002
	kindDawnTogglesDescriptor  = 0x5000a
	kindSubgroupMatrixConfigs  = 0x5003b
	callbackProcessEvents      = 2 // called by wgpuInstanceProcessEvents
	callbackSpontaneous        = 3 // or whenever
	statusSuccess              = 1
	errorOutOfMemory           = 3
	adapterDiscrete            = 1
	adapterIntegrated          = 2
	adapterCPU                 = 3
	backendMetal               = 5
	backendVulkan              = 6
	powerLow                   = 1
	powerHigh                  = 2
	levelCore                  = 2
	queryTimestamp             = 2
	mapRead, mapWrite          = 1, 2
	usageMapRead               = 0x001
	usageMapWrite              = 0x002
	usageCopySrc               = 0x004
	usageCopyDst               = 0x008
	usageUniform               = 0x040
	usageStorage               = 0x080
	usageQueryResolve          = 0x200
	queryUndefined             = 0xffffffff
	matrixF32, matrixF16       = 1, 2
	languageBufferView         = 12   // one memory, seen as arrays of several types
	scopeValidation, scopeLast = 1, 3 // of errors: wrong use, no memory, internal
)

type togglesDescriptor struct {
	chain         chainedStruct
	enabledCount  uint64
	enabled       unsafe.Pointer
	disabledCount uint64
	disabled      unsafe.Pointer
}

// instanceDescriptor has the fields of the versions of 2025 after the chain, all 0.
type instanceDescriptor struct {
	next unsafe.Pointer
	_    [3]uint64
}

type requestAdapterOptions struct {
	next          unsafe.Pointer
	level, power  uint32
	forceFallback uint32
	backend       uint32
	_             unsafe.Pointer
}

type callbackInfo struct {
	next     unsafe.Pointer
	mode     uint32
	_        uint32
	callback uintptr
	userdata [2]uintptr
}

type uncapturedErrorCallbackInfo struct {
	next     unsafe.Pointer
	callback uintptr
	userdata [2]uintptr
}

type deviceDescriptor struct {
	next            unsafe.Pointer
	label           stringView
	featureCount    uint64
	features        unsafe.Pointer
	limits          unsafe.Pointer
	queueNext       unsafe.Pointer
	queueLabel      stringView
	lost            callbackInfo
	uncapturedError uncapturedErrorCallbackInfo
}

type adapterInfo struct {
	next                                      unsafe.Pointer
	vendor, architecture, device, description stringView
	backend, kind, vendorID, deviceID         uint32
	subgroupMin, subgroupMax                  uint32
	_                                         [4]uint64 // of later versions
}

type subgroupMatrixConfigs struct {
	chain   chainedStruct
	count   uint64
	configs unsafe.Pointer
}

type subgroupMatrixConfig struct{ component, result, m, n, k uint32 }

type supportedFeatures struct {
	count    uint64
	features unsafe.Pointer
}

// limits are the limits of every version, and room for more.
type limits struct {
	next                                                     unsafe.Pointer
	_                                                        [11]uint32
	storageBuffers                                           uint32
	_                                                        [2]uint32
	_, storageBinding                                        uint64
	_, storageAlignment                                      uint32
	_                                                        uint32
	_                                                        uint32
	buffer                                                   uint64
	_                                                        [5]uint32
	workgroupBytes, invocations, sizeX, sizeY, sizeZ, groups uint32
	_                                                        [32]uint64
}

type bufferDescriptor struct {
	next        unsafe.Pointer
	label       stringView
	usage, size uint64
	mapped      uint32
}

type shaderSourceWGSL struct {
	chain chainedStruct
	code  stringView
}

type labelDescriptor struct { // of shader modules, encoders and command buffers
	next  unsafe.Pointer
	label stringView
}

type computePipelineDescriptor struct {
	next      unsafe.Pointer
	label     stringView
	layout    handle
	stageNext unsafe.Pointer
	module    handle
	entry     stringView
	_         uint64
	_         unsafe.Pointer
}

type bindGroupEntry struct {
	next         unsafe.Pointer
	binding      uint64
	buffer       handle
	offset, size uint64
	_, _         handle
}

type bindGroupDescriptor struct {
	next    unsafe.Pointer
	label   stringView
	layout  handle
	count   uint64
	entries unsafe.Pointer
}

type querySetDescriptor struct {
	next        unsafe.Pointer
	label       stringView
	kind, count uint32
}

type timestampWrites struct {
	next       unsafe.Pointer
	querySet   handle
	begin, end uint32
}

type computePassDescriptor struct {
	next   unsafe.Pointer
	label  stringView
	writes unsafe.Pointer
}

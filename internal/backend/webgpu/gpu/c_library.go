//go:build !nogpu && ((linux && !android) || darwin) && (amd64 || arm64)

package gpu

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/go-webgpu/goffi/ffi"
	"github.com/go-webgpu/goffi/types"
)

// A shared library of webgpu.h, as built by Dawn and wgpu-native, is opened by the name in KARAT_WEBGPU_LIB, and called
// without cgo. The version of the header is that of 2025: with WGPUStringView, callback infos and
// wgpuInstanceProcessEvents.

// library is an opened library.
type library struct {
	name      string // of its file
	functions map[string]function
	features  cFeatures
	dawn      bool // has Dawn's toggles
	listing   sync.Mutex
	listed    []Adapter // adapters of the library, once listed
}

// function is a function of the library.
type function struct {
	at   unsafe.Pointer
	call *types.CallInterface
}

// cFeatures are the numbers of features, which differ between two versions of the header. The number of matrix units is
// Dawn's alone, and changes.
type cFeatures struct{ timestamps, f16, subgroups, matrices uint32 }

// arity has the functions in use: the number of arguments of at most 8 bytes, or, below 0, the number of arguments
// before a callback's info.
var arity = func() map[string]int {
	all := map[string]int{}
	for n, names := range map[int]string{
		-4: `BufferMapAsync`,
		-2: `InstanceRequestAdapter AdapterRequestDevice`,
		-1: `DevicePopErrorScope`,
		1: `CreateInstance InstanceRelease InstanceProcessEvents AdapterRelease DeviceGetQueue DeviceDestroy
			DeviceRelease ComputePipelineRelease ShaderModuleRelease BindGroupLayoutRelease BindGroupRelease
			QuerySetRelease BufferDestroy BufferRelease BufferUnmap CommandEncoderRelease CommandBufferRelease
			ComputePassEncoderEnd ComputePassEncoderRelease QueueRelease`,
		2: `InstanceHasWGSLLanguageFeature AdapterGetInfo AdapterGetLimits AdapterGetFeatures DeviceCreateBuffer
			DeviceCreateShaderModule DeviceCreateComputePipeline DeviceCreateBindGroup
			DeviceCreateCommandEncoder DeviceCreateQuerySet DevicePushErrorScope
			ComputePipelineGetBindGroupLayout CommandEncoderBeginComputePass CommandEncoderFinish
			ComputePassEncoderSetPipeline`,
		3: `BufferGetConstMappedRange BufferGetMappedRange QueueSubmit`,
		4: `ComputePassEncoderDispatchWorkgroups`,
		5: `ComputePassEncoderSetBindGroup`,
		6: `CommandEncoderCopyBufferToBuffer CommandEncoderResolveQuerySet`,
	} {
		for _, name := range strings.Fields(names) {
			all["wgpu"+name] = n
		}
	}
	return all
}()

// infoType is the type of WGPUBufferMapCallbackInfo and similar structs, passed by value.
var infoType = &types.TypeDescriptor{Kind: types.StructType, Size: unsafe.Sizeof(callbackInfo{}), Alignment: 8,
	Members: []*types.TypeDescriptor{
		types.UInt64TypeDescriptor, types.UInt64TypeDescriptor, types.UInt64TypeDescriptor, types.UInt64TypeDescriptor,
		types.UInt64TypeDescriptor}}

// opened are the libraries in use, never closed: a driver's threads may still run in one.
var opened struct {
	sync.Mutex
	by map[string]*library
}

// openLibrary opens a shared library. Its errors wrap ErrNone.
func openLibrary(path string) (*library, error) {
	opened.Lock()
	defer opened.Unlock()
	if l := opened.by[path]; l != nil {
		return l, nil
	}
	l, err := loadLibrary(path)
	if err != nil {
		return nil, fmt.Errorf("%w: KARAT_WEBGPU_LIB: %s: %w", ErrNone, path, err)
	}
	if opened.by == nil {
		opened.by = map[string]*library{}
	}
	opened.by[path] = l
	return l, nil
}

// cutOff reports whether an ELF file ends within a segment: the system's loader would end the program.
func cutOff(path string, size int64) bool {
	f, err := elf.Open(path)
	if err != nil {
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) // otherwise the format is another
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool {
		return p.Type == elf.PT_LOAD && p.Off+p.Filesz > uint64(size)
	})
}

func loadLibrary(path string) (*library, error) {
	if strings.ContainsRune(path, os.PathSeparator) { // otherwise the system's loader searches
		if s, err := os.Stat(path); err != nil {
			return nil, errors.Unwrap(err)
		} else if !s.Mode().IsRegular() {
			return nil, errors.New("not a file")
		} else if cutOff(path, s.Size()) {
			return nil, errors.New("the file is cut off")
		}
	}
	h, err := ffi.LoadLibrary(path)
	if err != nil {
		return nil, cmp.Or(errors.Unwrap(err), err) // the error names the path once more
	}
	has := func(name string) bool { _, err := ffi.GetSymbol(h, name); return err == nil }
	l := &library{name: filepath.Base(path), functions: map[string]function{}, dawn: has("wgpuAdapterCreateDevice")}
	switch {
	case has("wgpuGetInstanceCapabilities"):
		l.features = cFeatures{3, 0xa, 0x11, 0} // its WGSL has other functions for matrix units
	case has("wgpuGetInstanceFeatures"):
		l.features = cFeatures{9, 0xb, 0x12, 0x50034}
	default:
		return nil, errors.New("neither wgpuGetInstanceCapabilities nor wgpuGetInstanceFeatures is in it, " +
			"of which a library of webgpu.h of 2025 or later has one")
	}
	for name, n := range arity {
		f := function{call: &types.CallInterface{}}
		if f.at, err = ffi.GetSymbol(h, name); err != nil {
			return nil, fmt.Errorf("%s is not in it, which webgpu.h has", name)
		}
		list := make([]*types.TypeDescriptor, max(n, -n))
		for i := range list {
			list[i] = types.UInt64TypeDescriptor
		}
		if n < 0 {
			list = append(list, infoType)
		}
		if err := ffi.PrepareCallInterface(f.call, types.DefaultCall, types.UInt64TypeDescriptor, list); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		l.functions[name] = f
	}
	return l, nil
}

// call calls a function with handles, numbers, pointers and, last, a callback's info. A pointer's target lies on the
// heap, since the pointer flows into memory there: a callback may move the stack.
func (l *library) call(name string, args ...any) handle {
	f := l.functions[name]
	words := make([]uint64, len(args)+1)
	pointers, at := make([]unsafe.Pointer, len(args)), make([]unsafe.Pointer, len(args))
	for i, a := range args {
		at[i] = unsafe.Pointer(&words[i])
		switch a := a.(type) {
		case handle:
			words[i] = uint64(a)
		case int:
			words[i] = uint64(a)
		case unsafe.Pointer:
			pointers[i], at[i] = a, unsafe.Pointer(&pointers[i])
		case *callbackInfo:
			at[i] = unsafe.Pointer(a)
		default:
			panic(fmt.Sprintf("gpu: %s: argument %d is a %T", name, i, a))
		}
	}
	if _, err := ffi.CallFunction(f.call, f.at, unsafe.Pointer(&words[len(args)]), at); err != nil {
		panic(fmt.Sprintf("gpu: %s: %v", name, err)) // the numbers of arguments differ
	}
	return handle(words[len(args)])
}

// frame is memory for frequent calls, of numbers and handles alone.
type frame struct {
	words [7]uint64 // arguments, and the result
	at    [6]unsafe.Pointer
}

func newFrame() *frame {
	f := &frame{}
	for i := range f.at {
		f.at[i] = unsafe.Pointer(&f.words[i])
	}
	return f
}

// call calls a function without a result.
func (f *frame) call(of function, args ...uint64) {
	copy(f.words[:], args)
	if _, err := ffi.CallFunction(of.call, of.at, unsafe.Pointer(&f.words[len(f.at)]), f.at[:len(args)]); err != nil {
		panic(fmt.Sprintf("gpu: %v", err)) // the numbers of arguments differ
	}
}

// answer is the message of a callback.
type answer struct {
	done         bool
	status, kind uint32
	made         handle
	message      string
}

// answers are the awaited answers, by the number handed back by the library.
var answers struct {
	sync.Mutex
	last uintptr
	by   map[uintptr]*answer
}

// tell stores a callback's answer; only the first counts.
func tell(id uintptr, a answer) {
	answers.Lock()
	defer answers.Unlock()
	if to := answers.by[id]; to != nil && !to.done {
		a.done = true
		*to = a
	}
}

// told returns the answer for a number.
func told(id uintptr) answer {
	answers.Lock()
	defer answers.Unlock()
	if a := answers.by[id]; a != nil {
		return *a
	}
	return answer{} // the number was taken back
}

// expect returns a new number for an answer.
func expect() uintptr {
	answers.Lock()
	defer answers.Unlock()
	if answers.by == nil {
		answers.by = map[uintptr]*answer{}
	}
	answers.last++
	answers.by[answers.last] = &answer{}
	return answers.last
}

// forget takes a number back.
func forget(id uintptr) {
	answers.Lock()
	defer answers.Unlock()
	delete(answers.by, id)
}

// callbacks are C's, made once, since the process never frees any. A string is two words of registers; the arguments
// after the string are the numbers of expect.
var callbacks = sync.OnceValue(func() (c struct{ object, mapped, scope, device uintptr }) {
	text := func(data unsafe.Pointer, n uintptr) string { return stringView{data, uint64(n)}.text() }
	c.object = ffi.NewCallback(func(status uint32, made uintptr, data unsafe.Pointer, n, id, _ uintptr) {
		tell(id, answer{status: status, made: handle(made), message: text(data, n)})
	})
	c.mapped = ffi.NewCallback(func(status uint32, data unsafe.Pointer, n, id, _ uintptr) {
		tell(id, answer{status: status, message: text(data, n)})
	})
	c.scope = ffi.NewCallback(func(status, kind uint32, data unsafe.Pointer, n, id, _ uintptr) {
		tell(id, answer{status: status, kind: kind, message: text(data, n)})
	})
	c.device = ffi.NewCallback(func(_ uintptr, kind uint32, data unsafe.Pointer, n, id, _ uintptr) {
		tell(id, answer{kind: kind, message: cmp.Or(text(data, n), "no reason is given")})
	})
	return c
})

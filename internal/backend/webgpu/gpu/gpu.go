// Package gpu is the part of WebGPU needed by Karat: buffers, compute pipelines, and lists of commands that run in
// order. No other package knows a WebGPU library.
//
// Commands are recorded in a List and run by one call, so that a browser, where a call is dear, replays a list as a
// whole.
//
// There are three bindings: to package hal (run.go, native.go, spirv.go, units.go, vulkan.go, apis_*.go), to a shared
// library of webgpu.h (c_run.go, c_device.go, c_library.go, c_abi.go, c_windows.go), and to browsers (browser_js.go and
// gpu.js; none.go elsewhere). device.go is the common part, and gpu.go has the interfaces.
package gpu

import (
	_ "embed" // of gpu.js
	"errors"
	"fmt"
	"time"
)

// ErrNone is wrapped by the error of a machine without a usable adapter.
var ErrNone = errors.New("no GPU is available")

// Missing returns the error for an n-th adapter of fewer.
func Missing(n, of int) error {
	there := "webgpu:0"
	if of > 1 {
		there += fmt.Sprintf(" to webgpu:%d", of-1)
	}
	return fmt.Errorf("there is no webgpu:%d, only %s", n, there)
}

// ErrLost is wrapped by the errors of a lost device, which computes no more.
var ErrLost = errors.New("the GPU is lost")

// Errors wrapped by the errors of shaders that do not compile, and of buffers without room.
var (
	ErrShader = errors.New("shader")
	ErrMemory = errors.New("no memory")
)

// Adapter describes a GPU, or a program in place of a GPU.
type Adapter struct {
	Name   string `json:"name"`
	API    string `json:"api"`  // system interface: Vulkan, Metal
	Kind   string `json:"kind"` // discrete, integrated, virtual, cpu or other
	Driver string `json:"driver"`

	Library string `json:"library,omitempty"` // of webgpu.h, if in use

	Memory     int64     `json:"memory,omitempty"` // bytes of its own memory, or of shared memory; 0 is unknown
	Limits     Limits    `json:"limits"`
	Timestamps bool      `json:"timestamps"`
	Matrices   *Matrices `json:"matrices,omitempty"` // nil where shaders have no matrix units, or no f16
}

// Matrices is the matrix units open to shaders, f16 times f16 to f32, and the limits of such shaders, beyond Limits,
// which would not keep a matrix unit busy.
type Matrices struct {
	Shapes         []Shape `json:"shapes"`
	Subgroup       [2]int  `json:"subgroup"` // the fewest and most invocations of a subgroup
	Invocations    int     `json:"invocations"`
	WorkgroupBytes int     `json:"workgroup_bytes"`
	Views          bool    `json:"views"` // shaders have f16, and views of a workgroup's memory by other types
}

// Shape is the shape of a product of M x K by K x N elements.
type Shape struct {
	M int `json:"m"`
	N int `json:"n"`
	K int `json:"k"`
}

func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d", s.M, s.N, s.K) }

// Limits of a device, and of WebGPU where the device allows more.
type Limits struct {
	Buffer         int `json:"buffer"`          // bytes
	Binding        int `json:"binding"`         // bytes of a buffer in a shader
	Bindings       int `json:"bindings"`        // buffers in a shader
	Alignment      int `json:"alignment"`       // of a binding's offset, in bytes
	Groups         int `json:"groups"`          // workgroups of a dispatch in each dimension
	Invocations    int `json:"invocations"`     // of a workgroup
	WorkgroupBytes int `json:"workgroup_bytes"` // of its shared memory
}

// standard are the limits of every WebGPU device. Karat keeps to the standard, so that all devices run the same work,
// except for invocations: up to most of them in a workgroup where a device allows more.
var standard = Limits{Buffer: 256 << 20, Binding: 128 << 20, Bindings: 8, Alignment: 256, Groups: 65535,
	Invocations: 256, WorkgroupBytes: 16 << 10}

const most = 512 // invocations used of a workgroup

// lower lowers l to a device's limits, where smaller, and raises its invocations; 0 is unknown.
func (l *Limits) lower(buffer, binding, bindings, groups, invocations, workgroupBytes uint64) {
	for to, has := range map[*int]uint64{&l.Buffer: buffer, &l.Binding: binding, &l.Bindings: bindings,
		&l.Groups: groups, &l.Invocations: invocations, &l.WorkgroupBytes: workgroupBytes} {
		if has > 0 && has < uint64(*to) {
			*to = int(has)
		}
	}
	l.Invocations = max(l.Invocations, int(min(invocations, most)))
}

// libraryName is the environment's name for the path of a shared library of webgpu.h.
const libraryName = "KARAT_WEBGPU_LIB"

// Device is an opened adapter. A Device is not safe for concurrent use.
type Device interface {
	Adapter() Adapter

	// NewBuffer makes a buffer of size bytes of 0, a positive multiple of 4. name is for errors and debuggers.
	NewBuffer(name string, size int) (Buffer, error)

	// NewPipeline compiles the function main of a WGSL module, with bindings in group 0 numbered as in access.
	NewPipeline(name, wgsl string, access []Access) (Pipeline, error)

	// NewGroup gives the bindings of a pipeline their buffers.
	NewGroup(p Pipeline, ranges ...Range) (Group, error)

	// Run runs the commands of l in order, each seeing the writes of earlier commands, and returns when all are done.
	// After an error written memory is undefined. l may be changed or run again afterwards.
	Run(l *List) error

	// Close frees the device and all of its objects.
	Close() error
}

// Buffer is memory of a device.
type Buffer interface {
	Size() int
	Release()
}

// Pipeline is a compiled shader.
type Pipeline interface{ Release() }

// Group is the buffers of a pipeline's bindings.
type Group interface{ Release() }

// Access is a shader's use of a binding.
type Access uint8

const (
	Uniform   Access = iota // reads a few bytes, equal for all invocations
	Read                    // reads
	ReadWrite               // reads and writes
)

// Range is a part of a buffer; Size 0 is all from At on.
type Range struct {
	Buffer   Buffer
	At, Size int
}

// List is a recorded list of commands. The zero value is empty.
type List struct {
	commands   []command
	dispatches int
	times      []time.Duration // of the stamps, since the first
}

// command is a command of a list; kind selects the fields in use.
type command struct {
	kind     kind
	group    Group
	pipeline Pipeline
	x, y, z  int
	dst, src Buffer
	to, from int
	size     int
	data     []byte
	fill     func(to []byte) error // makes the data to write, or nil
}

type kind uint8

const (
	write kind = iota
	copyBuffer
	dispatch
	read
	stamp
	cut
)

// Reset empties the list.
func (l *List) Reset() { l.commands, l.dispatches = l.commands[:0], 0 }

// Dispatches counts the recorded dispatches.
func (l *List) Dispatches() int { return l.dispatches }

// Write records the writing of data at byte to of b. Both to and the length are multiples of 4. data must stay
// unchanged until the list has run.
func (l *List) Write(b Buffer, to int, data []byte) {
	if len(data) > 0 {
		l.commands = append(l.commands, command{kind: write, dst: b, to: to, data: data, size: len(data)})
	}
}

// Fill records the writing of size bytes made by fill, at byte to of b, when the list runs: fill writes where the
// device takes the bytes.
func (l *List) Fill(b Buffer, to, size int, fill func(to []byte) error) {
	if size > 0 {
		l.commands = append(l.commands, command{kind: write, dst: b, to: to, fill: fill, size: size})
	}
}

// stage copies l's writes into up, one after another.
func (l *List) stage(up []byte) error {
	for i := range l.commands {
		c := &l.commands[i]
		if c.kind != write {
			continue
		}
		if c.fill == nil {
			copy(up, c.data)
		} else if err := c.fill(up[:c.size:c.size]); err != nil {
			return err
		}
		up = up[c.size:]
	}
	return nil
}

// Copy records a copy between two buffers.
func (l *List) Copy(dst Buffer, to int, src Buffer, from, size int) {
	if size > 0 {
		l.commands = append(l.commands, command{kind: copyBuffer, dst: dst, to: to, src: src, from: from, size: size})
	}
}

// Dispatch records a run of x·y·z workgroups; 0 workgroups do nothing.
func (l *List) Dispatch(p Pipeline, g Group, x, y, z int) {
	if x > 0 && y > 0 && z > 0 {
		l.dispatches++
		l.commands = append(l.commands, command{kind: dispatch, pipeline: p, group: g, x: x, y: y, z: z})
	}
}

// Read records the reading of the bytes from byte from of b on into data.
func (l *List) Read(data []byte, b Buffer, from int) {
	if len(data) > 0 {
		l.commands = append(l.commands, command{kind: read, src: b, from: from, data: data, size: len(data)})
	}
}

// Stamp records the taking of the time, where the adapter has Timestamps.
func (l *List) Stamp() { l.commands = append(l.commands, command{kind: stamp}) }

// Cut records that a device may begin with the commands before while the later ones are being encoded.
func (l *List) Cut() { l.commands = append(l.commands, command{kind: cut}) }

// Times returns the times of the last run's stamps since the first stamp; none where the adapter has no Timestamps.
func (l *List) Times() []time.Duration { return l.times }

// check returns an error if c leaves its buffers or the device's limits.
func (c *command) check(limits Limits) error {
	switch c.kind {
	case write:
		return checkWithin("a write", c.dst, c.to, c.size)
	case read:
		return checkWithin("a read", c.src, c.from, c.size)
	case copyBuffer:
		return errors.Join(checkWithin("a copy", c.dst, c.to, c.size), checkWithin("a copy", c.src, c.from, c.size))
	case dispatch:
		if m := limits.Groups; c.x > m || c.y > m || c.z > m {
			return fmt.Errorf("a dispatch of %d x %d x %d workgroups, at most %d are possible in each dimension",
				c.x, c.y, c.z, m)
		}
	}
	return nil
}

// counts are a list's needs of a device.
type counts struct {
	write, read int // bytes
	stamps      int // stamps taken by the adapter
}

// count checks l's commands and counts.
func (l *List) count(a *Adapter) (n counts, err error) {
	for i := range l.commands {
		c := &l.commands[i]
		if err := c.check(a.Limits); err != nil {
			return n, fmt.Errorf("command %d: %w", i, err)
		}
		switch c.kind {
		case write:
			n.write += c.size
		case read:
			n.read += c.size
		case stamp:
			if a.Timestamps {
				n.stamps++
			}
		}
	}
	return n, nil
}

// checkWithin returns an error unless size bytes at an offset are whole words of b.
func checkWithin(what string, b Buffer, at, size int) error {
	if b == nil {
		return fmt.Errorf("%s of no buffer", what)
	}
	if at < 0 || at%4 != 0 || size%4 != 0 || at > b.Size()-size {
		return fmt.Errorf("%s of %d bytes at %d of a buffer of %d, in words of 4", what, size, at, b.Size())
	}
	return nil
}

// checkSize returns an error unless size is allowed for a buffer.
func (l *Limits) checkSize(name string, size int) error {
	if size <= 0 || size%4 != 0 || size > l.Buffer {
		return fmt.Errorf("buffer %s of %d bytes, want a multiple of 4 to %d", name, size, l.Buffer)
	}
	return nil
}

// checkRanges returns an error unless ranges are allowed for the bindings of a shader, and fills in their sizes.
func (l *Limits) checkRanges(shader string, access []Access, ranges []Range) error {
	if len(ranges) != len(access) {
		return fmt.Errorf("shader %s: %d buffers for %d bindings", shader, len(ranges), len(access))
	}
	for i := range ranges {
		r := &ranges[i]
		if r.Buffer == nil {
			return fmt.Errorf("shader %s: binding %d has no buffer", shader, i)
		}
		if r.Size == 0 {
			r.Size = r.Buffer.Size() - r.At
		}
		if r.At < 0 || r.At%l.Alignment != 0 || r.Size <= 0 || r.At > r.Buffer.Size()-r.Size || r.Size > l.Binding {
			return fmt.Errorf("shader %s: binding %d is of %d bytes at %d of %d, at most %d are possible, at "+
				"multiples of %d", shader, i, r.Size, r.At, r.Buffer.Size(), l.Binding, l.Alignment)
		}
		for j, other := range ranges[:i] {
			if other.Buffer == r.Buffer && (access[i] == ReadWrite || access[j] == ReadWrite) {
				return fmt.Errorf("shader %s: bindings %d and %d are of one buffer, and one writes it", shader, j, i)
			}
		}
	}
	return nil
}

// Shim is the JavaScript needed by a program for js: a classic script, to run before the program, in the presence of
// navigator.gpu.
//
//go:embed gpu.js
var Shim string

package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The encoder of a WebAssembly module with SIMD. (WebAssembly Core Specification 2.0, 5.4 and 5.5.)

// code is an expression's or a statement's instructions. The code of a local reads the local.
type code string

// join returns instructions one after the other.
func join(c ...code) (all code) {
	for _, x := range c {
		all += x
	}
	return all
}

// unsigned and signed are numbers in LEB128.
func unsigned(n int) code { return code(binary.AppendUvarint(nil, uint64(n))) }

func signed(n int) (c code) {
	for ; n < -64 || n > 63; n >>= 7 {
		c += code([]byte{byte(n)&127 | 128})
	}
	return c + code([]byte{byte(n) & 127})
}

// sized puts the length before.
func sized(c code) code { return unsigned(len(c)) + c }

// several repeats a type.
func several(t code, n int) []code { return slices.Repeat([]code{t}, n) }

// list is a vector of things.
func list(things []code) code { return unsigned(len(things)) + join(things...) }

// Types of values.
const (
	i32  code = "\x7f"
	f32  code = "\x7d"
	v128 code = "\x7b"
)

// module collects functions. Kernels are called with Go's stack pointer.
type module struct {
	types, funcs, bodies []code
	kernels              []string
	places               []code // the functions of kernels
	exports              []code // of other functions
	fused                bool   // relaxed_madd rounds once
	now                  int    // kernels that are never recorded: the first
	note                 func(args ...code) code
	run                  code // its function
}

// The functions imported, and the module's variables. While rec is not 0, kernels are recorded there, as frames: their
// number, and at 8 the arguments. base has the starts of lanes before, and the end.
const imported = 1 // join runs the lanes

const (
	rec code = code(rune(iota))
	end
	base
	lanes
	threads
	variables = iota
)

const frame = 8 + 128 // bytes

func (f *fn) setGlobal(g, value code) { f.do(value, "\x24", g) }

func global(g code) code { return "\x23" + g }

// fn is a function being written.
type fn struct {
	m            *module
	body         code
	params, vars []code
}

// typed returns the index of a function's type.
func (m *module) typed(params, results []code) code {
	t := "\x60" + list(params) + list(results)
	for i, x := range m.types {
		if x == t {
			return unsigned(i)
		}
	}
	m.types = append(m.types, t)
	return unsigned(len(m.types) - 1)
}

// function adds a function, given its text, and returns what calls it.
func (m *module) function(params, results []code, text func(f *fn, args []code)) func(args ...code) code {
	f := &fn{m: m, params: params}
	args := make([]code, len(params))
	for i := range args {
		args[i] = "\x20" + unsigned(i)
	}
	text(f, args)
	var vars []code
	for from, i := 0, 1; from < len(f.vars); i++ {
		if i == len(f.vars) || f.vars[i] != f.vars[from] {
			vars, from = append(vars, unsigned(i-from)+f.vars[from]), i
		}
	}
	m.funcs = append(m.funcs, m.typed(params, results))
	m.bodies = append(m.bodies, sized(list(vars)+f.body+"\x0b"))
	n := unsigned(imported + len(m.funcs) - 1)
	return func(args ...code) code { return join(args...) + "\x10" + n }
}

// kernel adds a kernel, a function of package simd. Its arguments lie on Go's stack: s is a slice, of which the text
// gets the pointer and the length, p a pointer, i an integer, f a float32, b a byte. An r is the place of the result.
func (m *module) kernel(name, arguments string, text func(f *fn, args []code)) {
	m.kernels = append(m.kernels, name)
	m.function([]code{i32}, nil, func(f *fn, sp []code) {
		var args []code
		take := func(t code, value code) {
			l := f.local(t)
			f.set(l, value)
			args = append(args, l)
		}
		at := 8
		for _, a := range arguments {
			if a != 'f' && a != 'b' {
				at = (at + 7) &^ 7
			}
			switch a {
			case 's':
				take(i32, load32(sp[0], at))
				take(i32, load32(sp[0], at+8))
				at += 24
			case 'p', 'i':
				take(i32, load32(sp[0], at))
				at += 8
			case 'f':
				take(f32, loadF(sp[0], at))
				at += 4
			case 'b':
				take(i32, loadB(sp[0], at))
				at++
			case 'r':
				args = append(args, add(sp[0], num(at)))
			}
		}
		text(f, args)
	})
	m.places = append(m.places, unsigned(imported+len(m.funcs)-1))
}

// kernelNow adds a kernel that is never recorded, before all others.
func (m *module) kernelNow(name, arguments string, text func(f *fn, args []code)) {
	if m.kernel(name, arguments, text); len(m.places) != m.now+1 {
		panic(name + " comes late")
	}
	m.now++
}

// call calls a kernel by its number.
func (m *module) call(sp, number code) code {
	return sp + number + "\x11" + m.typed([]code{i32}, nil) + "\x00"
}

// records has the kernels that record others, a kernel with a result, and run, which runs a lane.
func (m *module) records() {
	join := func(f *fn) {
		f.store32(add(global(base), shl(global(lanes), num(2))), 0, global(rec))
		f.do(global(base), global(lanes), "\x10\x00")
	}
	begin := func(f *fn) {
		f.setGlobal(rec, add(global(base), num(1024)))
		f.setGlobal(lanes, num(0))
	}
	lane := func(f *fn) {
		f.store32(add(global(base), shl(global(lanes), num(2))), 0, global(rec))
		f.setGlobal(lanes, add(global(lanes), num(1)))
	}
	m.kernelNow("hasKernels", "p", func(f *fn, a []code) { f.store32(a[0], 0, global(threads)) })
	m.kernelNow("record", "pi", func(f *fn, a []code) { // room for frames behind 1024 bytes
		f.setGlobal(base, a[0])
		f.setGlobal(end, add(a[0], add(a[1], num(1024))))
		begin(f)
	})
	m.kernelNow("nextLane", "", func(f *fn, _ []code) { lane(f) })
	m.kernelNow("joinLanes", "", func(f *fn, _ []code) {
		join(f)
		f.setGlobal(rec, num(0))
	})
	m.kernelNow("maxVec", "sr", func(f *fn, a []code) {
		m := f.keep(v128, constF(float32(math.Inf(-1))))
		f.steps(a[1], func() { f.set(m, maxV(m, load(a[0], 0))) }, a[0])
		f.set(m, maxV(m, shuffle(m, m, 4, 2, 3, 0, 1)))
		f.set(m, maxV(m, shuffle(m, m, 4, 1, 0, 3, 2)))
		f.storeF(a[2], 0, lane32(m, 0))
	})
	m.note = m.function([]code{i32, i32}, nil, func(f *fn, a []code) {
		f.when(equal(global(rec), global(end)), func() { // recorded frames run first
			join(f)
			begin(f)
			lane(f)
		})
		f.store32(global(rec), 0, a[1])
		f.do(add(global(rec), num(8)), add(a[0], num(8)), num(frame-8), "\xfc\x0a\x00\x00")
		f.setGlobal(rec, add(global(rec), num(frame)))
	})
	m.function([]code{i32, i32}, nil, func(f *fn, a []code) {
		starts := f.keep(i32, add(a[0], shl(a[1], num(2))))
		at := f.keep(i32, load32(starts, 0))
		f.while(sub(load32(starts, 4), at), func() {
			f.do(m.call(at, load32(at, 0)))
			f.step(at, frame)
		})
	})
	m.run = unsigned(imported + len(m.funcs) - 1)
}

// bytes is the module. It imports a memory, a table and a function. The export is called with Go's stack pointer, and
// calls the first function of the table, which calls the kernel whose place in the table lies below the stack pointer.
// So an instance can be made before the memory is there, and another one with the memory puts its functions into the
// table.
func (m *module) bytes() []byte {
	m.function([]code{i32}, nil, func(f *fn, sp []code) {
		n := f.keep(i32, load32(sub(sp[0], num(8)), 0))
		recorded := andI(not(not(global(rec))), less(num(m.now), n))
		f.choose(recorded, func() { f.do(m.note(sp[0], n)) }, func() { f.do(m.call(sp[0], n)) })
	})
	places := append([]code{unsigned(imported + len(m.funcs) - 1)}, m.places...)
	m.function([]code{i32}, nil, func(f *fn, sp []code) { f.do(m.call(sp[0], num(0))) })
	exports := append(m.exports, "\x09simd.call\x00"+unsigned(imported+len(m.funcs)-1), "\x03run\x00"+m.run,
		"\x07threads\x03"+threads)
	var globals []code
	for i := range variables {
		globals = append(globals, i32+"\x01"+num(i/(variables-1))+"\x0b") // a thread
	}
	pair := m.typed([]code{i32, i32}, nil)
	section := func(id code, c code) code { return id + sized(c) }
	return []byte("\x00asm\x01\x00\x00\x00" +
		section("\x01", list(m.types)) +
		section("\x02", "\x03\x03env\x06memory\x02\x00\x81\x80\x80\x80\x00"+ // as long as limits of shared memory
			"\x03env\x05table\x01\x70\x00"+unsigned(len(places))+"\x03env\x04join\x00"+pair) +
		section("\x03", list(m.funcs)) +
		section("\x06", list(globals)) +
		section("\x07", list(exports)) +
		section("\x09", "\x01\x00"+num(0)+"\x0b"+list(places)) +
		section("\x0a", list(m.bodies)))
}

// files are the module and one with fused sums, and what calls them from Go.
func (m *module) files(fused *module) map[string]string {
	const note = "// Code generated by internal/dev/simdgen. DO NOT EDIT.\n"
	var s strings.Builder
	s.WriteString(note + `
//go:build js && karat_wasmsimd

#include "textflag.h"

// Kernels are called by their numbers, left below Go's stack pointer. The tier does without some.
#define KERNEL(kernel, number) \
	TEXT kernel(SB), NOSPLIT, $0; \
	Get SP;                       \
	I32Const $8;                  \
	I32Sub;                       \
	I32Const $number;             \
	I32Store $0;                  \
	JMP ·callImport(SB)
#define NONE(kernel) TEXT kernel(SB), NOSPLIT, $0; UNDEF

`)
	for i, name := range m.kernels {
		fmt.Fprintf(&s, "KERNEL(·%s, %d)\n", name, i+1)
	}
	for _, name := range []string{"limitReadVec", "fetch", "Pause"} {
		fmt.Fprintf(&s, "NONE(·%s)\n", name)
	}
	script := note + "export const KERNELS = '%s';\nexport const FUSED = '%s';\n"
	text := base64.StdEncoding.EncodeToString
	return map[string]string{"kernels_js.s": s.String(),
		"../../js/kernels.js": fmt.Sprintf(script, text(m.bytes()), text(fused.bytes()))}
}

// local adds a local variable.
func (f *fn) local(t code) code {
	f.vars = append(f.vars, t)
	return "\x20" + unsigned(len(f.params)+len(f.vars)-1)
}

// locals adds several.
func (f *fn) locals(t code, n int) []code {
	l := make([]code, n)
	for i := range l {
		l[i] = f.local(t)
	}
	return l
}

// keep sets a new local variable.
func (f *fn) keep(t, value code) code {
	l := f.local(t)
	f.set(l, value)
	return l
}

// pointers are some, distance bytes apart.
func (f *fn) pointers(first, distance code, n int) []code {
	p := []code{f.keep(i32, first)}
	for len(p) < n {
		p = append(p, f.keep(i32, add(p[len(p)-1], distance)))
	}
	return p
}

func (f *fn) do(c ...code)       { f.body += join(c...) }
func (f *fn) set(l, value code)  { f.do(value, "\x21", l[1:]) }
func (f *fn) step(l code, n int) { f.set(l, add(l, num(n))) }

// tee is the value that l is set to.
func tee(l, value code) code { return value + "\x22" + l[1:] }

// when runs a block if a condition is not 0.
func (f *fn) when(condition code, text func()) {
	f.do(condition, "\x04\x40")
	text()
	f.do("\x0b")
}

// choose runs one of two blocks.
func (f *fn) choose(condition code, text, otherwise func()) {
	f.do(condition, "\x04\x40")
	text()
	f.do("\x05")
	otherwise()
	f.do("\x0b")
}

// repeat runs a block n times, counting down; n may be 0.
func (f *fn) repeat(n code, text func()) {
	left := f.keep(i32, n)
	f.when(left, func() {
		f.do("\x03\x40")
		text()
		f.do(tee(left, sub(left, num(1))), "\x0d\x00\x0b")
	})
}

// while runs a block as long as a condition is not 0.
func (f *fn) while(condition code, text func()) {
	f.do("\x02\x40\x03\x40", not(condition), "\x0d\x01")
	text()
	f.do("\x0c\x00\x0b\x0b")
}

// Scalar instructions.

// num is an integer.
func num(n int) code { return "\x41" + signed(int(int32(n))) }

func binary2(op code) func(a, b code) code { return func(a, b code) code { return a + b + op } }

var (
	add, sub, mul  = binary2("\x6a"), binary2("\x6b"), binary2("\x6c")
	andI, shl, shr = binary2("\x71"), binary2("\x74"), binary2("\x76")
	equal, less    = binary2("\x46"), binary2("\x48") // signed
	divideI        = binary2("\x6e")                  // unsigned

	addF, subF, mulF = binary2("\x92"), binary2("\x93"), binary2("\x94")
	maxF, leF        = binary2("\x97"), binary2("\x5f")
)

func not(a code) code   { return a + "\x45" }
func bitsF(a code) code { return a + "\xbc" }

func load32(p code, at int) code { return p + "\x28\x00" + unsigned(at) }
func loadB(p code, at int) code  { return p + "\x2d\x00" + unsigned(at) }
func loadF(p code, at int) code  { return p + "\x2a\x00" + unsigned(at) }

func (f *fn) storeF(p code, at int, x code)  { f.do(p, x, "\x38\x00", unsigned(at)) }
func (f *fn) store32(p code, at int, x code) { f.do(p, x, "\x36\x00", unsigned(at)) }
func (f *fn) store64(p code, at int, x code) { f.do(p, x, "\x37\x00", unsigned(at)) }

// Vector instructions, by their opcodes.

func vector(op int) func(args ...code) code {
	return func(args ...code) code { return join(args...) + "\xfd" + unsigned(op) }
}

func memory(op int) func(p code, at int) code {
	return func(p code, at int) code { return p + "\xfd" + unsigned(op) + "\x00" + unsigned(at) }
}

var (
	load, splat32At, load32At, load64At = memory(0), memory(9), memory(92), memory(93)

	splat8, splat32, splatF    = vector(15), vector(17), vector(19)
	notV, and, andNot, or, xor = vector(77), vector(78), vector(79), vector(80), vector(81)
	pick, anyTrue              = vector(82), vector(83)
	swizzle                    = vector(14)

	shrB, shlH, shrH                      = vector(109), vector(139), vector(141)
	narrowS, narrowU                      = vector(133), vector(134) // dwords to words
	lowB, lowS                            = vector(135), vector(167) // signed bytes and words widened
	lowUB, lowU, addH                     = vector(137), vector(169), vector(142)
	shlI, sarI, shrI                      = vector(171), vector(172), vector(173)
	addI, subI, mulI                      = vector(174), vector(177), vector(181)
	lessU                                 = vector(58)
	eqI, gtI, geI, maxI, dot, eqB         = vector(55), vector(59), vector(63), vector(184), vector(186), vector(35)
	shrQ, addQ, eqQ, sarQ                 = vector(205), vector(206), vector(214), vector(204)
	absV, negV, addV, subV, mulV, divV    = vector(224), vector(225), vector(228), vector(229), vector(230), vector(231)
	minV, maxV, ltV                       = vector(232), vector(233), vector(67)
	addD, subD, mulD, ltD, gtD            = vector(240), vector(241), vector(242), vector(73), vector(74)
	neD, floorD, shlQ                     = vector(72), vector(117), vector(203)
	madd                                  = vector(0x105) // relaxed, in one rounding or in two
	nearest, toInt, toFloat, widen, round = vector(106), vector(248), vector(250), vector(95), vector(94)
)

func (f *fn) store(p code, at int, x code) { f.do(p, x, "\xfd\x0b\x00", unsigned(at)) }

// lane32 returns lane i of 32 bits, as float32.
func lane32(x code, i int) code { return x + "\xfd\x1f" + code([]byte{byte(i)}) }

// laneI returns it as an integer.
func laneI(x code, i int) code { return x + "\xfd\x1b" + code([]byte{byte(i)}) }

// shuffle takes numbers of size bytes of a and b.
func shuffle(a, b code, size int, from ...int) code {
	c := a + b + "\xfd\x0d"
	for _, n := range from {
		for i := range size {
			c += code([]byte{byte(n*size + i)})
		}
	}
	return c
}

// consts are vectors of a repeated number.
func constI(n uint32) code {
	b := binary.LittleEndian.AppendUint32(nil, n)
	return "\xfd\x0c" + code(strings.Repeat(string(b), 4))
}

func constF(x float32) code { return constI(math.Float32bits(x)) }

func constD(n uint64) code {
	b := binary.LittleEndian.AppendUint64(nil, n)
	return "\xfd\x0c" + code(strings.Repeat(string(b), 2))
}

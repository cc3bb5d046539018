//go:build !nogpu && ((linux && !android) || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The library's compiler knows no matrix units. So matrices become structs in its WGSL, and the functions on matrices
// become functions on these structs, whose bodies name memory and rows' lengths. In the compiled module the structs are
// types of matrices again, and the bodies are Vulkan's instructions.

// Names of structs, of functions, or their beginnings, and of the functions' first parameters. The compiler keeps the
// names of parameters and members.
const (
	leftUnit, rightUnit, sumUnit       = "UnitLeft", "UnitRight", "UnitSum"
	loadUnit, storeUnit, multiplyUnits = "unit_load_", "unit_store_", "unit_multiply"
	rowUnit, colUnit                   = "row_at", "col_at"
)

var (
	needsLine = regexp.MustCompile(`(?m)^(enable|requires|diagnostic).*\n`)
	zeroCall  = regexp.MustCompile(`subgroup_matrix_result<f32, (\d+), (\d+)>\(\)`)
	loadCall  = regexp.MustCompile(
		`subgroupMatrixLoad<subgroup_matrix_(left|right)<f16, (\d+), (\d+)>, (row|col)_major>\(&(\w+), `)
	storeCall = regexp.MustCompile(`subgroupMatrixStore<row_major>\(&(\w+), `)
)

const multiplyCall = "subgroupMatrixMultiplyAccumulate("

// standIns replaces the matrices in a shader's text, and returns the shape of their products: zero if there are none.
// Of an array of vec4u places and lengths count elements of matrices.
func standIns(wgsl string) (string, Shape) {
	if !strings.Contains(wgsl, multiplyCall) {
		return wgsl, Shape{}
	}
	var s Shape
	functions := map[string]string{}
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	isWords := func(of string) bool { return strings.Contains(wgsl, " "+of+": array<vec4u") }
	text := zeroCall.ReplaceAllStringFunc(needsLine.ReplaceAllString(wgsl, ""), func(call string) string {
		m := zeroCall.FindStringSubmatch(call)
		s.N, s.M = number(m[1]), number(m[2])
		return sumUnit + "()"
	})
	text = loadCall.ReplaceAllStringFunc(text, func(call string) string {
		m := loadCall.FindStringSubmatch(call)
		to, of := leftUnit, m[5]
		if s.K = number(m[2]); m[1] == "right" {
			s.K, to = number(m[3]), rightUnit
		}
		name, at := loadUnit+m[4]+"_"+m[1]+"_"+of, m[4]+"_at"
		body := "pitch, u32(" + of + "[" + at + "])"
		if isWords(of) {
			body = "pitch >> 3u, " + of + "[" + at + " >> 3u].x"
		}
		functions[name] = fmt.Sprintf("fn %s(%s: u32, pitch: u32) -> %s { return %s(%s); }\n", name, at, to, to, body)
		return name + "("
	})
	text = storeCall.ReplaceAllStringFunc(text, func(call string) string {
		of := storeCall.FindStringSubmatch(call)[1]
		name, body := storeUnit+of, of+"["+storeUnit+"] = f32(pitch)"
		if isWords(of) {
			body = of + "[" + storeUnit + " >> 2u] = vec4u(pitch >> 2u)"
		}
		functions[name] = fmt.Sprintf("fn %s(%s: u32, v: %s, pitch: u32) { %s; }\n", name, storeUnit, sumUnit, body)
		return name + "("
	})
	text = strings.ReplaceAll(text, multiplyCall, multiplyUnits+"(")
	functions[multiplyUnits] = fmt.Sprintf("fn %s(%s: %s, b: %s, c: %s) -> %s { return c; }\n",
		multiplyUnits, multiplyUnits, leftUnit, rightUnit, sumUnit, sumUnit)
	var b strings.Builder
	for _, name := range []string{leftUnit, rightUnit, sumUnit} {
		fmt.Fprintf(&b, "struct %s { %s: u32, e: u32 }\n", name, name)
	}
	for _, f := range functions {
		b.WriteString(f)
	}
	return b.String() + text, s
}

// SPIR-V's instructions.
const (
	opExtension, opName, opMemberName, opMemoryModel, opCapability = 10, 5, 6, 14, 17
	opTypeInt, opTypeFloat, opTypeStruct, opTypePointer            = 21, 22, 30, 32
	opConstant, opConstantComposite, opConstantNull                = 43, 44, 46
	opFunction, opParameter, opFunctionEnd                         = 54, 55, 56
	opVariable, opLoad, opStore, opAccessChain                     = 59, 61, 62, 65
	opDecorate, opMemberDecorate, opComposite, opShiftRight        = 71, 72, 80, 194
	opBarrier, opReturn, opReturnValue, opLabel                    = 224, 253, 254, 248

	opTypeMatrix, opMatrixLoad, opMatrixStore, opMatrixMultiply = 4456, 4457, 4458, 4459
)

// instruction is an instruction of SPIR-V, with its first word, of its number and length.
type instruction []uint32

func (i instruction) op() uint32 { return i[0] & 0xffff }

// instructionOf returns an instruction with its arguments.
func instructionOf(op uint32, args ...uint32) instruction {
	return append(instruction{uint32(len(args)+1)<<16 | op}, args...)
}

// literal returns a string as words.
func literal(s string) []uint32 {
	words := make([]uint32, len(s)/4+1)
	for i := range len(s) {
		words[i/4] |= uint32(s[i]) << (i % 4 * 8)
	}
	return words
}

// text returns the string in words.
func text(words []uint32) string {
	var b []byte
	for _, w := range words {
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// unitWriter turns the structs and functions of standIns into matrices.
type unitWriter struct {
	Shape
	bound   uint32
	names   map[uint32]string
	scalars map[[2]uint32]uint32 // ids of u32 and floats, by instruction and bits
	types   []instruction        // scalars, constants and matrices, before other types
	numbers map[uint32]uint32    // ids of constants
	shared  map[uint32]bool      // types of pointers to a workgroup's memory, and such pointers
	out     []instruction
}

// create returns a new id.
func (w *unitWriter) create() uint32 {
	w.bound++
	return w.bound - 1
}

// scalar returns the id of a type of 32 or 16 bits.
func (w *unitWriter) scalar(op, bits uint32) uint32 {
	key := [2]uint32{op, bits}
	if w.scalars[key] == 0 {
		w.scalars[key] = w.create()
	}
	id := w.scalars[key]
	i := instructionOf(op, id, bits)
	if op == opTypeInt {
		i = instructionOf(op, id, bits, 0)
	}
	w.types = append(w.types, i)
	return id
}

// constant returns the id of a u32.
func (w *unitWriter) constant(value int) uint32 {
	n := uint32(value)
	if w.numbers[n] == 0 {
		w.numbers[n] = w.create()
		w.types = append(w.types, instructionOf(opConstant, w.scalars[[2]uint32{opTypeInt, 32}], w.numbers[n], n))
	}
	return w.numbers[n]
}

// Numbers of SPIR-V.
const (
	workgroupClass, vulkanModel, nonPrivate = 4, 3, 0x20

	barrierOrder = 0x6108 // acquire and release the workgroup's memory, made available and visible
)

// withUnits returns a module compiled of standIns's text, with matrices of a shape.
func withUnits(words []uint32, s Shape) []uint32 {
	const header = 5
	var all []instruction
	for at := header; at < len(words); {
		size := int(words[at] >> 16)
		if size == 0 || at+size > len(words) {
			return words // not SPIR-V: the driver says so
		}
		all = append(all, instruction(words[at:at+size]))
		at += size
	}
	w := &unitWriter{Shape: s, bound: words[3], names: map[uint32]string{}, scalars: map[[2]uint32]uint32{},
		numbers: map[uint32]uint32{}, shared: map[uint32]bool{}}
	for _, i := range all {
		switch i.op() {
		case opName:
			w.names[i[1]] = text(i[2:])
		case opMemberName:
			if i[2] == 0 {
				w.names[i[1]] = text(i[3:])
			}
		case opTypeInt, opTypeFloat:
			if i.op() == opTypeFloat || i[3] == 0 {
				w.scalars[[2]uint32{i.op(), i[2]}] = i[1]
			}
		}
	}
	w.scalar(opTypeInt, 32)
	half, float := w.scalar(opTypeFloat, 16), w.scalar(opTypeFloat, 32)
	scope, m, n, k := w.constant(3), w.constant(s.M), w.constant(s.N), w.constant(s.K)
	for id, name := range w.names {
		switch name {
		case leftUnit:
			w.types = append(w.types, instructionOf(opTypeMatrix, id, half, scope, m, k, w.constant(0)))
		case rightUnit:
			w.types = append(w.types, instructionOf(opTypeMatrix, id, half, scope, k, n, w.constant(1)))
		case sumUnit:
			w.types = append(w.types, instructionOf(opTypeMatrix, id, float, scope, m, n, w.constant(2)))
		}
	}
	w.constant(0)
	w.constant(1)
	w.constant(barrierOrder)
	for at := 0; at < len(all); at++ {
		if all[at].op() == opFunction {
			end := at + slices.IndexFunc(all[at:], func(i instruction) bool { return i.op() == opFunctionEnd })
			w.function(all[at : end+1])
			at = end
			continue
		}
		w.global(all[at])
	}
	out := append(slices.Clone(words[:header]), slices.Concat(w.out...)...)
	out[3] = w.bound
	return out
}

// isUnit reports whether an id is a matrix's type.
func (w *unitWriter) isUnit(id uint32) bool {
	name := w.names[id]
	return name == leftUnit || name == rightUnit || name == sumUnit
}

// global writes an instruction outside of functions.
func (w *unitWriter) global(i instruction) {
	first := i.op() >= 19 && i.op() <= 33 // a type
	if first && w.types != nil {
		w.out, w.types = append(w.out, w.types...), nil
	}
	switch i.op() {
	case opMemoryModel:
		const units, model = 6022, 5345 // capabilities
		w.out = append(w.out, instructionOf(opMemoryModel, i[1], vulkanModel))
		rest := slices.IndexFunc(w.out, func(i instruction) bool { return i.op() != opCapability })
		if rest < 0 {
			rest = len(w.out)
		}
		w.out = slices.Insert(w.out, rest, instructionOf(opCapability, 9), instructionOf(opCapability, units),
			instructionOf(opCapability, model), instructionOf(opExtension, literal("SPV_KHR_cooperative_matrix")...),
			instructionOf(opExtension, literal("SPV_KHR_vulkan_memory_model")...))
		return
	case opTypeInt, opTypeFloat:
		if w.scalars[[2]uint32{i.op(), i[2]}] == i[1] {
			return // among types
		}
	case opTypeStruct, opMemberDecorate, opDecorate, opMemberName:
		if w.isUnit(i[1]) {
			return
		}
	case opConstantComposite:
		if w.isUnit(i[1]) {
			i = instructionOf(opConstantNull, i[1], i[2])
		}
	case opTypePointer:
		w.shared[i[1]] = i[2] == workgroupClass
	case opVariable:
		w.shared[i[2]] = i[3] == workgroupClass
	}
	w.out = append(w.out, i)
}

// function writes a function.
func (w *unitWriter) function(all []instruction) {
	var params []uint32
	name := "" // of the first parameter
	load, stride, pointer := uint32(0), uint32(0), uint32(0)
	for _, i := range all {
		switch i.op() {
		case opParameter:
			params = append(params, i[2])
			name = w.names[params[0]]
		case opLoad:
			i = w.seen(i, 4, i[3])
			if load == 0 {
				load = i[3]
			}
		case opStore:
			if i, pointer = w.seen(i, 3, i[1]), i[1]; name == storeUnit {
				stride = cmp.Or(stride, params[2])
				w.out = append(w.out, w.private(pointer, opMatrixStore, pointer, params[1], w.numbers[0], stride))
				continue
			}
		case opShiftRight:
			if name == storeUnit && i[3] == params[2] {
				stride = i[2]
			}
		case opAccessChain:
			w.shared[i[2]] = w.shared[i[1]]
		case opBarrier:
			i = instructionOf(opBarrier, i[1], i[2], w.numbers[barrierOrder])
		case opComposite:
			if (name == rowUnit || name == colUnit) && w.isUnit(i[1]) {
				layout := w.numbers[0]
				if name == colUnit {
					layout = w.numbers[1]
				}
				i = w.private(load, opMatrixLoad, i[1], i[2], load, layout, i[3])
			}
		case opReturnValue:
			if name == multiplyUnits {
				sum := w.create()
				w.out = append(w.out, instructionOf(opMatrixMultiply, all[0][1], sum, params[0], params[1], params[2]))
				i = instructionOf(opReturnValue, sum)
			}
		}
		w.out = append(w.out, i)
	}
}

// seen returns an instruction of size words, whose memory other invocations see if pointer is to a workgroup's.
func (w *unitWriter) seen(i instruction, size int, pointer uint32) instruction {
	if len(i) != size || !w.shared[pointer] {
		return i
	}
	return instructionOf(i.op(), append(slices.Clone(i[1:]), nonPrivate)...)
}

// private returns an instruction with its arguments, the same.
func (w *unitWriter) private(pointer, op uint32, args ...uint32) instruction {
	if w.shared[pointer] {
		args = append(args, nonPrivate)
	}
	return instructionOf(op, args...)
}

//go:build !karat_wasmsimd

package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Values of a pickle besides texts, numbers and nil.
type (
	pickleDict struct{ keys, values []any }
	pickleList struct{ items []any }      // a tuple as well
	pickleName string                     // of a function or a class
	pickleMark struct{}                   // on the stack
	pickleCall struct{ name pickleName }  // the result of any other function
	storage    struct{ kind, key string } // of a tensor
)

func (d *pickleDict) find(key string) any {
	for i, k := range d.keys {
		if k == key {
			return d.values[i]
		}
	}
	return nil
}

// pickle is a stream of operations being read, as Python's pickletools describes them. No function is called: the
// result of a function is a tensor, a dict, or nothing.
type pickle struct {
	data  []byte
	stack []any
	memo  map[int]any
}

var errPickle = errors.New("a pickle that is damaged, or of other values than tensors, dicts and lists")

// unpickle reads the value of a pickle. Its memory is bounded by the pickle's size.
func unpickle(data []byte) (v any, err error) {
	p := &pickle{data: data, memo: map[int]any{}}
	for {
		op, ok := p.take(1)
		if !ok {
			return nil, errPickle
		}
		if op[0] == '.' {
			return p.pop()
		}
		if err := p.step(op[0]); err != nil {
			return nil, err
		}
	}
}

func (p *pickle) take(n int) ([]byte, bool) {
	if n < 0 || n > len(p.data) {
		return nil, false
	}
	x := p.data[:n]
	p.data = p.data[n:]
	return x, true
}

func (p *pickle) push(v any) { p.stack = append(p.stack, v) }

func (p *pickle) pop() (any, error) {
	if len(p.stack) == 0 {
		return nil, errPickle
	}
	v := p.stack[len(p.stack)-1]
	p.stack = p.stack[:len(p.stack)-1]
	return v, nil
}

// popMark returns the values above the last mark.
func (p *pickle) popMark() ([]any, error) {
	for i := len(p.stack) - 1; i >= 0; i-- {
		if _, ok := p.stack[i].(pickleMark); ok {
			items := slices.Clone(p.stack[i+1:])
			p.stack = p.stack[:i]
			return items, nil
		}
	}
	return nil, errPickle
}

// number reads a little-endian number of n bytes, signed if it has 4 or 8.
func (p *pickle) number(n int) (int, error) {
	b, ok := p.take(n)
	if !ok {
		return 0, errPickle
	}
	switch n {
	case 1:
		return int(b[0]), nil
	case 2:
		return int(binary.LittleEndian.Uint16(b)), nil
	case 4:
		return int(int32(binary.LittleEndian.Uint32(b))), nil
	}
	return int(binary.LittleEndian.Uint64(b)), nil
}

// widths are the sizes of the operands of operations that push or keep by a number.
var widths = map[byte]int{'J': 4, 'K': 1, 'M': 2, 'q': 1, 'r': 4, 'h': 1, 'j': 4, 'X': 4, 0x8c: 1, 0x8d: 8, 0x80: 1,
	0x95: 8, 0x8a: 1, 'G': 8, 'C': 1, 'B': 4}

// step does one operation.
func (p *pickle) step(op byte) error {
	n := 0
	if w, ok := widths[op]; ok {
		var err error
		if n, err = p.number(w); err != nil {
			return err
		}
	}
	switch op {
	case 0x80, 0x95: // the protocol, the length of a frame
	case 'J', 'K', 'M':
		p.push(n)
	case 'G', 'N':
		p.push(nil)
	case 0x88, 0x89:
		p.push(op == 0x88)
	case 'X', 0x8c, 0x8d, 'C', 'B', 0x8a:
		return p.text(op, n)
	case 'q', 'r', 0x94, 'h', 'j':
		return p.remember(op, n)
	case '(':
		p.push(pickleMark{})
	case ')', ']':
		p.push(&pickleList{})
	case '}':
		p.push(&pickleDict{})
	case 't', 'l', 0x85, 0x86, 0x87, 'a', 'e':
		return p.list(op)
	case 's', 'u', 'd':
		return p.dict(op)
	case 'c', 0x93, 'Q', 'R', 0x81, 'b':
		return p.object(op)
	default:
		return fmt.Errorf("%w: operation %#x", errPickle, op)
	}
	return nil
}

// text pushes a text of n bytes, or a long number of n bytes.
func (p *pickle) text(op byte, n int) error {
	b, ok := p.take(n)
	if !ok {
		return errPickle
	}
	if op != 0x8a {
		p.push(string(b))
		return nil
	}
	if len(b) > 8 {
		return errPickle
	}
	var v int64
	for i, c := range b {
		v |= int64(c) << (8 * i)
	}
	if k := len(b); k > 0 && k < 8 && b[k-1]&0x80 != 0 {
		v -= 1 << (8 * k)
	}
	p.push(int(v))
	return nil
}

// remember keeps the top of the stack under a number, or pushes the value kept.
func (p *pickle) remember(op byte, n int) error {
	switch op {
	case 'h', 'j':
		v, ok := p.memo[n]
		if !ok {
			return errPickle
		}
		p.push(v)
		return nil
	case 0x94:
		n = len(p.memo)
	}
	if len(p.stack) == 0 {
		return errPickle
	}
	p.memo[n] = p.stack[len(p.stack)-1]
	return nil
}

// list makes a tuple or a list, or adds to a list.
func (p *pickle) list(op byte) (err error) {
	var items []any
	switch op {
	case 't', 'l', 'e':
		items, err = p.popMark()
	default:
		n := map[byte]int{'a': 1, 0x85: 1, 0x86: 2, 0x87: 3}[op]
		if len(p.stack) < n {
			return errPickle
		}
		items = slices.Clone(p.stack[len(p.stack)-n:])
		p.stack = p.stack[:len(p.stack)-n]
	}
	if err != nil {
		return err
	}
	if op != 'a' && op != 'e' {
		p.push(&pickleList{items})
		return nil
	}
	if len(p.stack) == 0 {
		return errPickle
	}
	if to, ok := p.stack[len(p.stack)-1].(*pickleList); ok {
		to.items = append(to.items, items...)
		return nil
	}
	return errPickle
}

// dict sets items of a dict, or makes a dict.
func (p *pickle) dict(op byte) (err error) {
	var items []any
	if op == 's' {
		if len(p.stack) < 2 {
			return errPickle
		}
		items = slices.Clone(p.stack[len(p.stack)-2:])
		p.stack = p.stack[:len(p.stack)-2]
	} else if items, err = p.popMark(); err != nil {
		return err
	}
	if op == 'd' {
		p.push(&pickleDict{})
	}
	if len(items)%2 != 0 || len(p.stack) == 0 {
		return errPickle
	}
	to, ok := p.stack[len(p.stack)-1].(*pickleDict)
	if !ok {
		return errPickle
	}
	for i := 0; i < len(items); i += 2 {
		to.keys, to.values = append(to.keys, items[i]), append(to.values, items[i+1])
	}
	return nil
}

// object pushes the name of a function, a storage, or the result of a function.
func (p *pickle) object(op byte) error {
	if op == 'c' {
		module, rest, ok := bytes.Cut(p.data, []byte("\n"))
		name, rest, also := bytes.Cut(rest, []byte("\n"))
		if !ok || !also {
			return errPickle
		}
		p.data = rest
		p.push(pickleName(module) + "." + pickleName(name))
		return nil
	}
	b, err := p.pop()
	if err != nil {
		return err
	}
	if op == 'Q' {
		return p.storage(b)
	}
	a, err := p.pop()
	if err != nil {
		return err
	}
	switch op {
	case 0x93:
		module, ok := a.(string)
		name, also := b.(string)
		if !ok || !also {
			return errPickle
		}
		p.push(pickleName(module + "." + name))
	case 'b': // the state of an object: an ordered dict's is of no use
		p.push(a)
	default:
		name, _ := a.(pickleName)
		args, _ := b.(*pickleList)
		return p.call(name, args)
	}
	return nil
}

// storage pushes the storage of ("storage", class, key, location, elements).
func (p *pickle) storage(id any) error {
	list, ok := id.(*pickleList)
	if !ok || len(list.items) < 3 {
		return errPickle
	}
	kind, ok := list.items[1].(pickleName)
	key, also := list.items[2].(string)
	if !ok || !also {
		return errPickle
	}
	p.push(&storage{string(kind[strings.LastIndexByte(string(kind), '.')+1:]), key})
	return nil
}

// call pushes the result of a function: a tensor, a dict, the first argument of a parameter, or nothing known.
func (p *pickle) call(name pickleName, args *pickleList) error {
	if args == nil {
		return errPickle
	}
	switch name {
	case "collections.OrderedDict":
		p.push(&pickleDict{})
	case "torch._utils._rebuild_parameter":
		if len(args.items) == 0 {
			return errPickle
		}
		p.push(args.items[0])
	case "torch._utils._rebuild_tensor_v2":
		if len(args.items) < 4 {
			return errPickle
		}
		s, ok := args.items[0].(*storage)
		offset, isInt := args.items[1].(int)
		shape, isShape := args.items[2].(*pickleList)
		stride, isStride := args.items[3].(*pickleList)
		if !ok || !isInt || !isShape || !isStride {
			return errPickle
		}
		t := &torchTensor{kind: s.kind, key: s.key, offset: offset}
		for _, x := range []struct {
			from *pickleList
			to   *[]int
		}{{shape, &t.shape}, {stride, &t.stride}} {
			for _, v := range x.from.items {
				n, ok := v.(int)
				if !ok || n < 0 {
					return errPickle
				}
				*x.to = append(*x.to, n)
			}
		}
		p.push(t)
	default:
		p.push(&pickleCall{name})
	}
	return nil
}

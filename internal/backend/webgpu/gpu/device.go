package gpu

import (
	"cmp"
	"fmt"
	"slices"
)

// binding is a device's WebGPU library. Arguments are checked by the device before; objects belong to the binding.
type binding interface {
	newBuffer(name string, size int) (made any, err error)
	newPipeline(name, wgsl string, access []Access) (made any, err error)
	newGroup(name string, pipeline any, ranges []Range) (made any, err error)
	free(made any)
	run(l *List, n counts) error
	lost() string            // why nothing runs any more; "" if the device is not lost
	close(free func()) error // calls free to free all objects, once nothing runs
}

// device implements Device by a binding: it checks arguments, and keeps the list of buffers to free.
type device struct {
	binding
	adapter Adapter
	made    map[*object]bool // not yet released
	gone    error            // why nothing runs any more
}

// object implements Buffer, Pipeline and Group.
type object struct {
	d      *device
	made   any // by the binding
	name   string
	size   int      // of a buffer
	access []Access // of a pipeline
}

// Size implements Buffer.
func (o *object) Size() int { return o.size }

// Release implements Buffer, Pipeline and Group.
func (o *object) Release() {
	if o.d.made[o] {
		delete(o.d.made, o)
		o.d.free(o.made)
	}
}

// madeOf returns the binding's object of x, a Buffer, a Pipeline or a Group.
func madeOf[T any](x any) T { return x.(*object).made.(T) }

// newDevice returns a device computing by b.
func newDevice(a Adapter, b binding) *device {
	return &device{binding: b, adapter: a, made: map[*object]bool{}}
}

// check returns err, or why the device is lost.
func (d *device) check(err error) error {
	if why := d.lost(); why != "" && d.gone == nil {
		d.gone = fmt.Errorf("%s: %w: %s", d.adapter.Name, ErrLost, why)
	}
	return cmp.Or(d.gone, err)
}

// keep fills in o, made by a binding, or returns the binding's error, with words for the failed step.
func (d *device) keep(o *object, made any, err error, words string, args ...any) error {
	if err := d.check(err); err != nil {
		return cmp.Or(d.gone, fmt.Errorf(words+": %w", append(args, err)...))
	}
	o.d, o.made = d, made
	d.made[o] = true
	return nil
}

// Adapter implements Device.
func (d *device) Adapter() Adapter { return d.adapter }

// NewBuffer implements Device.
func (d *device) NewBuffer(name string, size int) (Buffer, error) {
	if err := d.check(d.adapter.Limits.checkSize(name, size)); err != nil {
		return nil, err
	}
	o := &object{name: name, size: size}
	made, err := d.newBuffer(name, size)
	if err := d.keep(o, made, err, "buffer %s of %d bytes", name, size); err != nil {
		return nil, err
	}
	return o, nil
}

// NewPipeline implements Device.
func (d *device) NewPipeline(name, wgsl string, access []Access) (Pipeline, error) {
	if err := d.check(nil); err != nil {
		return nil, err
	}
	o := &object{name: name, access: access}
	made, err := d.newPipeline(name, wgsl, access)
	if err := d.keep(o, made, err, "%w %s", ErrShader, name); err != nil {
		return nil, err
	}
	return o, nil
}

// NewGroup implements Device.
func (d *device) NewGroup(of Pipeline, ranges ...Range) (Group, error) {
	p := of.(*object)
	ranges = slices.Clone(ranges)
	if err := d.check(d.adapter.Limits.checkRanges(p.name, p.access, ranges)); err != nil {
		return nil, err
	}
	o := &object{name: p.name}
	made, err := d.newGroup(p.name, p.made, ranges)
	if err := d.keep(o, made, err, "shader %s", p.name); err != nil {
		return nil, err
	}
	return o, nil
}

// Run implements Device.
func (d *device) Run(l *List) error {
	if err := d.check(nil); err != nil {
		return err
	}
	n, err := l.count(&d.adapter)
	if err == nil {
		l.times = nil
		err = d.run(l, n)
	}
	return d.check(err)
}

// Close implements Device.
func (d *device) Close() error {
	return d.close(func() {
		for o := range d.made {
			o.Release()
		}
	})
}

package webgpu

import (
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
)

// memory makes a backend's buffers on the GPU, and fills them.
type memory struct {
	gpu     gpu.Device
	limit   int                      // bytes of a buffer
	made    []interface{ Release() } // buffers and groups, freed by close
	waiting gpu.List                 // writes before the next run
	bytes   int                      // of the waiting writes
}

// piece is how much is brought to the GPU at once.
const piece = 16 << 20

// buffer makes a buffer holding data after the next flush. data must not change.
func (m *memory) buffer(name string, data []byte) (gpu.Buffer, error) {
	buffer, err := m.empty(name, len(data))
	for at := 0; at < len(data) && err == nil; at += piece {
		err = m.write(buffer, at, data[at:min(at+piece, len(data))])
	}
	return buffer, err
}

// write writes data to a buffer, at the next flush, or now if much is waiting.
func (m *memory) write(to gpu.Buffer, at int, data []byte) error {
	m.waiting.Write(to, at, data)
	if m.bytes += len(data); m.bytes < piece {
		return nil
	}
	return m.flush()
}

// flush brings waiting data to the GPU.
func (m *memory) flush() error {
	err := m.gpu.Run(&m.waiting)
	m.waiting, m.bytes = gpu.List{}, 0
	return err
}

// empty makes a buffer of at least size bytes of 0.
func (m *memory) empty(name string, size int) (gpu.Buffer, error) {
	if size > m.limit {
		return nil, fmt.Errorf("%s: %d bytes do not fit a binding, which has at most %d", name, size, m.limit)
	}
	buffer, err := m.gpu.NewBuffer(name, max(4, (size+3)&^3))
	if err != nil {
		return nil, err
	}
	m.made = append(m.made, buffer)
	return buffer, nil
}

// enlarged makes a buffer of at least size bytes, beginning with had bytes of old, and releases old; old may be nil. An
// error leaves old unchanged.
func (m *memory) enlarged(name string, old gpu.Buffer, had, size int) (gpu.Buffer, error) {
	made, err := m.empty(name, size)
	if err != nil || old == nil {
		return made, err
	}
	var l gpu.List
	l.Copy(made, 0, old, 0, had)
	if err := m.gpu.Run(&l); err != nil {
		m.release(made)
		return nil, err
	}
	m.release(old)
	return made, nil
}

// renew gives *b at least size bytes, without keeping contents, and reports whether the buffer is new: of more bytes,
// if more is not 0.
func (m *memory) renew(b *gpu.Buffer, name string, size, more int) (bool, error) {
	if size == 0 || *b != nil && (*b).Size() >= size {
		return false, nil
	}
	made, err := m.empty(name, max(size, more))
	if err != nil {
		return false, err
	}
	m.release(*b)
	*b = made
	return true, nil
}

// release frees some buffers before close does; nil ones are none.
func (m *memory) release(buffers ...gpu.Buffer) {
	for _, x := range buffers {
		if x != nil {
			m.free(x)
		}
	}
}

// free frees buffers and groups, before close does.
func (m *memory) free(x interface{ Release() }) {
	x.Release()
	m.made = slices.DeleteFunc(m.made, func(o interface{ Release() }) bool { return o == x })
}

// close frees everything.
func (m *memory) close() {
	for _, x := range m.made {
		x.Release()
	}
	m.made = nil
}

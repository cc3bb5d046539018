package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/dev/golden"
)

// open opens the first GPU, and skips the test where there is none.
func open(t *testing.T) Device {
	t.Helper()
	d, err := Open(0)
	if errors.Is(err, ErrNone) {
		golden.Lacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

const double = `
@group(0) @binding(0) var<uniform> n: vec4u;
@group(0) @binding(1) var<storage, read> x: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
	if (id.x < n.x) {
		y[id.x] = 2u * x[id.x] + 1u;
	}
}
`

// buffers are new ones of the given sizes.
func buffers(t *testing.T, d Device, sizes ...int) (list []Buffer) {
	t.Helper()
	for _, n := range sizes {
		b, err := d.NewBuffer("b", n)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}

func words(n int, f func(int) uint32) []byte {
	b := make([]byte, 0, 4*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, f(i))
	}
	return b
}

// TestOrder runs writes, dispatches, copies and reads in one list, where each needs
// what the one before it wrote, and a write in the middle must not pass the
// dispatches before it; the same where the device may begin before the list ends. There are
// more dispatches than a piece has, with which a device begins anyway.
func TestOrder(t *testing.T) {
	order(t, open(t), func(*List) {})
	order(t, open(t), (*List).Cut)
}

func order(t *testing.T, d Device, cut func(*List)) {
	t.Helper()
	const n, turns = 1000, 45
	b := buffers(t, d, 16, 4*n, 4*n, 4*n)
	p, err := d.NewPipeline("triple", strings.Replace(double, "2u", "3u", 1), []Access{Uniform, Read, ReadWrite})
	if err != nil {
		t.Fatal(err)
	}
	there, err := d.NewGroup(p, Range{Buffer: b[0]}, Range{Buffer: b[1]}, Range{Buffer: b[2]})
	if err != nil {
		t.Fatal(err)
	}
	back, err := d.NewGroup(p, Range{Buffer: b[0]}, Range{Buffer: b[2]}, Range{Buffer: b[1]})
	if err != nil {
		t.Fatal(err)
	}
	got, late := make([]byte, 4*n), make([]byte, 4*n)
	var l List
	l.Stamp()
	l.Write(b[0], 0, words(4, func(int) uint32 { return n }))
	l.Write(b[1], 0, words(n, func(i int) uint32 { return uint32(i) }))
	for range turns {
		l.Dispatch(p, there, 16, 1, 1)
		cut(&l)
		l.Dispatch(p, back, 16, 1, 1)
	}
	cut(&l)
	l.Copy(b[3], 4, b[1], 0, 4*(n-1))
	l.Write(b[1], 0, words(n, func(i int) uint32 { return uint32(3 * i) }))
	cut(&l)
	l.Read(got, b[3], 0)
	l.Dispatch(p, there, 16, 1, 1)
	l.Read(late, b[2], 0)
	l.Stamp()
	for range 3 { // a list may run again
		if err := d.Run(&l); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			want := uint32(max(i-1, 0))
			for range 2 * turns * min(i, 1) {
				want = 3*want + 1
			}
			if v := binary.LittleEndian.Uint32(got[4*i:]); v != want {
				t.Fatalf("element %d is %d, want %d", i, v, want)
			}
			if v := binary.LittleEndian.Uint32(late[4*i:]); v != uint32(9*i+1) {
				t.Fatalf("element %d is %d at last, want %d", i, v, 9*i+1)
			}
		}
		if times := l.Times(); d.Adapter().Timestamps && (len(times) != 2 || times[0] != 0 || times[1] <= 0) {
			t.Errorf("times %v", times)
		}
	}
	if l.Dispatches() != 2*turns+1 {
		t.Errorf("%d dispatches", l.Dispatches())
	}
}

// TestNewBuffer is zero, though the memory was used before.
func TestNewBuffer(t *testing.T) {
	d := open(t)
	for range 3 {
		b := buffers(t, d, 1<<20)[0]
		got := make([]byte, 1<<20)
		var l List
		l.Read(got, b, 0)
		l.Write(b, 0, words(1<<18, func(i int) uint32 { return uint32(i) | 1 }))
		if err := d.Run(&l); err != nil {
			t.Fatal(err)
		}
		if strings.Trim(string(got), "\x00") != "" {
			t.Error("a new buffer is not zero")
		}
		b.Release()
		b.Release() // does nothing
	}
}

// TestLargeWrite is of more than is handed to a browser at once.
func TestLargeWrite(t *testing.T) {
	d := open(t)
	const n = 9<<20/4 + 3
	b := buffers(t, d, 4*n, 4*n)
	first, second := words(n, func(i int) uint32 { return uint32(i) }), words(n, func(i int) uint32 { return ^uint32(i) })
	got := [2][]byte{make([]byte, 4*n), make([]byte, 4*n)}
	var l List
	l.Write(b[0], 0, first[:8])
	l.Write(b[0], 8, first[8:])
	l.Copy(b[1], 0, b[0], 0, 4*n)
	l.Write(b[0], 0, second)
	l.Read(got[0], b[0], 0)
	l.Read(got[1], b[1], 0)
	if err := d.Run(&l); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got[0], second) || !bytes.Equal(got[1], first) {
		t.Error("what is read is not what was written")
	}
}

// TestFill: what is made when the list runs is made each time, between what was there before;
// an error of it is the run's, and the device goes on.
func TestFill(t *testing.T) {
	d := open(t)
	b := buffers(t, d, 12)[0]
	var l List
	var n uint32
	var fault error
	got := make([]byte, 12)
	l.Write(b, 0, words(1, func(int) uint32 { return 7 }))
	l.Fill(b, 4, 4, func(to []byte) error {
		n++
		if len(to) != 4 || cap(to) != 4 {
			t.Errorf("room for %d of %d bytes", len(to), cap(to))
		}
		binary.LittleEndian.PutUint32(to, n)
		return fault
	})
	l.Write(b, 8, words(1, func(int) uint32 { return 8 }))
	l.Read(got, b, 0)
	for i := range uint32(4) {
		fault = nil
		if i == 2 {
			fault = errors.New("no such row")
		}
		if err := d.Run(&l); !errors.Is(err, fault) {
			t.Fatalf("run %d: %v", i, err)
		}
		if want := words(3, func(j int) uint32 { return []uint32{7, i + 1, 8}[j] }); fault == nil && !bytes.Equal(got, want) {
			t.Fatalf("run %d: %v, want %v", i, got, want)
		}
	}
}

// TestErrors: a mistake is an error before it runs, and the device goes on.
func TestErrors(t *testing.T) {
	d := open(t)
	b := buffers(t, d, 1024, 1024, 1024)
	access := []Access{Uniform, Read, ReadWrite}
	p, err := d.NewPipeline("double", double, access)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(l *List) error{
		"buffer x of 6 bytes": func(*List) error { _, err := d.NewBuffer("x", 6); return err },
		"buffer x of 0 bytes": func(*List) error { _, err := d.NewBuffer("x", 0); return err },
		"buffer x of 1073741824 bytes, want a multiple of 4 to 268435456": func(*List) error { _, err := d.NewBuffer("x", 1<<30); return err },
		"shader broken: ": func(*List) error { _, err := d.NewPipeline("broken", "fn main( {", nil); return err },
		"shader typed: ": func(*List) error {
			_, err := d.NewPipeline("typed", strings.Replace(double, "2u *", "missing *", 1), access)
			return err
		},
		"2 buffers for 3 bindings": func(*List) error { _, err := d.NewGroup(p, Range{Buffer: b[0]}, Range{Buffer: b[1]}); return err },
		"binding 1 has no buffer": func(*List) error {
			_, err := d.NewGroup(p, Range{Buffer: b[0]}, Range{}, Range{Buffer: b[1]})
			return err
		},
		"binding 1 is of 1024 bytes at 4 of 1024": func(*List) error {
			_, err := d.NewGroup(p, Range{Buffer: b[0]}, Range{Buffer: b[1], At: 4, Size: 1024}, Range{Buffer: b[2]})
			return err
		},
		"bindings 1 and 2 are of one buffer, and one writes it": func(*List) error {
			_, err := d.NewGroup(p, Range{Buffer: b[0]}, Range{Buffer: b[1], Size: 256}, Range{Buffer: b[1], At: 256})
			return err
		},
		"a dispatch of 70000 x 1 x 1 workgroups, at most 65535": func(l *List) error { l.Dispatch(p, nil, 70000, 1, 1); return d.Run(l) },
		"a write of 8 bytes at 1020 of a buffer of 1024":        func(l *List) error { l.Write(b[0], 1020, make([]byte, 8)); return d.Run(l) },
		"a read of 6 bytes at 0 of a buffer of 1024":            func(l *List) error { l.Read(make([]byte, 6), b[0], 0); return d.Run(l) },
		"a copy of 4 bytes at -4":                               func(l *List) error { l.Copy(b[0], -4, b[1], 0, 4); return d.Run(l) },
	} {
		if err := f(&List{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
	var l List
	got := words(4, func(int) uint32 { return 9 })
	l.Read(got, b[0], 0)
	if err := d.Run(&l); err != nil || got[0] != 0 {
		t.Errorf("after the errors: %v", err)
	}
}

// TestOpenMissing: a number past the end is an error that tells the end.
func TestOpenMissing(t *testing.T) {
	if _, err := Open(1 << 20); err == nil || !errors.Is(err, ErrNone) && !strings.Contains(err.Error(), "there is no webgpu:1048576, only webgpu:0") {
		t.Error(err)
	}
}

// TestStamps: a list that is run again has its times, whatever ran between with more stamps
// than had room.
func TestStamps(t *testing.T) {
	d := open(t)
	if !d.Adapter().Timestamps {
		golden.Lacking(t, "the GPU has no time stamps")
	}
	b := buffers(t, d, 16, 256, 256)
	p, err := d.NewPipeline("double", double, []Access{Uniform, Read, ReadWrite})
	if err != nil {
		t.Fatal(err)
	}
	g, err := d.NewGroup(p, Range{Buffer: b[0]}, Range{Buffer: b[1]}, Range{Buffer: b[2]})
	if err != nil {
		t.Fatal(err)
	}
	run := func(pieces, stamps int) {
		t.Helper()
		var l List
		for i := range pieces {
			if i > 0 {
				l.Cut()
			}
			for range stamps {
				l.Stamp()
				l.Dispatch(p, g, 1, 1, 1)
			}
		}
		if err := d.Run(&l); err != nil {
			t.Fatal(err)
		}
		times := l.Times()
		if len(times) != pieces*stamps || !slices.IsSorted(times) || times[len(times)-1] > time.Minute {
			t.Errorf("%d stamps in each of %d pieces: %v", stamps, pieces, times)
		}
	}
	for _, pieces := range []int{1, 1, 1, 3, 3, 3, 1, 1} { // so that the first piece is encoded ahead
		run(pieces, 2)
	}
	run(3, 50)
	run(1, 2)
}

// TestMemory: an adapter that is reached through Vulkan tells its memory.
func TestMemory(t *testing.T) {
	if a := open(t).Adapter(); a.API == "Vulkan" && a.Library == "" && (a.Memory < 64<<20 || a.Memory > 1<<50) {
		t.Errorf("%+v has %d bytes", a.Name, a.Memory)
	} else {
		t.Logf("%s has %d bytes", a.Name, a.Memory)
	}
}

// TestInvocations: a workgroup's invocations are the standard's where the device's are unknown, else at most 512.
func TestInvocations(t *testing.T) {
	for has, want := range map[uint64]int{0: 256, 128: 128, 256: 256, 384: 384, 1024: 512} {
		l := standard
		if l.lower(0, 0, 0, 0, has, 8<<10); l.Invocations != want || l.WorkgroupBytes != 8<<10 || l.Buffer != standard.Buffer {
			t.Errorf("of %d: %+v", has, l)
		}
	}
}

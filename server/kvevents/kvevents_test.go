package kvevents

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat"
)

// unpack reads a value of MessagePack, as far as batches have it.
func unpack(t testing.TB, b []byte) (v any, rest []byte) {
	t.Helper()
	size := func(n int) int {
		x := make([]byte, 8)
		copy(x[8-n:], b[1:1+n])
		return int(binary.BigEndian.Uint64(x))
	}
	list := func(n int, b []byte) (any, []byte) {
		all := []any{}
		for range n {
			var x any
			x, b = unpack(t, b)
			all = append(all, x)
		}
		return all, b
	}
	switch c := b[0]; {
	case c < 0x80:
		return int(c), b[1:]
	case c&0xf0 == 0x90:
		return list(int(c&15), b[1:])
	case c&0xe0 == 0xa0:
		return string(b[1 : 1+c&31]), b[1+c&31:]
	case c == 0xc0:
		return nil, b[1:]
	case c == 0xc4:
		return [32]byte(b[2 : 2+size(1)]), b[2+size(1):]
	case c == 0xcb:
		return math.Float64frombits(binary.BigEndian.Uint64(b[1:])), b[9:]
	case c == 0xce:
		return size(4), b[5:]
	case c == 0xdb:
		return string(b[5 : 5+size(4)]), b[5+size(4):]
	case c == 0xdd:
		return list(size(4), b[5:])
	}
	t.Fatalf("a byte %#x", b[0])
	return nil, nil
}

// dial connects as a socket of a type.
func dial(t testing.TB, s *socket, kind, to string) *conn {
	t.Helper()
	c, err := net.Dial("tcp", s.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	x := newConn(c)
	x.in = bufio.NewReaderSize(c, 16)
	if err := x.shake(kind, []string{to}); err != nil {
		t.Fatal(err)
	}
	return x
}

// message reads frames up to the last one of a message. Batches may be longer than a client's frames.
func (c *conn) message(t testing.TB) (frames [][]byte) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(c.in, head); err != nil {
			t.Fatal(err)
		}
		n := int(head[1])
		if head[0]&long != 0 {
			rest := make([]byte, 7)
			io.ReadFull(c.in, rest)
			n = int(binary.BigEndian.Uint64(append(head[1:], rest...)))
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(c.in, body); err != nil {
			t.Fatal(err)
		}
		if frames = append(frames, body); head[0]&more == 0 {
			return frames
		}
	}
}

func start(t testing.TB) *Publisher {
	t.Helper()
	p, err := New(Options{Address: "tcp://127.0.0.1:0", Replay: "tcp://127.0.0.1:0", Pod: "10.0.0.7:8080"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// subscribed waits until a publisher knows a client's subscription.
func (p *Publisher) subscribed(n int) {
	for {
		p.pub.mu.Lock()
		topics := 0
		for c := range p.pub.conns {
			c.mu.Lock()
			topics += len(c.topics)
			c.mu.Unlock()
		}
		p.pub.mu.Unlock()
		if topics == n {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func page(n byte, parent byte, tokens ...int32) karat.CachePage {
	x := karat.CachePage{Tokens: tokens}
	x.Hash[31] = n
	x.Parent[31] = parent
	return x
}

// TestEvents wants stored pages, those that follow each other in one event, and removed ones, with the fields in
// vLLM's order; and from a replay all batches from a number on.
func TestEvents(t *testing.T) {
	p := start(t)
	sub := dial(t, p.pub, "SUB", "PUB")
	if err := sub.send(0, []byte("\x01kv@")); err != nil {
		t.Fatal(err)
	}
	other := dial(t, p.pub, "XSUB", "PUB")
	other.send(command, []byte("\x09SUBSCRIBEelsewhere"))
	p.subscribed(2)

	second, third := page(2, 1, 300, 4), page(3, 0, 5, 6)
	third.Adapter, third.Of = "style", "key"
	p.mu.Lock() // until all are there, so that they are a batch
	for _, x := range []karat.CachePage{page(1, 0, 1, 2), second, third, page(2, 1), page(1, 0)} {
		p.queue = append(p.queue, event{"kv@10.0.0.7:8080@m", x})
	}
	p.mu.Unlock()
	p.flush()

	wantCleared(t, sub.message(t), 0)
	got := sub.message(t)
	if topic := string(got[0]); topic != "kv@10.0.0.7:8080@m" || binary.BigEndian.Uint64(got[1]) != 1 || len(got) != 3 {
		t.Errorf("%q, %x, %d frames", topic, got[1], len(got))
	}
	v, rest := unpack(t, got[2])
	batch := v.([]any)
	if at := batch[0].(float64); len(rest) > 0 || len(batch) != 3 || batch[2] != 0 || at < 1e9 || at > 1e11 {
		t.Errorf("%d bytes behind, %v", len(rest), batch)
	}
	h := func(n byte) [32]byte { return page(n, 0).Hash }
	want := []any{
		[]any{"BlockStored", []any{h(1), h(2)}, nil, []any{1, 2, 300, 4}, 2, nil, "GPU", nil, nil},
		[]any{"BlockStored", []any{h(3)}, nil, []any{5, 6}, 2, nil, "GPU", "style", []any{[]any{"key"}}},
		[]any{"BlockRemoved", []any{h(2), h(1)}, "GPU"},
	}
	if !reflect.DeepEqual(batch[1], want) {
		t.Errorf("%v\nwant %v", batch[1], want)
	}

	again := dial(t, p.replay, "DEALER", "ROUTER")
	for from, n := range []int{2, 1, 0} {
		again.sendAll(nil, binary.BigEndian.AppendUint64(nil, uint64(from)))
		for i := range n {
			m := again.message(t)
			if len(m) != 4 || len(m[0]) > 0 || binary.BigEndian.Uint64(m[2]) != uint64(from+i) {
				t.Errorf("from %d: %q", from, m)
			}
			if from+i == 1 && (string(m[1]) != string(got[0]) || string(m[3]) != string(got[2])) {
				t.Errorf("from %d: another batch, %q", from, m)
			}
		}
		if m := again.message(t); len(m) != 4 || string(m[2]) != string(last) || len(m[3]) > 0 {
			t.Errorf("from %d: the end is %q", from, m)
		}
	}

	p.Add("m", page(4, 0, 7))
	if m := sub.message(t); binary.BigEndian.Uint64(m[1]) != 2 {
		t.Errorf("number %x, want 2", m[1])
	}
}

// TestLongValues wants all sizes of numbers, texts and arrays.
func TestLongValues(t *testing.T) {
	x := page(1, 0)
	for i := range int32(64) {
		x.Tokens = append(x.Tokens, i*5000)
	}
	x.Adapter = strings.Repeat("a", 40)
	v, _ := unpack(t, encode([]event{{"", x}})[0])
	got := v.([]any)
	if ids := got[3].([]any); len(ids) != 64 || ids[63] != 63*5000 || got[7] != x.Adapter || got[4] != 64 {
		t.Error(got)
	}
}

// TestHostile wants connections that break the protocol to end, and the publisher to go on.
func TestHostile(t *testing.T) {
	p := start(t)
	hello := func(kind string) string {
		b := make([]byte, 64)
		b[0], b[9], b[10] = 0xff, 0x7f, 3
		copy(b[12:], "NULL")
		ready := fmt.Sprintf("\x05READY\x0bSocket-Type\x00\x00\x00%c%s", len(kind), kind)
		return string(b) + "\x04" + string(rune(len(ready))) + ready
	}
	for name, x := range map[string]string{
		"another protocol": "GET / HTTP/1.1\r\nHost: a\r\n\r\n" + strings.Repeat("x", 64),
		"PLAIN":            strings.Replace(hello("SUB"), "NULL\x00", "PLAIN", 1),
		"a wrong type":     hello("PUSH"),
		"no type":          hello("SUB")[:64] + "\x04\x06\x05READY",
		"a cut property":   hello("SUB")[:64] + "\x04\x08\x05READY\x0bS",
		"a large property": hello("SUB")[:64] + "\x04\x16\x05READY\x0bSocket-Type\xff\xff\xff\xff",
		"a large frame":    hello("SUB") + "\x02\x7f\xff\xff\xff\xff\xff\xff\xff",
		"several frames":   hello("SUB") + "\x01\x01\x01\x00\x01\x01",
	} {
		c, err := net.Dial("tcp", p.pub.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, x)
		c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the connection stays", name)
		}
		c.Close()
	}
	sub := dial(t, p.pub, "SUB", "PUB")
	sub.send(0, []byte("\x01"))
	p.subscribed(1)
	p.Add("m", page(1, 0, 1))
	wantCleared(t, sub.message(t), 0)
	if m := sub.message(t); string(m[0]) != "kv@10.0.0.7:8080@m" {
		t.Errorf("%q", m)
	}
}

// wantCleared wants a batch of a number that says: the replica keeps nothing.
func wantCleared(t testing.TB, m [][]byte, number uint64) {
	t.Helper()
	v, _ := unpack(t, m[2])
	if n := binary.BigEndian.Uint64(m[1]); n != number || string(m[0]) != "kv@10.0.0.7:8080@" ||
		!reflect.DeepEqual(v.([]any)[1], []any{[]any{"AllBlocksCleared"}}) {
		t.Errorf("batch %d of %s: %v, want AllBlocksCleared of number %d", n, m[0], v, number)
	}
}

// TestLate wants a subscriber that comes late, or again, to be told of all batches kept. Where some are lost, it is
// told first to forget all.
func TestLate(t *testing.T) {
	p := start(t)
	for i := range byte(3) {
		p.emit("kv@10.0.0.7:8080@m", p.batch(encode([]event{{"", page(i, 0, 1)}})))
	}
	sub := dial(t, p.pub, "SUB", "PUB")
	sub.send(0, []byte("\x01kv@"))
	for again := range 2 {
		wantCleared(t, sub.message(t), 0)
		for want := range uint64(3) {
			if n := binary.BigEndian.Uint64(sub.message(t)[1]); n != 1+want {
				t.Errorf("batch %d, want %d", n, 1+want)
			}
		}
		if again == 0 {
			sub.send(0, []byte("\x01kv@10"))
		}
	}
	p.sending.Lock()
	p.past = p.past[2:] // as after many more
	p.sending.Unlock()
	sub = dial(t, p.pub, "SUB", "PUB")
	sub.send(0, []byte("\x01kv@"))
	wantCleared(t, sub.message(t), 1)
	if n := binary.BigEndian.Uint64(sub.message(t)[1]); n != 2 {
		t.Errorf("batch %d, want 2", n)
	}
}

// TestSlow wants a subscriber that reads nothing to hold up nobody and no memory, and to be told later to forget.
func TestSlow(t *testing.T) {
	p := start(t)
	sub := dial(t, p.pub, "SUB", "PUB")
	sub.send(0, []byte("\x01kv@"))
	p.subscribed(1)
	large := make([]byte, 1<<20)
	for range 200 {
		p.emit("kv@10.0.0.7:8080@m", large)
	}
	p.sending.Lock()
	held := 0
	for _, b := range p.past[:cap(p.past)] {
		held += len(b.payload)
	}
	p.sending.Unlock()
	if held > keptBytes {
		t.Errorf("%d bytes are held", held)
	}
	next, gap := uint64(0), false
	for next <= 200 {
		m := sub.message(t)
		n := binary.BigEndian.Uint64(m[1])
		if n != next {
			wantCleared(t, m, n)
			gap = true
		}
		next = n + 1
	}
	if !gap {
		t.Error("no gap, though the batches do not fit the memory")
	}
}

// TestClose wants all events before Close to arrive.
func TestClose(t *testing.T) {
	p := start(t)
	sub := dial(t, p.pub, "SUB", "PUB")
	sub.send(0, []byte("\x01kv@"))
	p.subscribed(1)
	const n = 1000
	for i := range n {
		p.Add(fmt.Sprint("m", i%2), page(byte(i), 0, int32(i)))
	}
	p.Close()
	for want := range uint64(n + 1) {
		if got := binary.BigEndian.Uint64(sub.message(t)[1]); got != want {
			t.Fatalf("batch %d, want %d", got, want)
		}
	}
}

// TestSizes wants pages of different sizes to be events of their own.
func TestSizes(t *testing.T) {
	if all := encode([]event{{"", page(1, 0, 1, 2)}, {"", page(2, 1, 3)}}); len(all) != 2 {
		t.Errorf("%d events", len(all))
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Address: "udp://*:1"}, {Address: "tcp://nowhere"}, {},
		{Address: "tcp://127.0.0.1:0", Pod: "a@b"}, {Address: "tcp://127.0.0.1:0", Replay: "x"}} {
		if p, err := New(o); err == nil {
			p.Close()
			t.Errorf("%+v: no error", o)
		}
	}
}

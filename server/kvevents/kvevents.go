// Package kvevents tells routers of the prompts' pages kept by a server's models, in the form of vLLM's KV events:
// messages of ZeroMQ's PUB socket with the frames topic, number and batch. A router sends a request to the replica with
// most of the prompt.
//
//	p, err := kvevents.New(kvevents.Options{Address: "tcp://*:5557", Pod: "10.0.0.7:8080"})
//	if err != nil { ... }
//	defer p.Close()
//	s, err := server.New(ctx, server.Options{Cache: p.Add, ...})
//
// Batches carry prompts' token ids, so the socket is for readers of prompts.
package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat"
)

// Options say where events go.
type Options struct {
	Address string // of the PUB socket, as tcp://*:5557
	Replay  string // of a ROUTER socket sending past batches again; "" is none
	Pod     string // the replica's name in topics: kv@POD@MODEL
}

const (
	keptBatches = 10_000   // for subscribers and replays, as in vLLM
	keptBytes   = 64 << 20 // likewise
	mostEvents  = 1024     // of a batch
)

// last is the number at a replay's end.
var last = []byte{255, 255, 255, 255, 255, 255, 255, 255}

// Publisher sends events. A Publisher is safe for concurrent use.
type Publisher struct {
	pod         string
	pub, replay *socket // replay may be nil
	rung        chan struct{}
	over        chan struct{}
	work        sync.WaitGroup
	now         func() time.Time

	mu     sync.Mutex
	queue  []event
	closed bool

	sending sync.Mutex // guards the fields below
	next    uint64     // number of the next batch
	past    []batch    // the last ones before next
	bytes   int
	news    chan struct{} // closed by the next batch; nil after the last one
}

// event is a page of a model, come or gone.
type event struct {
	topic string
	karat.CachePage
}

// batch is a sent message.
type batch struct{ topic, number, payload []byte }

// New opens the sockets. The first batch says: the replica keeps nothing, whatever an earlier process of the name has
// told.
func New(o Options) (*Publisher, error) {
	if strings.Contains(o.Pod, "@") {
		return nil, fmt.Errorf("the replica's name %q has an @, which parts topics", o.Pod)
	}
	p := &Publisher{pod: o.Pod, rung: make(chan struct{}, 1), over: make(chan struct{}), now: time.Now,
		news: make(chan struct{})}
	var err error
	if p.pub, err = listen(o.Address, "PUB", "SUB", "XSUB"); err != nil {
		return nil, err
	}
	p.pub.serve = p.subscribe
	if o.Replay != "" {
		if p.replay, err = listen(o.Replay, "ROUTER", "REQ", "DEALER", "ROUTER"); err != nil {
			p.pub.l.Close()
			return nil, err
		}
		p.replay.serve = p.sendAgain
		p.replay.run()
	}
	b := p.cleared(0)
	p.emit(string(b.topic), b.payload)
	p.pub.run()
	p.work.Go(func() {
		for {
			select {
			case <-p.rung:
				p.flush()
			case <-p.over:
				p.flush()
				return
			}
		}
	})
	return p, nil
}

// Close sends the events left and closes the sockets. Subscribers have a second to read what they lack.
func (p *Publisher) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	p.mu.Unlock()
	close(p.over)
	p.work.Wait()
	p.sending.Lock()
	close(p.news)
	p.news = nil
	p.sending.Unlock()
	p.pub.close(lingerTime)
	if p.replay != nil {
		p.replay.close(0)
	}
}

// Add sends a page of a model soon.
func (p *Publisher) Add(model string, page karat.CachePage) {
	page.Tokens = append([]int32(nil), page.Tokens...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.queue = append(p.queue, event{fmt.Sprintf("kv@%s@%s", p.pod, model), page})
	select {
	case p.rung <- struct{}{}:
	default:
	}
}

// flush sends all events of the queue, in batches of one model each.
func (p *Publisher) flush() {
	p.mu.Lock()
	all := p.queue
	p.queue = nil
	p.mu.Unlock()
	for len(all) > 0 {
		n := 1
		for n < len(all) && n < mostEvents && all[n].topic == all[0].topic {
			n++
		}
		p.emit(all[0].topic, p.batch(encode(all[:n])))
		all = all[n:]
	}
}

// emit numbers a batch for the subscribers and for replays.
func (p *Publisher) emit(topic string, payload []byte) {
	p.sending.Lock()
	defer p.sending.Unlock()
	p.past = append(p.past, batch{[]byte(topic), binary.BigEndian.AppendUint64(nil, p.next), payload})
	p.next++
	p.bytes += len(payload)
	for len(p.past) > keptBatches || p.bytes > keptBytes {
		p.bytes -= len(p.past[0].payload)
		p.past[0] = batch{} // the array stays
		p.past = p.past[1:]
	}
	close(p.news)
	p.news = make(chan struct{})
}

// cleared returns a batch that says: the replica keeps nothing.
func (p *Publisher) cleared(number uint64) batch {
	return batch{[]byte("kv@" + p.pod + "@"), binary.BigEndian.AppendUint64(nil, number),
		p.batch([][]byte{text(array(nil, 1), "AllBlocksCleared")})}
}

// at returns batch n, and the oldest one where n is no longer kept. A batch without a number is yet to come: news tells
// of it, and is nil after the last batch.
func (p *Publisher) at(n uint64) (b batch, news <-chan struct{}) {
	p.sending.Lock()
	defer p.sending.Unlock()
	if n >= p.next {
		return batch{}, p.news
	}
	first := p.next - uint64(len(p.past))
	return p.past[max(n, first)-first], nil
}

// sendAgain answers requests of the replay socket: an empty frame and the number of the first batch wanted. Each answer
// has an empty frame, topic, number and batch; the last answer has a number of -1 and no batch.
func (p *Publisher) sendAgain(c *conn) error {
	for {
		flags, body, err := c.frame()
		if err == nil && flags == more && len(body) == 0 {
			flags, body, err = c.frame()
		}
		if err != nil {
			return err
		}
		if flags != 0 || len(body) != 8 {
			return fmt.Errorf("no request of a replay")
		}
		p.sending.Lock()
		end := p.next
		p.sending.Unlock()
		for n := binary.BigEndian.Uint64(body); n < end; n++ {
			b, _ := p.at(n)
			n = binary.BigEndian.Uint64(b.number)
			if err := c.sendAll(nil, b.topic, b.number, b.payload); err != nil {
				return err
			}
		}
		if err := c.sendAll(nil, nil, last, nil); err != nil {
			return err
		}
	}
}

// batch returns the MessagePack of events at this time, of rank 0.
func (p *Publisher) batch(events [][]byte) []byte {
	b := append(array(nil, 3), 0xcb)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(p.now().UnixNano())/1e9))
	b = array(b, len(events))
	for _, e := range events {
		b = append(b, e...)
	}
	return append(b, 0)
}

// encode returns the MessagePack of each event. Pages following each other are one event.
func encode(all []event) (events [][]byte) {
	for len(all) > 0 {
		n, first := 1, all[0]
		for n < len(all) && len(first.Tokens) == len(all[n].Tokens) &&
			(first.Tokens == nil || all[n].Parent == all[n-1].Hash && all[n].Adapter == first.Adapter &&
				all[n].Of == first.Of) {
			n++
		}
		same := all[:n]
		all = all[n:]
		hashes := func(b []byte) []byte {
			b = array(b, n)
			for _, e := range same {
				b = binary32(b, e.Hash)
			}
			return b
		}
		if first.Tokens == nil {
			events = append(events, text(hashes(text(array(nil, 3), "BlockRemoved")), medium))
			continue
		}
		b := hashes(text(array(nil, 9), "BlockStored"))
		if first.Parent == [32]byte{} {
			b = append(b, null)
		} else {
			b = binary32(b, first.Parent)
		}
		b = array(b, n*len(first.Tokens))
		for _, e := range same {
			for _, id := range e.Tokens {
				b = number(b, uint32(id))
			}
		}
		b = text(append(number(b, uint32(len(first.Tokens))), null), medium) // an adapter has a name, and no number
		if first.Adapter == "" {
			b = append(b, null)
		} else {
			b = text(b, first.Adapter)
		}
		if first.Of == "" {
			b = append(b, null)
		} else {
			b = array(b, n)
			for range same {
				b = text(array(b, 1), first.Of)
			}
		}
		events = append(events, b)
	}
	return events
}

// medium is the place of all pages. Routers know vLLM's names, and take a replica's first memory for "GPU".
const medium = "GPU"

const null = 0xc0

// array appends the beginning of an array of n elements.
func array(b []byte, n int) []byte {
	if n < 16 {
		return append(b, 0x90|byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func text(b []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(b, 0xa0|byte(len(s))), s...)
	}
	return append(binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(len(s))), s...)
}

func binary32(b []byte, hash [32]byte) []byte { return append(append(b, 0xc4, 32), hash[:]...) }

func number(b []byte, n uint32) []byte {
	if n < 128 {
		return append(b, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xce), n)
}

// The sockets speak ZMTP 3.0 with the mechanism NULL (rfc.zeromq.org/spec/23): a greeting of 64 bytes, a command READY,
// then messages of frames. A frame has a byte of flags, the size in 1 or 8 bytes, and the bytes.
const (
	more    = 1 // frames of the message follow
	long    = 2 // the size has 8 bytes
	command = 4

	mostConns     = 64      // of a socket; more are closed at once
	mostFrame     = 1 << 10 // bytes of a client's frame
	mostTopics    = 64      // subscriptions of a client
	handshakeTime = 10 * time.Second
	sendTime      = 30 * time.Second
	lingerTime    = time.Second
)

// socket is a listening socket of a type, with a goroutine for each connection.
type socket struct {
	l     net.Listener
	kind  string   // of the socket
	peers []string // types of sockets at the other end
	serve func(*conn) error

	mu    sync.Mutex
	conns map[*conn]bool
	work  sync.WaitGroup
}

// conn is a connection after the handshake.
type conn struct {
	net.Conn
	in *bufio.Reader

	mu     sync.Mutex // guards the fields below, of a subscriber
	topics [][]byte
	next   uint64        // number of the batch to send next
	asked  chan struct{} // rung by a subscription
}

func (s *socket) run() {
	s.conns = map[*conn]bool{}
	s.work.Go(func() {
		for {
			c, err := s.l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // no file is left, for example
				time.Sleep(100 * time.Millisecond)
				continue
			}
			x := newConn(c)
			s.mu.Lock()
			if s.conns == nil || len(s.conns) >= mostConns {
				s.mu.Unlock()
				c.Close()
				continue
			}
			s.conns[x] = true
			s.mu.Unlock()
			s.work.Go(func() {
				defer s.drop(x)
				if x.shake(s.kind, s.peers) == nil {
					s.serve(x) // an error ends the connection, and the client connects again
				}
			})
		}
	})
}

func (s *socket) drop(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.Close()
}

// close ends the connections that have not ended by themselves in a time.
func (s *socket) close(after time.Duration) {
	s.l.Close()
	t := time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			c.Close()
		}
		s.conns = nil
	})
	s.work.Wait()
	t.Stop()
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, in: bufio.NewReaderSize(c, mostFrame), asked: make(chan struct{}, 1)}
}

// shake exchanges greetings and READY.
func (c *conn) shake(kind string, peers []string) error {
	c.SetDeadline(time.Now().Add(handshakeTime))
	defer c.SetDeadline(time.Time{})
	hello := make([]byte, 64)
	hello[0], hello[9], hello[10] = 0xff, 0x7f, 3
	copy(hello[12:], "NULL")
	ready := []byte("\x05READY\x0bSocket-Type\x00\x00\x00")
	ready = append(append(ready, byte(len(kind))), kind...)
	if _, err := c.Write(hello); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.in, hello); err != nil {
		return err
	}
	if hello[0] != 0xff || hello[9] != 0x7f || hello[10] < 3 ||
		string(bytes.TrimRight(hello[12:32], "\x00")) != "NULL" {
		return errors.New("no greeting of ZMTP 3 with the mechanism NULL")
	}
	if err := c.send(command, ready); err != nil {
		return err
	}
	flags, body, err := c.frame()
	if err != nil {
		return err
	}
	rest, is := bytes.CutPrefix(body, []byte("\x05READY"))
	if flags != command || !is {
		return errors.New("no READY")
	}
	if of := property(rest, "socket-type"); !slices.Contains(peers, of) {
		return fmt.Errorf("a socket of type %.16q", of)
	}
	return nil
}

// property returns a property of READY's metadata.
func property(b []byte, name string) string {
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n+4 {
			return ""
		}
		key, size := b[1:1+n], binary.BigEndian.Uint32(b[1+n:])
		if b = b[1+n+4:]; uint64(size) > uint64(len(b)) {
			return ""
		}
		if bytes.EqualFold(key, []byte(name)) {
			return string(b[:size])
		}
		b = b[size:]
	}
	return ""
}

// frame reads a frame. A size is checked before memory is allocated.
func (c *conn) frame() (flags byte, body []byte, err error) {
	if flags, err = c.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	size := make([]byte, 8)
	n := size[7:]
	if flags&long != 0 {
		n = size
	}
	if _, err = io.ReadFull(c.in, n); err != nil {
		return 0, nil, err
	}
	most := binary.BigEndian.Uint64(size)
	if most > mostFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", most)
	}
	body = make([]byte, most)
	_, err = io.ReadFull(c.in, body)
	return flags &^ long, body, err
}

// send writes a frame.
func (c *conn) send(flags byte, body []byte) error {
	head := []byte{flags, byte(len(body))}
	if len(body) > 255 {
		head = binary.BigEndian.AppendUint64([]byte{flags | long}, uint64(len(body)))
	}
	c.SetWriteDeadline(time.Now().Add(sendTime))
	_, err := c.Write(append(head, body...))
	return err
}

// sendAll writes a message.
func (c *conn) sendAll(frames ...[]byte) error {
	for i, f := range frames {
		flags := byte(more)
		if i == len(frames)-1 {
			flags = 0
		}
		if err := c.send(flags, f); err != nil {
			return err
		}
	}
	return nil
}

// subscribe serves a subscriber, whose messages are subscriptions. Each subscription
// brings the kept batches from the first on. For example, a router that connects again, perhaps to a new process, has
// missed some, and must forget pages that are no longer kept.
func (p *Publisher) subscribe(c *conn) error {
	over := make(chan struct{})
	defer close(over)
	p.pub.work.Go(func() {
		defer c.Close()
		for p.sendNext(c, over) {
		}
	})
	for {
		flags, body, err := c.frame()
		if err != nil {
			return err
		}
		verb, topic, err := subscription(flags, body)
		if err != nil {
			return err
		}
		c.mu.Lock()
		i := slices.IndexFunc(c.topics, func(t []byte) bool { return bytes.Equal(t, topic) })
		switch {
		case verb == 1 && len(c.topics) == mostTopics:
			c.mu.Unlock()
			return fmt.Errorf("more than %d subscriptions", mostTopics)
		case verb == 1:
			c.topics, c.next = append(c.topics, topic), 0
			select {
			case c.asked <- struct{}{}:
			default:
			}
		case verb == 0 && i >= 0:
			c.topics = slices.Delete(c.topics, i, i+1)
		}
		c.mu.Unlock()
	}
}

// sendNext sends a subscriber the next batch, or waits for one, and reports whether to go on. A subscriber without
// batches that are kept no longer is told to forget all: pages have gone unsaid.
func (p *Publisher) sendNext(c *conn, over <-chan struct{}) bool {
	c.mu.Lock()
	n := c.next
	c.mu.Unlock()
	b, news := p.at(n)
	if b.number == nil {
		if news == nil {
			return false
		}
		select {
		case <-news:
		case <-c.asked:
		case <-over:
			return false
		}
		return true
	}
	at := binary.BigEndian.Uint64(b.number)
	if at > n { // the next round sends b
		at--
		b = p.cleared(at)
	}
	c.mu.Lock()
	wanted := slices.ContainsFunc(c.topics, func(t []byte) bool { return bytes.HasPrefix(b.topic, t) })
	if c.next == n {
		c.next = at + 1
	}
	c.mu.Unlock()
	return !wanted || c.sendAll(b.topic, b.number, b.payload) == nil
}

// subscription reads a subscriber's message. Its verb is 1 to subscribe, 0 to cancel, and 2 for anything else, as PING.
func subscription(flags byte, body []byte) (verb byte, topic []byte, err error) {
	switch {
	case flags&more != 0:
		return 0, nil, errors.New("a subscription of several frames")
	case flags&command != 0: // of ZMTP 3.1
		for name, verb := range map[string]byte{"\x09SUBSCRIBE": 1, "\x06CANCEL": 0} {
			if topic, is := bytes.CutPrefix(body, []byte(name)); is {
				return verb, topic, nil
			}
		}
	case len(body) > 0:
		return body[0], body[1:], nil
	}
	return 2, nil, nil
}

// listen opens a socket at an address as tcp://*:5557 or tcp://127.0.0.1:0.
func listen(address, kind string, peers ...string) (*socket, error) {
	at, is := strings.CutPrefix(address, "tcp://")
	if !is {
		return nil, fmt.Errorf("%q is no address to listen at, want one as tcp://*:5557", address)
	}
	if port, all := strings.CutPrefix(at, "*:"); all {
		at = ":" + port
	}
	l, err := net.Listen("tcp", at)
	return &socket{l: l, kind: kind, peers: peers}, err
}

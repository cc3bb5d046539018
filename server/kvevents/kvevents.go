// Package kvevents tells others which prompts' pages a server's models keep, in the form of vLLM's KV events: messages
// of ZeroMQ's PUB socket with the frames topic, number and batch. Routers send requests to the replica that has most of
// their prompt.
//
//	p, err := kvevents.New(kvevents.Options{Address: "tcp://*:5557", Pod: "10.0.0.7:8080"})
//	if err != nil { ... }
//	defer p.Close()
//	s, err := server.New(ctx, server.Options{Cache: p.Add, ...})
//
// Batches carry prompts' token ids, so the socket is for those who may read prompts. Files: kvevents.go (batches),
// zmtp.go (sockets).
package kvevents

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat"
)

// Options say where events go.
type Options struct {
	Address string // of the PUB socket, as tcp://*:5557
	Replay  string // of a ROUTER socket that sends past batches again; "" is none
	Pod     string // the replica's name in topics: kv@POD@MODEL
}

const (
	keptBatches = 10_000   // for replays, as in vLLM
	keptBytes   = 64 << 20 // likewise
	mostEvents  = 1024     // of a batch
)

// end is the number that ends a replay.
var end = []byte{255, 255, 255, 255, 255, 255, 255, 255}

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
	past    []batch
	bytes   int
}

// event is a page of a model that came or went.
type event struct {
	topic string
	karat.CachePage
}

// batch is a sent message.
type batch struct{ topic, number, payload []byte }

// New opens the sockets. The first batch says that the replica keeps nothing, whatever an earlier process of its name
// has told.
func New(o Options) (*Publisher, error) {
	if strings.Contains(o.Pod, "@") {
		return nil, fmt.Errorf("the replica's name %q has an @, which parts topics", o.Pod)
	}
	p := &Publisher{pod: o.Pod, rung: make(chan struct{}, 1), over: make(chan struct{}), now: time.Now}
	var err error
	if p.pub, err = listen(o.Address, "PUB", "SUB", "XSUB"); err != nil {
		return nil, err
	}
	p.pub.serve = p.pub.subscribe
	if o.Replay != "" {
		if p.replay, err = listen(o.Replay, "ROUTER", "REQ", "DEALER", "ROUTER"); err != nil {
			p.pub.l.Close()
			return nil, err
		}
		p.replay.serve = p.sendAgain
		p.replay.run()
	}
	p.pub.run()
	p.send("", p.batch([][]byte{text(array(nil, 1), "AllBlocksCleared")}))
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

// Close sends what is left and closes the sockets.
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
	p.pub.close()
	if p.replay != nil {
		p.replay.close()
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

// flush sends all events of the queue: those of a batch are of one model.
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
		p.send(all[0].topic, p.batch(encode(all[:n])))
		all = all[n:]
	}
}

// send numbers a batch, hands it to the subscribers and keeps it for replays.
func (p *Publisher) send(topic string, payload []byte) {
	if topic == "" {
		topic = "kv@" + p.pod + "@"
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	b := batch{[]byte(topic), binary.BigEndian.AppendUint64(nil, p.next), payload}
	p.next++
	p.past, p.bytes = append(p.past, b), p.bytes+len(payload)
	for len(p.past) > keptBatches || p.bytes > keptBytes {
		p.bytes -= len(p.past[0].payload)
		p.past = p.past[1:]
	}
	p.pub.publish(b.topic, b.number, b.payload)
}

// sendAgain answers requests of the replay socket: an empty frame and the number of the first batch wanted. Each answer
// has an empty frame, topic, number and batch; the last one has a number of -1 and no batch.
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
		from := binary.BigEndian.Uint64(body)
		p.sending.Lock()
		past := p.past
		p.sending.Unlock()
		for _, b := range past {
			if binary.BigEndian.Uint64(b.number) >= from {
				if err := c.sendAll(nil, b.topic, b.number, b.payload); err != nil {
					return err
				}
			}
		}
		if err := c.sendAll(nil, nil, end, nil); err != nil {
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

// encode returns the MessagePack of each event. Pages that follow each other are one event.
func encode(all []event) (events [][]byte) {
	for len(all) > 0 {
		n, first := 1, all[0]
		for n < len(all) && (first.Tokens == nil) == (all[n].Tokens == nil) &&
			(first.Tokens == nil || all[n].Parent == all[n-1].Hash && all[n].Adapter == first.Adapter && all[n].Of == first.Of) {
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
		b = text(append(number(b, uint32(len(first.Tokens))), null), medium) // no number of an adapter, but its name
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

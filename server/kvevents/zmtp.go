package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// The sockets speak ZMTP 3.0 with the mechanism NULL (rfc.zeromq.org/spec/23): a greeting of 64 bytes, a command READY,
// then messages of frames. A frame has a byte of flags, its size in 1 or 8 bytes, and its bytes.
const (
	more    = 1 // frames of the message follow
	long    = 2 // the size has 8 bytes
	command = 4

	mostConns     = 64      // of a socket; more are closed at once
	mostFrame     = 1 << 10 // bytes that a client may send in a frame
	mostTopics    = 64      // subscriptions of a client
	mostQueued    = 10_000  // messages that wait for a subscriber; later ones are lost to it
	handshakeTime = 10 * time.Second
	sendTime      = 30 * time.Second
)

// socket is a listening socket of a type, with a goroutine for each connection.
type socket struct {
	l     net.Listener
	kind  string   // of the socket
	peers []string // the types that it talks to
	serve func(*conn) error

	mu    sync.Mutex
	conns map[*conn]bool
	work  sync.WaitGroup
}

// conn is a connection after the handshake.
type conn struct {
	net.Conn
	in     *bufio.Reader
	topics [][]byte      // of a subscriber; guarded by its socket's mu
	queue  chan [][]byte // messages to a subscriber
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
			x := &conn{Conn: c, in: bufio.NewReader(c), queue: make(chan [][]byte, mostQueued)}
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

func (s *socket) close() {
	s.l.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.work.Wait()
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
	if hello[0] != 0xff || hello[9] != 0x7f || hello[10] < 3 || string(bytes.TrimRight(hello[12:32], "\x00")) != "NULL" {
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

// frame reads a frame. A size is checked before there is memory for it.
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

// publish hands a message to the subscribers of its first frame.
func (s *socket) publish(frames ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if slices.ContainsFunc(c.topics, func(t []byte) bool { return bytes.HasPrefix(frames[0], t) }) {
			select {
			case c.queue <- frames:
			default: // the numbers show the gap, and a replay fills it
			}
		}
	}
}

// subscribe serves a subscriber: its messages are subscriptions.
func (s *socket) subscribe(c *conn) error {
	over := make(chan struct{})
	defer close(over)
	s.work.Go(func() {
		defer c.Close()
		for {
			select {
			case <-over:
				return
			case m := <-c.queue:
				if c.sendAll(m...) != nil {
					return
				}
			}
		}
	})
	for {
		flags, body, err := c.frame()
		if err != nil {
			return err
		}
		verb, topic := byte(2), []byte(nil) // neither, as a PING
		switch {
		case flags&more != 0:
			return errors.New("a subscription of several frames")
		case flags&command != 0: // of ZMTP 3.1
			for name, v := range map[string]byte{"\x09SUBSCRIBE": 1, "\x06CANCEL": 0} {
				if t, is := bytes.CutPrefix(body, []byte(name)); is {
					verb, topic = v, t
				}
			}
		case len(body) > 0:
			verb, topic = body[0], body[1:]
		}
		s.mu.Lock()
		i := slices.IndexFunc(c.topics, func(t []byte) bool { return bytes.Equal(t, topic) })
		switch {
		case verb == 1 && len(c.topics) < mostTopics:
			c.topics = append(c.topics, topic)
		case verb == 0 && i >= 0:
			c.topics = slices.Delete(c.topics, i, i+1)
		}
		s.mu.Unlock()
	}
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

package kvevents

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// wire is a client that sends bytes, and takes all.
type wire struct {
	net.Conn // nil
	in       *bytes.Reader
}

func (w *wire) Read(b []byte) (int, error)         { return w.in.Read(b) }
func (w *wire) Write(b []byte) (int, error)        { return len(b), nil }
func (w *wire) Close() error                       { return nil }
func (w *wire) SetDeadline(t time.Time) error      { return nil }
func (w *wire) SetWriteDeadline(t time.Time) error { return nil }

// FuzzFrames gives both sockets a client of any bytes: the work ends with the bytes, and what is held has a bound.
func FuzzFrames(f *testing.F) {
	p := &Publisher{pod: "p", now: time.Now, pub: &socket{}, news: make(chan struct{})}
	p.emit("kv@p@m", p.batch(nil))
	f.Fuzz(func(t *testing.T, in []byte, replay bool) {
		kind, peers, serve := "PUB", []string{"SUB", "XSUB"}, p.subscribe
		if replay {
			kind, peers, serve = "ROUTER", []string{"REQ", "DEALER", "ROUTER"}, p.sendAgain
		}
		w := &wire{in: bytes.NewReader(in)}
		c := newConn(w)
		if c.shake(kind, peers) == nil && serve(c) == nil {
			t.Error("a connection ends without an error")
		}
		p.pub.work.Wait()
		if len(c.topics) > mostTopics {
			t.Errorf("%d topics", len(c.topics))
		}
		for _, topic := range c.topics {
			if len(topic) > mostFrame {
				t.Errorf("a topic of %d bytes", len(topic))
			}
		}
		c = newConn(&wire{in: bytes.NewReader(in)})
		for {
			flags, body, err := c.frame()
			if err != nil {
				break
			}
			at := len(in) - c.in.Buffered() - c.Conn.(*wire).in.Len()
			if flags&long != 0 || len(body) > mostFrame || !bytes.Equal(body, in[at-len(body):at]) {
				t.Fatalf("a frame of flags %d and %d bytes ends at %d", flags, len(body), at)
			}
		}
	})
}

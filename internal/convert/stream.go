package convert

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// piece is a part of a job for a worker.
type piece struct {
	job      *job
	from, to int
	made     chan made // the result, with room for a value
}

type made struct {
	data   []byte
	worker *worker
	err    error
}

// stream writes the data of jobs to w, in their order. All cores make pieces ahead; only a few pieces wait for the
// writer.
func (c *converter) stream(ctx context.Context, w io.Writer, jobs []job) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait() // nothing reads the source afterwards
	defer cancel()
	n := cmp.Or(c.threads, runtime.GOMAXPROCS(0))
	todo, order := make(chan *piece), make(chan *piece, 2*n)
	idle := make(chan *worker, 2*n)
	for range 2 * n {
		idle <- &worker{}
	}
	running.Go(func() {
		defer close(order)
		defer close(todo)
		cut(ctx, jobs, todo, order)
	})
	for range n {
		running.Go(func() {
			for {
				var k *worker // taken before a piece: the first piece in order always has a worker
				select {
				case k = <-idle:
				case <-ctx.Done():
					return
				}
				p, ok := <-todo
				if !ok {
					return
				}
				data, err := k.makeChunk(p.job, p.from, p.to)
				if err != nil {
					err = fmt.Errorf("%s: %w", c.src, err)
				}
				p.made <- made{data, k, err}
			}
		})
	}
	for p := range order {
		var m made
		select {
		case m = <-p.made:
		case <-ctx.Done():
			return ctx.Err()
		}
		if m.err == nil {
			_, m.err = w.Write(m.data)
		}
		if m.err != nil {
			return m.err
		}
		c.report(p, len(m.data))
		idle <- m.worker
	}
	return ctx.Err()
}

// cut sends the pieces of jobs to the workers and to the writer.
func cut(ctx context.Context, jobs []job, todo, order chan<- *piece) {
	for i := range jobs {
		n, per := jobs[i].units()
		for from := 0; from < n; from += per {
			p := &piece{&jobs[i], from, min(from+per, n), make(chan made, 1)}
			for _, to := range []chan<- *piece{order, todo} {
				select {
				case to <- p:
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

// report counts written bytes, and lets go of the source's memory.
func (c *converter) report(p *piece, n int) {
	j := p.job
	size := j.in.DType.RowBytes(j.unit())
	switch parts, joined := j.in.Source.(tensor.Joined); {
	case joined:
		part := parts[0].Size()
		for i := p.from * size / part; i < p.to*size/part; i++ {
			for _, b := range parts[i].Origin() {
				mmap.Drop(b)
			}
		}
	case j.in.Source != nil: // in memory until all is read
	case j.from == nil:
		mmap.Drop(j.in.Data[p.from*size : p.to*size])
	case p.to == j.in.Shape[0]:
		mmap.Drop(j.in.Data)
	}
	if c.done += int64(n); c.progress != nil {
		c.progress(c.done, c.total)
	}
}

// totalBytes returns the size of the results of jobs.
func totalBytes(jobs []job) (n int64) {
	for _, j := range jobs {
		size, _ := tensor.Bytes(j.out.DType, j.out.Shape) // the writer has the error
		n += int64(size)
	}
	return n
}

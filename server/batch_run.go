package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// retryAfter is how long a batch waits where the server is full of other requests.
const retryAfter = time.Second

// resume goes on with the batches that a server before has left.
func (s *Server) resume() {
	s.store.mu.Lock()
	var left []*batch
	for _, b := range s.store.job {
		if !b.over() {
			left = append(left, b)
		}
	}
	s.store.mu.Unlock()
	for _, b := range left {
		s.startBatch(b)
	}
}

// startBatch runs a batch beside other requests.
func (s *Server) startBatch(b *batch) {
	ctx, cancel := context.WithCancel(s.ctx)
	s.store.mu.Lock()
	b.cancel = cancel
	if b.Status == batchCancelling {
		cancel()
	}
	s.store.mu.Unlock()
	s.batches.Go(func() {
		defer cancel()
		r := &batchRun{s: s, b: b, done: map[string]bool{}}
		if err := r.run(ctx); err != nil && s.ctx.Err() == nil {
			s.log.Error("batch failed", "batch", b.ID, "error", err.Error())
			r.become(batchFailed, func() {
				b.Errors = []batchError{{Code: "server_error", Message: "The server failed to run the batch; its log says why"}}
			})
		}
	})
}

// batchRun is a batch that is being run. Each answer is a line of ID.0, each error one of ID.1: a line is written at once, so
// that who goes on after a kill finds whole lines, but for the last one, which is cut away.
type batchRun struct {
	s     *Server
	b     *batch
	who   *caller
	lines *os.File

	mu   sync.Mutex
	out  [2]*os.File
	done map[string]bool // custom ids that have their line
}

// become sets the state, with what set changes, and keeps it.
func (r *batchRun) become(status string, set func()) error {
	t := r.s.store
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.b.Status != batchCancelling || status != batchProgress { // which may have come meanwhile
		r.b.become(status, r.s.now())
	}
	if set != nil {
		set()
	}
	return t.keep(r.b.ID, r.b.owner, r.b)
}

func (r *batchRun) status() string {
	r.s.store.mu.Lock()
	defer r.s.store.mu.Unlock()
	return r.b.Status
}

func (r *batchRun) run(ctx context.Context) (err error) {
	if r.who, err = r.s.keys.named(r.b.owner); err != nil {
		return err
	}
	if r.status() == batchFinalizing {
		return r.finish(batchCompleted)
	}
	if r.lines, err = r.s.store.root.Open(r.b.Input + ".data"); err != nil {
		return err
	}
	defer r.lines.Close()
	if r.status() == batchValidating {
		if ok, err := r.validate(); err != nil || !ok {
			return err
		}
	}
	if err := r.open(); err != nil {
		return errors.Join(err, r.close())
	}
	end, err := r.all(ctx)
	if err := errors.Join(err, r.close()); err != nil || r.s.ctx.Err() != nil || end == "" {
		return err
	}
	if end == batchCompleted {
		if err := r.become(batchFinalizing, nil); err != nil {
			return err
		}
	}
	return r.finish(end)
}

// each calls see for the lines of the input that are not empty, with their numbers from 1.
func (r *batchRun) each(see func(n int, line []byte) error) error {
	if _, err := r.lines.Seek(0, io.SeekStart); err != nil {
		return err
	}
	from := bufio.NewReaderSize(r.lines, 64<<10)
	for n := 1; ; n++ {
		var line []byte
		for {
			piece, err := from.ReadSlice('\n')
			if line = append(line, piece...); int64(len(line)) > r.s.o.MaxBody {
				line = line[:r.s.o.MaxBody+1]
			}
			if err == nil {
				break
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if !errors.Is(err, io.EOF) {
				return err
			}
			if len(bytes.TrimSpace(line)) > 0 {
				return see(n, line)
			}
			return nil
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := see(n, line); err != nil {
			return err
		}
	}
}

// validate reads all lines before one is run. A wrong one fails the batch.
func (r *batchRun) validate() (ok bool, err error) {
	var wrong []batchError
	seen := map[string]bool{}
	total := 0
	fail := func(n int, code string, p *problem) {
		if len(wrong) < maxErrors {
			wrong = append(wrong, batchError{Code: code, Message: p.message, Param: orNull(p.param), Line: n})
		}
	}
	err = r.each(func(n int, line []byte) error {
		if total++; total > maxLines { // which refuses the file
			return nil
		}
		if int64(len(line)) > r.s.o.MaxBody {
			fail(n, "line_too_large", bad("", "The line has more than %d bytes", r.s.o.MaxBody))
			return nil
		}
		l, p := readLine(line, r.b.Endpoint)
		switch {
		case p != nil:
			fail(n, "invalid_line", p)
		case seen[l.id]:
			fail(n, "duplicate_custom_id", bad("custom_id", "The custom_id %q is there twice", l.id))
		}
		seen[l.id] = true
		return nil
	})
	if err != nil {
		return false, err
	}
	switch {
	case total == 0:
		fail(0, "empty_file", bad("", "The file has no lines"))
	case total > maxLines:
		fail(0, "too_many_lines", bad("", "The file has %d lines, at most %d", total, maxLines))
	}
	status := batchProgress
	if wrong != nil {
		status = batchFailed
	}
	if r.status() == batchCancelling {
		return true, nil
	}
	return wrong == nil, r.become(status, func() { r.b.Errors, r.b.Counts = wrong, batchCounts{Total: total} })
}

// open opens the files of lines, with the lines that a run before has written.
func (r *batchRun) open() error {
	counts := [2]int{}
	for i := range r.out {
		f, err := r.s.store.root.OpenFile(r.part(i), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		r.out[i] = f
		end := int64(0)
		from := bufio.NewReader(f)
		for {
			line, err := from.ReadBytes('\n')
			if errors.Is(err, io.EOF) {
				break // the rest is not a whole line
			}
			if err != nil {
				return err
			}
			var l struct {
				ID string `json:"custom_id"`
			}
			if err := json.Unmarshal(line, &l); err != nil {
				return fmt.Errorf("%s: %w", r.part(i), err)
			}
			end += int64(len(line))
			r.done[l.ID] = true
			counts[i]++
		}
		if err := f.Truncate(end); err != nil {
			return err
		}
		if _, err := f.Seek(end, io.SeekStart); err != nil {
			return err
		}
	}
	r.s.store.mu.Lock()
	defer r.s.store.mu.Unlock()
	r.b.Counts.Completed, r.b.Counts.Failed = counts[0], counts[1]
	return nil
}

func (r *batchRun) part(i int) string { return fmt.Sprintf("%s.%d", r.b.ID, i) }

func (r *batchRun) close() (err error) {
	for _, f := range r.out {
		err = errors.Join(err, f.Sync(), f.Close())
	}
	return err
}

// all runs the lines that have no answer yet, and returns the state that the batch is to have; "" where the server ends.
func (r *batchRun) all(ctx context.Context) (end string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var work sync.WaitGroup
	places := make(chan struct{}, min(max(r.s.o.Requests/4, 1), 16))
	err = r.each(func(_ int, text []byte) error {
		l, p := readLine(text, r.b.Endpoint)
		if p != nil {
			return p
		}
		r.mu.Lock()
		done := r.done[l.id]
		r.mu.Unlock()
		if done {
			return nil
		}
		if r.late() {
			return errExpired
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		work.Go(func() {
			defer func() { <-places }()
			if err := r.one(ctx, l); err != nil {
				stop(err)
			}
		})
		return nil
	})
	work.Wait()
	failed := context.Cause(ctx)
	switch {
	case r.status() == batchCancelling:
		return batchCancelled, nil
	case r.s.ctx.Err() != nil:
		return "", nil
	case errors.Is(err, errExpired) || errors.Is(failed, errExpired):
		return batchExpired, nil
	case failed != nil && !errors.Is(failed, context.Canceled):
		return "", failed
	case err != nil:
		return "", err
	}
	return batchCompleted, nil
}

var errExpired = errors.New("the batch has expired")

// late reports whether the batch's window is over.
func (r *batchRun) late() bool {
	r.s.store.mu.Lock()
	defer r.s.store.mu.Unlock()
	return r.s.now().After(time.Unix(r.b.Times[batchValidating], 0).Add(batchWindow))
}

// one asks the route what a line asks, and writes the answer. One that was not to be had leaves no line.
func (r *batchRun) one(ctx context.Context, l batchLine) error {
	for {
		status, answer := r.s.within(ctx, r.who, r.b.Endpoint, l.body)
		if ctx.Err() != nil {
			return nil
		}
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			if r.late() {
				return errExpired
			}
			select {
			case <-time.After(retryAfter):
				continue
			case <-ctx.Done():
				return nil
			}
		}
		return r.write(l.id, status, answer)
	}
}

func (r *batchRun) write(id string, status int, answer []byte) error {
	line, err := json.Marshal(map[string]any{"id": newID("batch_req_"), "custom_id": id, "error": nil,
		"response": map[string]any{"status_code": status, "request_id": newID("req_"), "body": json.RawMessage(answer)}})
	if err != nil {
		return err
	}
	i := 0
	if status >= 400 {
		i = 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.out[i].Write(append(line, '\n')); err != nil {
		return err
	}
	r.done[id] = true
	r.s.store.mu.Lock()
	defer r.s.store.mu.Unlock()
	if i == 0 {
		r.b.Counts.Completed++
	} else {
		r.b.Counts.Failed++
	}
	return nil
}

// finish makes files of the answers and errors. It can be done again, wherever it was cut.
func (r *batchRun) finish(end string) error {
	t := r.s.store
	for i, id := range r.b.Outputs {
		info, err := t.root.Stat(r.part(i))
		switch {
		case errors.Is(err, fs.ErrNotExist): // it is in its place already
		case err != nil:
			return err
		case info.Size() == 0:
			if err := t.root.Remove(r.part(i)); err != nil {
				return err
			}
		default:
			if err := t.root.Rename(r.part(i), id+".data"); err != nil {
				return err
			}
		}
		info, err = t.root.Stat(id + ".data")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		name := []string{"output", "error"}[i]
		f := &storedFile{ID: id, Object: "file", Bytes: info.Size(), Created: r.s.now().Unix(), Filename: r.b.ID + "_" + name + ".jsonl", Purpose: "batch_output", Status: "processed", owner: r.b.owner}
		if err := t.add(f); err != nil {
			return err
		}
		t.mu.Lock()
		r.b.Held[i] = true
		t.mu.Unlock()
	}
	return r.become(end, nil)
}

// within asks a route from inside, for a caller whose limits of a minute do not count.
func (s *Server) within(ctx context.Context, who *caller, path string, body []byte) (status int, answer []byte) {
	if s.door.isShut() {
		return http.StatusServiceUnavailable, nil
	}
	w := &buffered{header: http.Header{}}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(string(body)))
	if err != nil {
		return http.StatusInternalServerError, nil
	}
	q.Header.Set("Content-Type", "application/json")
	x := &exchange{s: s, w: &writer{ResponseWriter: w}, who: who, ctx: ctx, inner: true}
	s.mux.ServeHTTP(x.w, q.WithContext(context.WithValue(ctx, exchangeKey{}, x)))
	s.metrics.request("batch "+path, x.w.status)
	return x.w.status, bytes.TrimSpace(w.body.Bytes())
}

// buffered keeps an answer.
type buffered struct {
	header http.Header
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(int)             {}
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }

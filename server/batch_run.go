package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// retryAfter is how long a batch waits where the server is full of other requests.
const retryAfter = time.Second

// Bounds of the batches read and run at a time; the others wait in validating.
const (
	maxRunning      = 16
	maxRunningOfKey = 2
)

// startBatches runs waiting batches, the oldest first, up to the maximum at a time. A batch to be cancelled does not
// wait.
func (s *Server) startBatches() {
	t := s.store
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	var waiting []*batch
	running, of := 0, map[string]int{}
	for _, b := range t.job {
		switch {
		case b.cancel != nil:
			running, of[b.owner] = running+1, of[b.owner]+1
		case !b.isOver():
			waiting = append(waiting, b)
		}
	}
	slices.SortFunc(waiting, compareBatches)
	for _, b := range waiting {
		if b.Status == batchCancelling || running < maxRunning && of[b.owner] < maxRunningOfKey {
			running, of[b.owner] = running+1, of[b.owner]+1
			s.startBatch(b)
		}
	}
}

// startBatch runs a batch beside other requests. The caller holds the store's lock.
func (s *Server) startBatch(b *batch) {
	ctx, cancel := context.WithCancel(s.ctx)
	b.cancel = cancel
	if b.Status == batchCancelling {
		cancel()
	}
	s.batches.Go(func() {
		defer cancel()
		r := &batchRun{s: s, b: b, done: map[lineKey]bool{}}
		if err := r.run(ctx); err != nil && s.ctx.Err() == nil {
			r.fail(err)
		}
		s.store.mu.Lock()
		b.cancel = nil
		s.store.mu.Unlock()
		s.startBatches()
	})
}

// fail ends the batch by an error. The answers so far stay.
func (r *batchRun) fail(err error) {
	said := batchError{Code: "server_error", Message: "The server failed to run the batch; its log says why"}
	if p := (*problem)(nil); errors.As(err, &p) {
		said = batchError{Code: p.code, Message: p.message}
	}
	r.s.log.Error("batch failed", "batch", r.b.ID, "error", err.Error())
	r.s.store.mu.Lock()
	r.b.Errors = []batchError{said}
	r.s.store.mu.Unlock()
	if err := r.finish(batchFailed); err != nil {
		r.s.log.Error("batch not kept", "batch", r.b.ID, "error", err.Error())
		r.become(batchFailed, nil) // for as long as the server runs
	}
}

// batchRun is a batch under way. Each answer is a line of ID.0, each error a line of ID.1, written at once: a run after
// a kill finds whole lines, except for the last, and cuts the last away.
type batchRun struct {
	s     *Server
	b     *batch
	who   *caller
	lines *os.File

	mu   sync.Mutex
	out  [2]*os.File
	done map[lineKey]bool // custom ids with a line
}

// lineKey stands for a custom id. The custom ids of a batch may have 25 MiB.
type lineKey [16]byte

func keyOf(id string) lineKey {
	sum := sha256.Sum256([]byte(id))
	return lineKey(sum[:16])
}

// become sets the state, with the changes of set, and keeps the batch.
func (r *batchRun) become(status string, set func()) error {
	t := r.s.store
	t.mu.Lock()
	defer t.mu.Unlock()
	was := r.b.isOver()
	if r.b.Status != batchCancelling || status != batchProgress { // a cancellation may have come meanwhile
		r.b.become(status, r.s.now())
	}
	if r.b.isOver() && !was {
		t.settle(r.b)
	}
	if set != nil {
		set()
	}
	return t.keep(r.b.ID, r.b.owner, r.b)
}

// settle gives back the unused room of a batch, and removes lines outside any file. The caller holds t.mu.
func (t *store) settle(b *batch) {
	for i, id := range b.Outputs {
		if t.file[id] != nil {
			continue
		}
		t.things.give(b.owner, 1)
		for _, name := range []string{b.part(i), id + ".data"} {
			if info, err := t.root.Stat(name); err == nil {
				t.bytes.give(b.owner, info.Size())
				t.root.Remove(name) // else the next start does
			}
		}
	}
}

func (r *batchRun) status() string {
	r.s.store.mu.Lock()
	defer r.s.store.mu.Unlock()
	return r.b.Status
}

func (r *batchRun) run(ctx context.Context) (err error) {
	if r.who, err = r.s.gate.keys.callerOf(r.b.owner); err != nil {
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
		if ok, err := r.validate(ctx); r.status() != batchCancelling && (err != nil || !ok) {
			return err
		}
	}
	if err := r.open(); err != nil {
		return errors.Join(err, r.close())
	}
	end, err := r.runLines(ctx)
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

// each calls see for the nonempty lines of the input, with their numbers from 1. A line counts as the body of a request
// until its room is given back. A line too large is nil.
func (r *batchRun) each(ctx context.Context, see func(n int, line []byte, room *held) error) error {
	from := bufio.NewReaderSize(io.NewSectionReader(r.lines, 0, maxFile), 64<<10)
	for n, at := 1, int64(0); ; n++ {
		size, empty, err := lineSize(from)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		last := err != nil
		if !empty {
			room, line := &held{s: r.s, who: r.b.owner}, []byte(nil)
			if size <= r.s.o.MaxBody {
				if line, err = r.line(ctx, room, at, size); err != nil {
					room.end()
					return err
				}
			}
			if err := see(n, line, room); err != nil {
				room.end()
				return err
			}
		}
		if at += size; last {
			return nil
		}
	}
}

// lineSize reads to the end of a line, and reports whether the line has only white space.
func lineSize(from *bufio.Reader) (size int64, empty bool, err error) {
	for empty = true; ; {
		piece, err := from.ReadSlice('\n')
		size, empty = size+int64(len(piece)), empty && len(bytes.TrimSpace(piece)) == 0
		if !errors.Is(err, bufio.ErrBufferFull) {
			return size, empty, err
		}
	}
}

// line reads a line, after waiting for room.
func (r *batchRun) line(ctx context.Context, room *held, at, size int64) ([]byte, error) {
	for !room.grow(size) {
		if !pause(ctx, retryAfter) {
			return nil, ctx.Err()
		}
	}
	line := make([]byte, size)
	_, err := r.lines.ReadAt(line, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return line, ctx.Err()
}

// validate reads all lines before the first is run. A wrong line fails the batch.
func (r *batchRun) validate(ctx context.Context) (ok bool, err error) {
	var wrong []batchError
	seen := map[lineKey]bool{}
	total, told := 0, 0
	fail := func(n int, code string, p *problem) {
		p = p.clipped()
		if told += len(p.message) + len(p.param); len(wrong) < maxErrors && (told < maxTold || wrong == nil) {
			wrong = append(wrong, batchError{Code: code, Message: p.message, Param: nullable(p.param), Line: n})
		}
	}
	err = r.each(ctx, func(n int, line []byte, room *held) error {
		defer room.end()
		if total++; total > maxLines { // too many fail the file, so the rest does not matter
			return io.EOF
		}
		if line == nil {
			fail(n, "line_too_large", bad("", "The line has more than %d bytes", r.s.o.MaxBody))
			return nil
		}
		var l batchLine
		switch p := catch(func() { l = readLine(line, r.b.Endpoint) }); {
		case p != nil:
			fail(n, "invalid_line", p)
		case seen[keyOf(l.id)]:
			fail(n, "duplicate_custom_id", bad("custom_id", "The custom_id %q is there twice", l.id))
		}
		seen[keyOf(l.id)] = true
		return nil
	})
	if err != nil && total <= maxLines {
		return false, err
	}
	switch {
	case total == 0:
		fail(0, "empty_file", bad("", "The file has no lines"))
	case total > maxLines:
		wrong, told = nil, 0 // of many lines some are wrong
		fail(0, "too_many_lines", bad("", "The file has more than %d lines", maxLines))
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

// open opens the files of lines, with the lines of an earlier run.
func (r *batchRun) open() error {
	counts := [2]int{}
	for i := range r.out {
		f, err := r.s.store.root.OpenFile(r.b.part(i), os.O_CREATE|os.O_RDWR, 0o600)
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
				return fmt.Errorf("%s: %w", r.b.part(i), err)
			}
			end += int64(len(line))
			r.done[keyOf(l.ID)] = true
			counts[i]++
		}
		info, err := f.Stat()
		if err == nil {
			err = f.Truncate(end)
		}
		if err != nil {
			return err
		}
		r.s.store.bytes.give(r.b.owner, info.Size()-end) // of a cut line
		if _, err := f.Seek(end, io.SeekStart); err != nil {
			return err
		}
	}
	r.s.store.mu.Lock()
	defer r.s.store.mu.Unlock()
	r.b.Counts.Completed, r.b.Counts.Failed = counts[0], counts[1]
	return nil
}

func (r *batchRun) close() (err error) {
	for _, f := range r.out {
		err = errors.Join(err, f.Sync(), f.Close())
	}
	return err
}

// runLines runs the lines without an answer, and returns the next state of the batch; "" at the server's end.
func (r *batchRun) runLines(ctx context.Context) (end string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var work sync.WaitGroup
	places := make(chan struct{}, min(max(r.s.o.Requests/4, 1), 16))
	err = r.each(ctx, func(_ int, text []byte, room *held) error {
		var l batchLine
		if p := catch(func() { l = readLine(text, r.b.Endpoint) }); p != nil {
			return p
		}
		r.mu.Lock()
		done := r.done[keyOf(l.id)]
		r.mu.Unlock()
		if done {
			room.end()
			return nil
		}
		if r.isLate() {
			return errExpired
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		if ctx.Err() != nil {
			<-places
			return ctx.Err()
		}
		work.Go(func() {
			defer func() {
				room.end()
				<-places
			}()
			if err := r.answerLine(ctx, l); err != nil {
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

// isLate reports whether the batch's window is over.
func (r *batchRun) isLate() bool {
	r.s.store.mu.Lock()
	defer r.s.store.mu.Unlock()
	return r.s.now().After(time.Unix(r.b.Times[batchValidating], 0).Add(batchWindow))
}

// answerLine runs a line on its route, and writes the answer. Without an answer there is no line.
func (r *batchRun) answerLine(ctx context.Context, l batchLine) error {
	if err := r.wait(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	for {
		status, answer := r.s.ask(ctx, r.who, r.b.Endpoint, l.body)
		if ctx.Err() != nil {
			return nil
		}
		if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
			if r.isLate() {
				return errExpired
			}
			if pause(ctx, retryAfter) {
				continue
			}
			return nil
		}
		return r.write(l.id, status, answer)
	}
}

// wait waits until the key has a line left.
func (r *batchRun) wait(ctx context.Context) error {
	for r.who.key != nil {
		wait := r.who.key.lines.take(1, r.s.now())
		if wait == 0 {
			return nil
		}
		if r.isLate() {
			return errExpired
		}
		if !pause(ctx, min(wait, time.Minute)) {
			return nil
		}
	}
	return nil
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func (r *batchRun) write(id string, status int, answer []byte) error {
	line, err := json.Marshal(map[string]any{"id": newID("batch_req_"), "custom_id": id, "error": nil,
		"response": map[string]any{"status_code": status, "request_id": newID("req_"),
			"body": json.RawMessage(answer)}})
	if err != nil {
		return err
	}
	i := 0
	if status >= 400 {
		i = 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if line = append(line, '\n'); !r.s.store.bytes.take(r.b.owner, int64(len(line))) {
		return &problem{code: "storage_full",
			message: "This server keeps no more bytes of yours. Delete some files with DELETE /v1/files/ID"}
	}
	if _, err := r.out[i].Write(line); err != nil {
		return err
	}
	r.done[keyOf(id)] = true
	r.s.store.mu.Lock()
	defer r.s.store.mu.Unlock()
	if i == 0 {
		r.b.Counts.Completed++
	} else {
		r.b.Counts.Failed++
	}
	return nil
}

// finish makes files of the answers and errors. After an interruption, finish may run again.
func (r *batchRun) finish(end string) error {
	t := r.s.store
	for i, id := range r.b.Outputs {
		info, err := t.root.Stat(r.b.part(i))
		switch {
		case errors.Is(err, fs.ErrNotExist): // already in place
		case err != nil:
			return err
		case info.Size() == 0:
			if err := t.root.Remove(r.b.part(i)); err != nil {
				return err
			}
		default:
			if err := t.root.Rename(r.b.part(i), id+".data"); err != nil {
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
		f := r.s.newFile(id, r.b.ID+"_"+name+".jsonl", "batch_output", r.b.owner)
		f.Bytes = info.Size()
		if err := t.add(f); err != nil {
			return err
		}
		t.mu.Lock()
		r.b.Held[i] = true
		t.mu.Unlock()
	}
	return r.become(end, nil)
}

// ask asks a route from inside, for a caller whose limits of a minute do not count. The body counts already.
func (s *Server) ask(ctx context.Context, who *caller, path string, body []byte) (status int, answer []byte) {
	if s.door.isShut() {
		return http.StatusServiceUnavailable, nil
	}
	w := &buffered{header: http.Header{}}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, path, nil)
	if err != nil {
		return http.StatusInternalServerError, nil
	}
	x := &exchange{s: s, w: &writer{ResponseWriter: w}, who: who, ctx: ctx, given: body}
	if who.key != nil && !who.key.opens(path) {
		forbidden(who.key, path).write(x.w, openAI{})
	} else {
		s.mux.ServeHTTP(x.w, q.WithContext(context.WithValue(ctx, exchangeKey{}, x)))
	}
	s.telemetry.request("batch "+path, x.w.status)
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

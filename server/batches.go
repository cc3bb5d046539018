package server

import (
	"bufio"
	"bytes"
	"cmp"
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

// Limits of batches.
const (
	maxLines    = 50000
	maxCustomID = 512
	maxErrors   = 100     // shown
	maxTold     = 8 << 10 // bytes of the errors shown
	batchWindow = 24 * time.Hour
)

// The states of a batch.
const (
	batchValidating = "validating"
	batchFailed     = "failed"
	batchProgress   = "in_progress"
	batchFinalizing = "finalizing"
	batchCompleted  = "completed"
	batchExpired    = "expired"
	batchCancelling = "cancelling"
	batchCancelled  = "cancelled"
)

// batch is the stored form of a batch.
type batch struct {
	ID       string            `json:"id"`
	Endpoint string            `json:"endpoint"`
	Input    string            `json:"input_file_id"`
	Window   string            `json:"completion_window"`
	Status   string            `json:"status"`
	Outputs  [2]string         `json:"outputs"` // the files of answers and of errors, once there are any
	Held     [2]bool           `json:"held"`    // whether there are
	Errors   []batchError      `json:"errors,omitempty"`
	Counts   batchCounts       `json:"counts"`
	Times    map[string]int64  `json:"times"` // the beginning of each state, by name
	Metadata map[string]string `json:"metadata,omitempty"`
	owner    string
	cancel   context.CancelFunc // of its run; nil while there is none
}

type batchError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    int     `json:"line"`
}

type batchCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
}

// isSound reports whether a stored batch could have been written by the server.
func (b *batch) isSound() bool {
	states := []string{batchValidating, batchFailed, batchProgress, batchFinalizing, batchCompleted, batchExpired,
		batchCancelling, batchCancelled}
	return storeName.MatchString(b.Input) && storeName.MatchString(b.Outputs[0]) &&
		storeName.MatchString(b.Outputs[1]) &&
		b.Outputs[0] != b.Outputs[1] &&
		b.Times[batchValidating] > 0 && slices.Contains(batchEndpoints, b.Endpoint) && slices.Contains(states, b.Status)
}

// weight returns the count of a batch among the store's things: one, and more for much metadata.
func (b *batch) weight() (n int64) {
	for name, value := range b.Metadata {
		n += int64(len(name) + len(value))
	}
	return 1 + n>>12
}

// ended returns the end of a finished batch.
func (b *batch) ended() time.Time {
	last := int64(0)
	for _, at := range b.Times {
		last = max(last, at)
	}
	return time.Unix(last, 0)
}

// part returns the file of lines written by a batch: of answers, or of errors.
func (b *batch) part(i int) string { return fmt.Sprintf("%s.%d", b.ID, i) }

// isOver reports whether nothing more is done.
func (b *batch) isOver() bool {
	return slices.Contains([]string{batchFailed, batchCompleted, batchExpired, batchCancelled}, b.Status)
}

// object returns the batch in the form of OpenAI's API.
func (b *batch) object() map[string]any {
	o := map[string]any{"id": b.ID, "object": "batch", "endpoint": b.Endpoint, "input_file_id": b.Input,
		"completion_window": b.Window, "status": b.Status, "errors": nil, "output_file_id": nil, "error_file_id": nil,
		"request_counts": b.Counts, "metadata": b.Metadata, "created_at": b.Times[batchValidating],
		"expires_at": b.Times[batchValidating] + int64(batchWindow.Seconds())}
	for _, state := range []string{batchProgress, batchFinalizing, batchCompleted, batchFailed, batchExpired,
		batchCancelling, batchCancelled} {
		if at, ok := b.Times[state]; ok {
			o[state+"_at"] = at
		} else {
			o[state+"_at"] = nil
		}
	}
	if b.Errors != nil {
		o["errors"] = map[string]any{"object": "list", "data": b.Errors}
	}
	if b.isOver() {
		for i, name := range []string{"output_file_id", "error_file_id"} {
			if b.Held[i] {
				o[name] = b.Outputs[i]
			}
		}
	}
	return o
}

// batchEndpoints are the routes open to batches.
var batchEndpoints = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}

// createBatch answers POST /v1/batches.
func createBatch(x *exchange) any {
	f := x.body()
	b := &batch{ID: newID("batch_"), Input: f.needText("input_file_id"), Endpoint: f.needText("endpoint"),
		Window: f.needText("completion_window"), Status: batchValidating,
		Outputs: [2]string{newID("file-"), newID("file-")}, owner: x.who.name,
		Times: map[string]int64{batchValidating: x.s.now().Unix()}}
	b.Metadata = metadata(f)
	f.done()
	switch {
	case !slices.Contains(batchEndpoints, b.Endpoint):
		fail("endpoint", "%.64q, want one of %v", b.Endpoint, batchEndpoints)
	case b.Window != "24h":
		fail("completion_window", "%.32q, want 24h", b.Window)
	case x.s.store.find(b.Input, x.who.name) == nil:
		return noInput(b)
	case x.who.key != nil && !x.who.key.opens(b.Endpoint):
		return forbidden(x.who.key, b.Endpoint)
	}
	things := b.weight() + int64(len(b.Outputs))
	throw(x.s.store.reserve(b.owner, things, 0, x.s.now()))
	o, p := x.s.store.accept(b, x.who.key)
	if p != nil {
		x.s.store.release(b.owner, things, 0)
		return p
	}
	x.s.startBatches()
	return o
}

func noInput(b *batch) *problem {
	return bad("input_file_id", "Invalid value for 'input_file_id': there is no file %.64q", b.Input)
}

// accept takes in a batch with a stored file, if its key may have one more.
func (t *store) accept(b *batch, key *keyUse) (o map[string]any, p *problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.file[b.Input]; f == nil || f.owner != b.owner {
		return nil, noInput(b) // deleted meanwhile
	}
	under := 0
	for _, other := range t.job {
		if other.owner == b.owner && !other.isOver() {
			under++
		}
	}
	if key != nil && key.Batches > 0 && under >= key.Batches {
		return nil, full("The key %q has %d batches that are not over, and may have no more", key.Name, under)
	}
	if err := t.keep(b.ID, b.owner, b); err != nil {
		t.log.Error("batch not kept", "batch", b.ID, "error", err)
		return nil, internal("The server could not keep the batch")
	}
	t.job[b.ID] = b
	return b.object(), nil
}

// deleteBatch answers DELETE /v1/batches/ID. Its files stay.
func deleteBatch(x *exchange) any {
	b := x.batch()
	t := x.s.store
	t.mu.Lock()
	status, err := b.Status, error(nil)
	if b.isOver() {
		status, err = "", t.dropBatch(b)
	}
	t.mu.Unlock()
	if status != "" {
		return refuse(http.StatusConflict, "in_use", "id", "The batch is %s: cancel it first", status)
	}
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	return map[string]any{"id": b.ID, "object": "batch", "deleted": true}
}

// batch returns the batch of a path.
func (x *exchange) batch() *batch {
	t, id := x.s.store, x.r.PathValue("id")
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.job[id]; b != nil && b.owner == x.who.name {
		return b
	}
	panic(noThing("batch", id))
}

func batchObject(x *exchange, b *batch) any {
	x.s.store.mu.Lock()
	o := b.object()
	x.s.store.mu.Unlock()
	return o
}

func showBatch(x *exchange) any { return batchObject(x, x.batch()) }

// cancelBatch answers POST /v1/batches/ID/cancel. The requests under way end.
func cancelBatch(x *exchange) any {
	b := x.batch()
	t := x.s.store
	t.mu.Lock()
	if b.isOver() {
		status := b.Status
		t.mu.Unlock()
		return refuse(409, "batch_over", "id", "The batch is %s", status)
	}
	if b.Status != batchFinalizing && b.Status != batchCancelling {
		b.become(batchCancelling, x.s.now())
		if err := t.keep(b.ID, b.owner, b); err != nil {
			x.s.log.Error("batch not kept", "batch", b.ID, "error", err.Error())
		}
		if b.cancel != nil {
			b.cancel()
		}
	}
	t.mu.Unlock()
	x.s.startBatches() // a waiting batch ends at once
	return batchObject(x, b)
}

// become sets the state. The caller holds the store's lock.
func (b *batch) become(status string, now time.Time) {
	b.Status = status
	b.Times[status] = now.Unix()
}

func listBatches(x *exchange) any {
	t := x.s.store
	t.mu.Lock()
	var all []*batch
	for _, b := range t.job {
		if b.owner == x.who.name {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b *batch) int { return compareBatches(b, a) })
	t.mu.Unlock()
	list := page(x, all, func(b *batch) string { return b.ID }, 100)
	t.mu.Lock()
	objects := []map[string]any{}
	for _, b := range list.Data {
		objects = append(objects, b.object())
	}
	t.mu.Unlock()
	return x.replyLarge(listed[map[string]any]{list.Object, objects, list.First, list.Last, list.More})
}

// compareBatches orders batches by their creation.
func compareBatches(a, b *batch) int {
	return cmp.Or(cmp.Compare(a.Times[batchValidating], b.Times[batchValidating]), cmp.Compare(a.ID, b.ID))
}

// batchLine is a request of a batch.
type batchLine struct {
	id   string
	body json.RawMessage
}

// readLine reads a line of a batch's file.
func readLine(text []byte, endpoint string) (l batchLine) {
	f := parse(text, new(hints))
	l.id = f.needText("custom_id")
	if l.id == "" || len(l.id) > maxCustomID {
		fail("custom_id", "%d bytes, want 1 to %d", len(l.id), maxCustomID)
	}
	if method := f.needText("method"); method != "POST" {
		fail("method", "%.64q, want POST", method)
	}
	if url := f.needText("url"); url != endpoint {
		fail("url", "%.64q, the batch's endpoint is %s", url, endpoint)
	}
	l.body = f.take("body")
	if l.body == nil || l.body[0] != '{' {
		fail("body", "%s, want an object", kindOf(l.body))
	} else if o := f.inner("body", l.body); o.has("stream") && o.boolean("stream", false) {
		fail("body.stream", "a batch has no streams")
	}
	f.done()
	return l
}

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
		t.eachOutput(r.b, t.things.give, func(name string, bytes int64) { // of lines outside any file
			t.bytes.give(r.b.owner, bytes)
			t.root.Remove(name) // else the next start does
		})
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
	status int
	body   bytes.Buffer
}

func (b *buffered) Header() http.Header         { return b.header }
func (b *buffered) WriteHeader(status int)      { b.status = status }
func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }

package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
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
		return bad("endpoint", "Invalid value for 'endpoint': %.64q, want one of %v", b.Endpoint, batchEndpoints)
	case b.Window != "24h":
		return bad("completion_window", "Invalid value for 'completion_window': %.32q, want 24h", b.Window)
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

func showBatch(x *exchange) any {
	b := x.batch()
	return batchObject(x, b)
}

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

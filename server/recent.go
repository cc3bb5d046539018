package server

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Bounds of the responses kept for each key.
const (
	recentBytes = 16 << 20
	recentMost  = 1024
	recentTime  = time.Hour // since the last use
	itemBytes   = 256       // of an item, beside its text
)

// recent keeps the last answers of the responses API in memory, for later requests of the same key with references to
// them, or to their items, in the place of texts. The least recently used go first.
type recent struct {
	mu  sync.Mutex
	now func() time.Time
	of  map[string]*keptResponses // by the names of keys
}

// keptResponses are the responses of a key.
type keptResponses struct {
	byID  map[string]*keptResponse
	items map[string]json.RawMessage // of their outputs, by their ids
	list  []*keptResponse            // the last used comes last
	bytes int
}

type keptResponse struct {
	id, before    string // before is the response before this one
	used          time.Time
	input, output []json.RawMessage
	ids           []string // of output
	body          []byte
	bytes         int
}

// put keeps a response.
func (k *recent) put(who string, r *keptResponse) {
	r.bytes = len(r.body)
	for _, item := range slices.Concat(r.input, r.output) {
		r.bytes += len(item) + itemBytes
	}
	if r.bytes > recentBytes {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.of[who]
	if of == nil {
		of = &keptResponses{byID: map[string]*keptResponse{}, items: map[string]json.RawMessage{}}
		k.of[who] = of
	}
	r.used = k.now()
	of.byID[r.id], of.list, of.bytes = r, append(of.list, r), of.bytes+r.bytes
	for i, id := range r.ids {
		of.items[id] = r.output[i]
	}
	for of.bytes > recentBytes || len(of.list) > recentMost {
		of.drop(of.list[0])
	}
}

// drop forgets a response.
func (of *keptResponses) drop(r *keptResponse) {
	of.bytes -= r.bytes
	delete(of.byID, r.id)
	for _, id := range r.ids {
		delete(of.items, id)
	}
	of.list = slices.DeleteFunc(of.list, func(x *keptResponse) bool { return x == r })
}

// unexpired returns the responses of a key without the ones whose time is over; nil are none. k.mu is held.
func (k *recent) unexpired(who string) *keptResponses {
	of := k.of[who]
	for of != nil && len(of.list) > 0 && k.now().Sub(of.list[0].used) > recentTime {
		of.drop(of.list[0])
	}
	return of
}

// expire forgets the responses past their time, also of keys without further requests.
func (k *recent) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for who := range k.of {
		if len(k.unexpired(who).list) == 0 {
			delete(k.of, who)
		}
	}
}

// get returns a response, nil if not kept.
func (k *recent) get(who, id string) *keptResponse {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.unexpired(who)
	if of == nil || of.byID[id] == nil {
		return nil
	}
	r, i := of.byID[id], slices.Index(of.list, of.byID[id])
	r.used, of.list = k.now(), append(slices.Delete(of.list, i, i+1), r)
	return r
}

// item returns an item of an output, nil if not kept.
func (k *recent) item(who, id string) json.RawMessage {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of := k.unexpired(who); of != nil {
		return of.items[id]
	}
	return nil
}

// remove forgets a response, and reports whether it was kept.
func (k *recent) remove(who, id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.unexpired(who)
	if of == nil || of.byID[id] == nil {
		return false
	}
	of.drop(of.byID[id])
	return true
}

// goneProblem returns the problem of a reference to a forgotten answer or item.
func goneProblem(param, what, id string) *problem {
	return refuse(http.StatusBadRequest, "previous_response_not_found", param,
		"There is no %s %q: answers are kept in memory, for an hour after their last use and up to %d MiB of "+
			"each key. Send what was said as input; clients do "+
			"with store: false", what, id, recentBytes>>20)
}

// items reads the items of a request's input, kept ones in the places of their names.
type items struct {
	x     *exchange
	f     *fields
	own   []json.RawMessage // of the request itself, including named items
	bytes int64             // of kept items
}

// count counts a kept item like a part of the body.
func (l *items) count(param string, raw json.RawMessage) {
	if l.bytes += int64(len(raw)); l.bytes > l.x.s.o.MaxBody {
		fail(param, "with it the request has more than %d bytes", l.x.s.o.MaxBody)
	}
}

// read returns all items of a request, each with its place: the ones of earlier answers, then its own.
func (l *items) read() (all []*fields) {
	f, id := l.f, l.f.text("previous_response_id")
	var before [][]json.RawMessage // the newest first
	for at := id; at != ""; {
		r := l.x.s.kept.recent.get(l.x.who.name, at)
		if r == nil {
			throw(goneProblem("previous_response_id", "response", at))
		}
		before = append(before, r.output, r.input)
		at = r.before
		for _, raw := range slices.Concat(r.input, r.output) {
			l.count("previous_response_id", raw)
		}
	}
	for _, list := range slices.Backward(before) {
		for _, raw := range list {
			all = append(all, f.inner(fmt.Sprintf("previous_response_id[%d]", len(all)), raw))
		}
	}
	if text, ok := decodeAs[string](f.values["input"]); ok {
		f.take("input")
		item, _ := encode(map[string]string{"role": "user", "content": text}) // texts have JSON
		l.own = []json.RawMessage{item}
		return append(all, f.inner("input", item))
	}
	for i, raw := range f.list("input", maxMessages) {
		path := fmt.Sprintf("input[%d]", i)
		of := f.inner(path, raw)
		if isReference(of) {
			id := of.needText("id")
			if raw = l.x.s.kept.recent.item(l.x.who.name, id); raw == nil {
				throw(goneProblem(path+".id", "item", id))
			}
			of.done()
			l.count(path, raw)
			of = f.inner(path, raw)
		}
		all, l.own = append(all, of), append(l.own, raw)
	}
	return all
}

// isReference reports whether an item is a reference into an earlier answer: by its type, or as an id alone.
func isReference(f *fields) bool {
	if kind, _ := decodeAs[string](f.values["type"]); kind == "item_reference" {
		f.ignore("type")
		return true
	}
	return len(f.values) == 1 && f.has("id")
}

// keep keeps a finished answer. body is its JSON.
func (q *response) keep(body any) {
	if !q.kept {
		return
	}
	r := &keptResponse{id: q.r.id, before: q.before, input: q.input, ids: q.ids}
	r.body, _ = encode(body) // body has JSON, since it is sent
	for i, b := range q.out.all {
		item, _ := encode(q.item(i, b, b.status()))
		r.output = append(r.output, item)
	}
	q.r.asked.s.kept.recent.put(q.r.asked.who.name, r)
}

// showResponse answers GET /v1/responses/{id}.
func showResponse(x *exchange) any {
	r := x.s.kept.recent.get(x.who.name, x.r.PathValue("id"))
	if r == nil {
		return x.noResponse()
	}
	return json.RawMessage(r.body)
}

// deleteResponse answers DELETE /v1/responses/{id}.
func deleteResponse(x *exchange) any {
	id := x.r.PathValue("id")
	if !x.s.kept.recent.remove(x.who.name, id) {
		return x.noResponse()
	}
	return map[string]any{"id": id, "object": "response", "deleted": true}
}

func (x *exchange) noResponse() *problem {
	p := goneProblem("", "response", x.r.PathValue("id"))
	p.status, p.code = http.StatusNotFound, "not_stored"
	return p
}

// sealMark begins reasoning in its opaque form. It hides nothing, and nothing depends on its maker: a client may send
// the text as it is.
const sealMark = "karat1."

func seal(text string) string {
	return sealMark + base64.StdEncoding.EncodeToString([]byte(text))
}

// unseal reads reasoning in its opaque form, and reports whether the text has that form.
func unseal(sealed string) (string, bool) {
	coded, ok := strings.CutPrefix(sealed, sealMark)
	text, err := base64.StdEncoding.DecodeString(coded)
	return string(text), ok && err == nil && utf8.Valid(text)
}

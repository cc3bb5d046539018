package server

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/karat-run/karat"
)

// receiptHeader names the receipts of an answer, for GET /v1/receipts/{id}.
const receiptHeader = "Karat-Receipt"

// Bounds of the receipts kept for each key.
const (
	receiptBytes = 4 << 20
	receiptMost  = 1024
)

// keptAnswers are answers in memory.
type keptAnswers struct {
	recent   recent // of the responses API
	receipts receipts
}

// receipts keeps the last signed receipts of each key in memory. The oldest go first.
type receipts struct {
	mu sync.Mutex
	of map[string]*keptReceipts
}

// keptReceipts are the receipts of a key, by the id of their request and the number of the answer.
type keptReceipts struct {
	all   map[receiptName][]byte
	order []receiptName
	bytes int
}

type receiptName struct {
	id     string
	choice int
}

// put keeps a receipt.
func (k *receipts) put(who string, name receiptName, b []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[string]*keptReceipts{}
	}
	of := k.of[who]
	if of == nil {
		of = &keptReceipts{all: map[receiptName][]byte{}}
		k.of[who] = of
	}
	of.all[name], of.order, of.bytes = b, append(of.order, name), of.bytes+len(b)
	for len(of.order) > 1 && (of.bytes > receiptBytes || len(of.order) > receiptMost) { // the last one stays
		of.bytes -= len(of.all[of.order[0]])
		delete(of.all, of.order[0])
		of.order = of.order[1:]
	}
}

// get returns a receipt, nil if not kept.
func (k *receipts) get(who string, name receiptName) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if of := k.of[who]; of != nil {
		return of.all[name]
	}
	return nil
}

// keepReceipt signs and keeps the receipt of an answer.
func (c *choice) keepReceipt(r *karat.Receipt) error {
	x := c.r.asked
	if err := r.Sign(c.s.o.ReceiptKey); err != nil {
		return err
	}
	b, err := r.Bytes()
	if err == nil {
		c.s.kept.receipts.put(x.who.name, receiptName{x.receipts, c.index}, b)
	}
	return err
}

// showReceipt answers GET /v1/receipts/{id}, with ?choice=N of the N-th answer, from 0.
func showReceipt(x *exchange) any {
	if x.s.o.ReceiptKey == nil {
		return refuse(http.StatusNotFound, "no_receipts", "",
			"This server makes no receipts: it was started without --receipts")
	}
	n := 0
	if text := x.r.URL.Query().Get("choice"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 {
			return refuse(http.StatusBadRequest, "invalid_value", "choice",
				"choice: want the number of an answer, from 0")
		}
	}
	b := x.s.kept.receipts.get(x.who.name, receiptName{x.r.PathValue("id"), n})
	if b == nil {
		return refuse(http.StatusNotFound, "not_found", "id",
			"There is no such receipt of this key: the header "+receiptHeader+" of an answer names its receipts, "+
				"which are kept until 1,024 others came, or 4 MiB of others")
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(http.StatusOK)
	x.w.Write(b) // an error is the client's, already gone
	return nil
}

// verifyReceipt answers POST /v1/receipts/verify: the model computes the answer of a receipt again.
func verifyReceipt(x *exchange) any {
	f, m := x.readRequest(x.readModel)
	refuseTuned(x)
	raw := f.take("receipt")
	if f.done(); raw == nil {
		lack("receipt")
	}
	r, err := karat.ReadReceipt(bytes.NewReader(raw))
	if err != nil {
		fail("receipt", "%v", err)
	}
	prompt, answer := r.Tokens()
	defer x.s.enter(x.who, 1, prompt+answer)()
	v, err := m.model.Verify(x.ctx, r, karat.VerifyOptions{Caller: x.who.caller()})
	if err != nil && (x.ctx.Err() != nil || errors.Is(err, karat.ErrClosed)) {
		return x.s.explain(x.ctx, err)
	} else if err != nil {
		fail("receipt", "%v", err)
	}
	x.s.addUsage(x.ctx, x.who, m, usage{prompt: prompt + v.Tokens})
	return struct {
		*karat.Verdict
		Verified bool `json:"verified"`
	}{v, v.Verified()}
}

package server

import (
	"context"
	"encoding/hex"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // the example of W3C's Trace Context

func TestTraceParent(t *testing.T) {
	trace, parent, sampled, ok := traceParent(given)
	if hex.EncodeToString(trace[:]) != given[3:35] || hex.EncodeToString(parent[:]) != given[36:52] || !sampled || !ok {
		t.Errorf("%x %x %v %v", trace, parent, sampled, ok)
	}
	if _, _, sampled, ok := traceParent(given[:53] + "02"); sampled || !ok {
		t.Error("a client that wants no trace")
	}
	if _, _, _, ok := traceParent("01" + given[2:] + "-more"); !ok {
		t.Error("a later version may have more behind")
	}
	for _, bad := range []string{"", "00", "ff" + given[2:], given + "-more", given[:54], given + "0", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033310-01"} {
		if trace, parent, _, ok := traceParent(bad); ok {
			t.Errorf("%q: %x %x", bad, trace, parent)
		}
	}
}

// TestBrokenStream: the span of a stream that a fault ends has failed, although its status was told before.
func TestBrokenStream(t *testing.T) {
	spans := make(chan Span, 1)
	c := serve(t, demo(t), Options{Trace: func(s Span) {
		if s.Request {
			spans <- s
		}
	}})
	generate := c.s.generate
	for _, fault := range []bool{false, true} {
		c.s.generate = func(ctx context.Context, s *karat.Session, ids []int, o karat.GenerateOptions) iter.Seq2[karat.Token, error] {
			return func(yield func(karat.Token, error) bool) {
				for token, err := range generate(ctx, s, ids, o) {
					if !yield(token, err) || fault && !yield(karat.Token{}, errors.New("a fault")) {
						return
					}
				}
			}
		}
		_, text, _ := c.do("POST", "/v1/chat/completions", `{`+hello+`,"stream":true,"max_tokens":3}`)
		span := <-spans
		status := slices.ContainsFunc(span.Attributes, func(a slog.Attr) bool { return a.Key == "http.response.status_code" && a.Value.Int64() == 200 })
		if span.Failed != fault || !status || strings.Contains(text, "server_error") != fault {
			t.Errorf("fault %v: %+v, %s", fault, span, text)
		}
	}
}

func FuzzTraceParent(f *testing.F) {
	f.Add(given)
	f.Add("01-" + given[3:] + "-x")
	f.Fuzz(func(t *testing.T, header string) {
		trace, parent, _, ok := traceParent(header)
		if ok && (trace == [16]byte{} || parent == [8]byte{} || header[3:35] != hex.EncodeToString(trace[:]) || header[36:52] != hex.EncodeToString(parent[:])) {
			t.Errorf("%q: %x %x", header, trace, parent)
		}
	})
}

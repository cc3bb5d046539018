package server

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// TestReceipts: each answer has a receipt for its key, which the model verifies.
func TestReceipts(t *testing.T) {
	public, key, _ := ed25519.GenerateKey(nil)
	m := demo(t)
	c := serve(t, m, Options{ReceiptKey: key, Keys: []Key{{Name: "a", Secret: strings.Repeat("a", 20)}, {Name: "b", Secret: strings.Repeat("b", 20)}}})
	as := func(name string) {
		c.header = map[string]string{"Authorization": "Bearer " + strings.Repeat(name, 20)}
	}
	as("a")
	var last string // receipt
	chat := `"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 7`
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model": "demo", "n": 2, "temperature": 1, "seed": 3, ` + chat + `}`,
		"/v1/completions":      `{"model": "demo", "prompt": "The sky is", "max_tokens": 5, "stream": true}`,
		"/v1/messages":         `{"model": "demo", ` + chat + `}`,
		"/api/chat":            `{"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 4}}`,
	} {
		status, answer, header := c.do("POST", path, body)
		id := header.Get(receiptHeader)
		if status != 200 || id == "" || id != header.Get("X-Request-Id") {
			t.Fatalf("%s: %d, receipt %q: %s", path, status, id, answer)
		}
		for _, query := range []string{"", "?choice=1"} {
			status, text, _ := c.do("GET", "/v1/receipts/"+id+query, "")
			if query != "" && !strings.Contains(body, `"n": 2`) {
				if status != 404 {
					t.Errorf("%s: a second receipt: %d %s", path, status, text)
				}
				continue
			}
			r, err := karat.ReadReceipt(strings.NewReader(text))
			if status != 200 || err != nil {
				t.Fatalf("%s: %d, %v", path, status, err)
			}
			v, err := m.Verify(t.Context(), r, karat.VerifyOptions{Key: public})
			if err != nil || !v.Verified() || !v.Draws || v.Tokens < 1 {
				t.Errorf("%s%s: %+v, %v", path, query, v, err)
			}
			status, said, _ := c.do("POST", "/v1/receipts/verify", `{"model": "demo", "receipt": `+text+`}`)
			if status != 200 || !strings.Contains(said, `"verified":true`) || !strings.Contains(said, `"signed":true`) {
				t.Errorf("%s%s is verified so: %d %s", path, query, status, said)
			}
			last = text
		}
		as("b")
		if status, _, _ := c.do("GET", "/v1/receipts/"+id, ""); status != 404 {
			t.Errorf("the receipt of another key: %d", status)
		}
		as("a")
	}
	for body, want := range map[string]string{
		`{"receipt": ` + strings.Replace(last, `"karat `, `"other `, 1) + `}`: `"kind":"tampered"`,
		`{"receipt": {"receipt": 1}}`:                                         "no receipt",
		`{"receipt": "x"}`:                                                    "no receipt",
		`{}`:                                                                  "Missing required parameter: 'receipt'",
		`{"receipt": ` + last + `, "key": 1}`:                                 "key",
		`{"model": "nobody", "receipt": ` + last + `}`:                        "nobody",
		`{"receipt": ` + last[:len(last)/2]:                                   "JSON",
		`{"receipt": ` + strings.Replace(last[:strings.Index(last, `,"key":`)], `"prompt":[`, `"prompt":[`+strings.Repeat("1,", 5000), 1) + "}" + `}`: "the context holds 512",
	} {
		if _, said, _ := c.do("POST", "/v1/receipts/verify", body); !strings.Contains(said, want) || strings.Contains(said, `"verified":true`) {
			t.Errorf("%.60s is verified so: %s", body, said)
		}
	}
	none := serve(t, m, Options{})
	_, _, header := none.do("POST", "/v1/completions", `{"prompt": "The sky is", "max_tokens": 1}`)
	if status, text, _ := none.do("GET", "/v1/receipts/x", ""); status != 404 || !strings.Contains(text, "--receipts") || header.Get(receiptHeader) != "" {
		t.Errorf("a server without receipts: %d %s", status, text)
	}
}

// TestReceiptBounds: the oldest receipts go first.
func TestReceiptBounds(t *testing.T) {
	var k receipts
	for i := range receiptMost + 1 {
		k.put("a", receiptName{"x", i}, []byte{1})
	}
	if k.get("a", receiptName{"x", 0}) != nil || k.get("a", receiptName{"x", 1}) == nil || k.get("b", receiptName{"x", 1}) != nil {
		t.Error("not the oldest one went")
	}
	k.put("a", receiptName{"y", 0}, make([]byte, receiptBytes))
	if of := k.of["a"]; len(of.all) != 1 || len(of.order) != 1 || of.bytes != receiptBytes {
		t.Errorf("%d receipts of %d bytes", len(of.all), of.bytes)
	}
}

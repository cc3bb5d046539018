package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"strings"
	"testing"
)

// signed is a receipt of two tokens with its key.
func signed(t testing.TB) *Receipt {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Receipt{Version: Version, Program: "karat", Numerics: Numerics{Precision: "fast", KV: "f16"}, Prompt: []int32{1, 2}, End: "end",
		Model: Model{Types: map[string]int{"F32": 2}, Weights: sha256.Sum256(nil)}}
	r.Add(3, []float32{1, 2})
	r.Add(4, []float32{1, 3})
	if err := r.Sign(key); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSignature: every change of a field breaks the signature, and writing and reading does not.
func TestSignature(t *testing.T) {
	r := signed(t)
	b, err := r.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(bytes.NewReader(b))
	if err != nil || again.CheckSignature() != nil {
		t.Fatal(err, again.CheckSignature())
	}
	for name, edit := range map[string]func(r *Receipt){
		"program":  func(r *Receipt) { r.Program += "2" },
		"weights":  func(r *Receipt) { r.Model.Weights[0]++ },
		"types":    func(r *Receipt) { r.Model.Types = map[string]int{"F32": 3} },
		"numerics": func(r *Receipt) { r.Numerics.KV = "f32" },
		"seed":     func(r *Receipt) { r.Sampling.Seed++ },
		"template": func(r *Receipt) { r.TemplateHash[3]++ },
		"prompt":   func(r *Receipt) { r.Prompt = []int32{1, 3} },
		"answer":   func(r *Receipt) { r.Answer = []int32{3, 5} },
		"logits":   func(r *Receipt) { r.Logits = append([]byte{9}, r.Logits[1:]...) },
		"end":      func(r *Receipt) { r.End = "stop" },
		"key":      func(r *Receipt) { r.Key = append([]byte{9}, r.Key[1:]...) },
		"no key":   func(r *Receipt) { r.Key = nil },
		"short":    func(r *Receipt) { r.Signature = r.Signature[1:] },
	} {
		changed := *again
		if edit(&changed); changed.CheckSignature() != ErrTampered {
			t.Errorf("%s: %v", name, changed.CheckSignature())
		}
	}
	again.Key, again.Signature = nil, nil
	if again.CheckSignature() != ErrUnsigned {
		t.Error(again.CheckSignature())
	}
}

// TestRoot has the roots of small trees by hand.
func TestRoot(t *testing.T) {
	a, b, c := Leaf([]byte("a")), Leaf([]byte("b")), Leaf([]byte("c"))
	node := func(x, y Hash) Hash { return sha256.Sum256(append(append([]byte{1}, x[:]...), y[:]...)) }
	if Root([]Hash{a}) != a || Root([]Hash{a, b}) != node(a, b) || Root([]Hash{a, b, c}) != node(node(a, b), c) ||
		Root([]Hash{a, b, c, a, b}) != node(node(node(a, b), node(c, a)), b) {
		t.Error("another root")
	}
	if a == sha256.Sum256([]byte("a")) || Root(nil) != sha256.Sum256(nil) {
		t.Error("a leaf without its byte, or no leaves")
	}
}

// TestRead names what is wrong.
func TestRead(t *testing.T) {
	b, err := signed(t).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	none := strings.NewReplacer(`"answer":[3,4]`, `"answer":[]`, `"logits":"`, `"logits":"","l":"`).Replace(string(b))
	none = strings.Replace(none, none[strings.Index(none, `,"l":"`):strings.Index(none, `,"key"`)], "", 1)
	for text, want := range map[string]string{"": "empty", string(b[:40]): "early", none: "answer: no tokens"} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, c := range [][3]string{
		{`"receipt":1`, `"receipt":2`, "version"}, {`"prompt":[1,2]`, `"prompt":[]`, "prompt"},
		{`"answer":[3,4]`, `"answer":[3]`, "logits"}, {`"program"`, `"pogrom"`, "pogrom"},
		{`"kv":"f16"`, `"kv":"","gpu":true`, "logprobs"},
		{`"fast"`, `"f16"`, "precision"}, {`"kv":"f16"`, `"kv":""`, "keys"}, {`"key"`, `"logprobs":[-1],"key"`, "of a CPU"},
		{`"end"`, `"distance":-1,"end"`, "distance"},
		{`"weights":"e`, `"weights":"E`, "lower"}, {`"weights":"`, `"weights":"00`, "66"}, {`}` + "\n", `}1`, "behind"},
		{`"answer":[3,4]`, `"answer":[9,9],"ANSWER":[3,4]`, "ANSWER"}, {`"answer"`, `"Answer"`, "Answer"},
		{`"answer":[3,4]`, `"answer":[9,9],"answer":[3,4]`, "answer"}, {`"weights"`, `"Weights"`, "Weights"},
		{`"types":{"F32":2}`, `"types":{"F32":9},"types":{"F32":2}`, "types"}, {`"F32":2`, `"F32":9,"F32":2`, "F32"},
		{`"end":"end"`, `"end":"End"`, "end"}, {`[3,4]`, `[3,-4]`, "negative"}, {`[1,2]`, `[-1,2]`, "negative"},
		{`"end"`, `"distance":0.5,"end"`, "distance"},
	} {
		text := strings.Replace(string(b), c[0], c[1], 1)
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s: %v", c[1], err)
		}
	}
}

// FuzzRead: what is read can be checked and written, and is read alike again.
func FuzzRead(f *testing.F) {
	b, err := signed(f).Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		signature := r.CheckSignature()
		for i := range r.Answer {
			_ = r.DigestAt(i)
		}
		if b, err = r.Bytes(); err != nil {
			t.Fatal(err)
		}
		again, err := Read(bytes.NewReader(b))
		if err != nil || again.CheckSignature() != signature {
			t.Fatalf("%v, %v, want %v", err, again.CheckSignature(), signature)
		}
	})
}

package gguf

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	file "github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// readerOf reads the keys of a family's file.
func readerOf(t *testing.T, f *family.Family, all ...file.KeyValue) *reader {
	t.Helper()
	c := settings.New("x")
	c.Arch, c.Family = f.Name, f
	var b bytes.Buffer
	if err := file.Write(&b, all, nil); err != nil {
		t.Fatal(err)
	}
	in, err := file.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return &reader{Model: c, meta: meta{metadata: in.Metadata, of: f, used: map[string]bool{}}, set: &tensor.Set{}}
}

// TestProduct: what follows from a family's settings follows from those that are products, too.
func TestProduct(t *testing.T) {
	var seen any
	f := &family.Family{Name: "fam", Keys: []family.Key{
		{Setting: "each", GGUF: "all", Kind: family.Product, Of: "count"}, // its divisor comes later
		{Setting: "count", GGUF: "count"},
	}, FromGGUF: func(s family.Settings, _ *family.File) { seen = s["each"] }}
	r := readerOf(t, f, file.KeyValue{Key: "fam.all", Value: uint32(12)}, file.KeyValue{Key: "fam.count", Value: uint32(4)})
	if r.readFamilyKeys(); seen != 3. || len(r.errs) > 0 {
		t.Errorf("FromGGUF has seen %v; %v", seen, r.errs)
	}
}

// TestListed: errors of several keys come in one order.
func TestListed(t *testing.T) {
	for range 20 {
		r := readerOf(t, &family.Family{Name: "fam"}, file.KeyValue{Key: "fam.attention.head_count_kv", Value: []int32{1, 0}},
			file.KeyValue{Key: "fam.feed_forward_length", Value: []int32{0, 1}})
		r.Values["num_hidden_layers"] = 3.
		r.readListed()
		if err := errors.Join(r.errs...); err == nil || !strings.Contains(err.Error(), "head_count_kv has 2 values for 3 layers\nkey fam.feed_forward_length has") {
			t.Fatal(err)
		}
	}
}

// TestCausal: a text is read both ways by models of families that do, and no other's file may say so.
func TestCausal(t *testing.T) {
	never := []family.Key{{GGUF: "attention.causal", Kind: family.Never}}
	for _, c := range []struct {
		f    family.Family
		v    bool
		want any
	}{{family.Family{Name: "fam"}, false, false}, {family.Family{Name: "fam"}, true, nil}, {family.Family{Name: "fam", Keys: never}, false, nil}} {
		r := readerOf(t, &c.f, file.KeyValue{Key: "fam.attention.causal", Value: c.v})
		if r.readPresence(); r.Values["is_causal"] != c.want {
			t.Errorf("%v of %d keys: is_causal %v", c.v, len(c.f.Keys), r.Values["is_causal"])
		}
	}
}

// TestShortest recovers what a configuration said before it was float32.
func TestShortest(t *testing.T) {
	for _, want := range []float64{1e-6, 1e-5, 0.15811388, 1e6, 500000, 30, 8} {
		if got := shortest(float32(want)); got != want {
			t.Errorf("%v became %v", want, got)
		}
	}
}

// TestGeneration reads a recommendation. A top_k below 0 is none, in llama.cpp and vLLM.
func TestGeneration(t *testing.T) {
	for topK, want := range map[int32]settings.Generation{
		-1: {Sample: true, Temperature: 0.5}, 40: {Sample: true, Temperature: 0.5, TopK: 40},
	} {
		r := readerOf(t, &family.Family{Name: "fam"}, file.KeyValue{Key: "general.sampling.temp", Value: float32(0.5)},
			file.KeyValue{Key: "general.sampling.top_k", Value: topK})
		if got, err := Generation(r.metadata); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %+v, %v, want %+v", topK, got, err, want)
		}
	}
	r := readerOf(t, &family.Family{Name: "fam"}, WriteGeneration(settings.Generation{Suppress: settings.IDs{3, 7}})...)
	if got, err := Generation(r.metadata); err != nil || !reflect.DeepEqual(got.Suppress, settings.IDs{3, 7}) {
		t.Errorf("suppressed: %v, %v", got.Suppress, err)
	}
	r = readerOf(t, &family.Family{Name: "fam"}, file.KeyValue{Key: "tokenizer.ggml.suppress_tokens", Value: []int32{-1, 9}})
	if got, err := Generation(r.metadata); err != nil || !reflect.DeepEqual(got.Suppress, settings.IDs{9}) {
		t.Errorf("suppressed: %v, %v", got.Suppress, err)
	}
	r = readerOf(t, &family.Family{Name: "fam"}, file.KeyValue{Key: "tokenizer.ggml.suppress_tokens", Value: "9"})
	if _, err := Generation(r.metadata); err == nil {
		t.Error("suppressed tokens that are a text are no error")
	}
	r = readerOf(t, &family.Family{Name: "fam"}, file.KeyValue{Key: "general.sampling.temp", Value: float32(-1)})
	if _, err := Generation(r.metadata); err == nil {
		t.Error("a temperature below 0 is no error")
	}
}

// TestLayersBehind: layers that predict further tokens are no layers of a model that lacks them, where they have tensors.
func TestLayersBehind(t *testing.T) {
	for last, want := range map[string]int{"blk.2.attn_q": 3, "blk.2.nextn.eh_proj": 2} {
		r := readerOf(t, &family.Family{Name: "fam"}, file.KeyValue{Key: "fam.nextn_predict_layers", Value: uint32(1)})
		r.Values["num_hidden_layers"] = 3.
		r.set.Names = append(r.set.Names, "blk.1.attn_q", "blk.2.attn_k", last)
		r.readNextLayers()
		if n := r.Values.Int("num_hidden_layers"); n != want || len(r.set.Names) != want*2-3 {
			t.Errorf("%s: %d layers, tensors %v", last, n, r.set.Names)
		}
	}
}

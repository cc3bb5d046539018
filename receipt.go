package karat

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/receipt"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/tensor"
)

// Receipt says how one answer was made: hashes of weights, settings and chat template, the ids of prompt and answer,
// the sampling, and a hash of the logits behind each token. Anybody with the model computes the answer again with
// Model.Verify. docs/receipts.md says what a receipt proves.
type Receipt struct {
	r     *receipt.Receipt
	begin func(ctx context.Context, s *Session, prompt []int32, from Sampling, o *GenerateOptions) error
}

// NewReceipt returns an empty receipt for one request of m (GenerateOptions.Receipt). The first receipt of a model
// reads all weights.
func (m *Model) NewReceipt() *Receipt {
	r := &Receipt{r: &receipt.Receipt{Version: receipt.Version, Program: "karat " + Version()}}
	r.begin = func(ctx context.Context, s *Session, prompt []int32, from Sampling, o *GenerateOptions) (err error) {
		switch {
		case len(r.r.Prompt) > 0:
			return errors.New("the receipt has an answer already, take a new one for each request")
		case o.Hooks != nil:
			return errors.New("a receipt of an answer with hooks: nobody could compute it again")
		}
		if r.r.Model, err = m.identify(ctx); err != nil {
			return err
		}
		n := m.opened.Numerics
		r.r.Numerics = receipt.Numerics{Precision: n.Precision, KV: n.KV, GPU: n.GPU > 0}
		if n.GPU > 0 {
			r.r.Distance = gpuDistance
		}
		blend, err := m.blend(o.Adapters)
		if err != nil {
			return err
		}
		if blend != nil {
			r.r.Adapters, r.r.AdaptersHash = m.factors(o.Adapters), sha256.Sum256([]byte(blend.ID))
		}
		if o.Grammar != nil {
			r.r.Form = &receipt.Form{Kind: "other"}
			if o.Grammar.kind != "" {
				r.r.Form = &receipt.Form{Kind: o.Grammar.kind, Source: o.Grammar.source}
			}
		}
		r.r.Sampling, r.r.Prompt = noted(from, s.seed), slices.Clone(prompt)
		return nil
	}
	return r
}

// gpuDistance bounds the difference of log-probabilities between GPUs and the CPU. (docs/webgpu.md: KL at most 1e-6)
const gpuDistance = 1e-2

// factors returns the factors of a request's adapters by their names.
func (m *Model) factors(chosen map[string]float64) map[string]float64 {
	if chosen != nil {
		return chosen
	}
	all := map[string]float64{}
	for _, p := range m.opened.Adapters {
		all[p.Name] = p.By
	}
	return all
}

// noted returns how tokens are chosen as a receipt has it.
func noted(s Sampling, seed uint64) receipt.Sampling {
	n := receipt.Sampling{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		RepeatPenalty: s.RepeatPenalty, RepeatLast: s.RepeatLast, PresencePenalty: s.PresencePenalty,
		FrequencyPenalty: s.FrequencyPenalty, Seed: seed}
	for id, b := range s.LogitBias {
		if math.IsInf(float64(b), -1) {
			n.Banned = append(n.Banned, int32(id))
			continue
		}
		if n.Bias == nil {
			n.Bias = map[int32]float64{}
		}
		n.Bias[int32(id)] = float64(b)
	}
	slices.Sort(n.Banned)
	return n
}

// options returns a receipt's choice of tokens as the sampler has it.
func options(n *receipt.Sampling) sample.Options {
	o := sample.Options{Temperature: n.Temperature, TopK: n.TopK, TopP: n.TopP, MinP: n.MinP,
		RepeatPenalty: n.RepeatPenalty, RepeatLast: n.RepeatLast, PresencePenalty: n.PresencePenalty,
		FrequencyPenalty: n.FrequencyPenalty, Seed: n.Seed}
	if len(n.Bias)+len(n.Banned) > 0 {
		o.LogitBias = map[int]float32{}
	}
	for id, b := range n.Bias {
		o.LogitBias[int(id)] = float32(b)
	}
	for _, id := range n.Banned {
		o.LogitBias[int(id)] = float32(math.Inf(-1))
	}
	return o
}

// add notes a token.
func (r *Receipt) add(t *engine.Token) error {
	r.r.Add(t.ID, t.Logits)
	if r.r.Numerics.GPU {
		of, _, err := sample.Logprobs(t.Logits, []int{t.ID}, 0)
		if err != nil {
			return err
		}
		r.r.Logprobs = append(r.r.Logprobs, of[0].Logprob)
	}
	if t.Stop != "" {
		r.r.End = string(t.Stop)
	}
	return nil
}

// RenderedBy notes the chat template that rendered a prompt given as ids, "" for m's own. Chat notes it itself.
func (r *Receipt) RenderedBy(m *Model, template string) { r.r.TemplateHash = m.templateHash(template) }

// ReadReceipt reads a receipt's text, at most 64 MiB.
func ReadReceipt(from io.Reader) (*Receipt, error) {
	r, err := receipt.Read(from)
	if err != nil {
		return nil, fmt.Errorf("no receipt: %w", err)
	}
	return &Receipt{r: r}, nil
}

// Sign signs the receipt of a finished answer. A later change breaks the signature.
func (r *Receipt) Sign(key ed25519.PrivateKey) error { return r.r.Sign(key) }

// Bytes returns the receipt as JSON, with a line end: about 20 bytes a token.
func (r *Receipt) Bytes() ([]byte, error) { return r.r.Bytes() }

// Signer returns the public key in the receipt, nil for none. Verify says whether the key signed the receipt.
func (r *Receipt) Signer() ed25519.PublicKey { return r.r.Key }

// Numerics returns the precision and the type of keys and values with which a model can verify the receipt: the CPU's
// float32 for an answer of a GPU.
func (r *Receipt) Numerics() (Precision, KVType) {
	if r.r.Numerics.GPU {
		return Float32, ""
	}
	if r.r.Numerics.Precision == string(Float64) {
		return Float64, ""
	}
	kv := KVType(r.r.Numerics.KV)
	if kv == KVQ8 {
		kv = KVQ8Forced
	}
	return Precision(r.r.Numerics.Precision), kv
}

// Adapters returns the names of the adapters of the answer.
func (r *Receipt) Adapters() (names []string) {
	for name := range r.r.Adapters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Tokens returns the numbers of tokens of the prompt and of the answer.
func (r *Receipt) Tokens() (prompt, answer int) { return len(r.r.Prompt), len(r.r.Answer) }

// identify returns the names of m's parts. The first call reads all weights.
func (m *Model) identify(ctx context.Context) (receipt.Model, error) {
	m.parts.mu.Lock()
	defer m.parts.mu.Unlock()
	if m.parts.found != nil {
		return *m.parts.found, nil
	}
	c, t := m.opened.Checkpoint, m.opened.Tokenizer
	tensors := slices.Clone(c.Tensors())
	slices.SortFunc(tensors, func(a, b tensor.Tensor) int { return strings.Compare(a.Name, b.Name) })
	id := receipt.Model{Name: filepath.Base(c.Path), Types: map[string]int{}}
	leaves, errs, next := make([]receipt.Hash, len(tensors)), make([]error, len(tensors)), make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				h := sha256.New()
				if errs[i] = ctx.Err(); errs[i] == nil {
					errs[i] = model.HashTensor(h, &tensors[i])
				}
				leaves[i] = receipt.Leaf(h.Sum(nil))
			}
		})
	}
	for i := range tensors {
		id.Types[tensors[i].DType.String()]++
		next <- i
	}
	close(next)
	wg.Wait()
	if err := cmp.Or(ctx.Err(), errors.Join(errs...)); err != nil {
		return id, err
	}
	id.Weights = receipt.Root(leaves)
	id.Settings = sha256.Sum256(fmt.Appendf(nil, "%s %v", c.Family.Name, c.Values))
	h := sha256.New()
	for i := range t.VocabSize() {
		text, kind := t.Token(i)
		fmt.Fprintf(h, "%q %d\n", text, kind)
	}
	id.Tokens = receipt.Hash(h.Sum(nil))
	m.parts.found = &id
	return id, nil
}

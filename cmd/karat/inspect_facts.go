package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/check"
	"github.com/karat-run/karat/internal/checkpoint"
	modelsettings "github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tokenizer"
)

// memoryPerToken lists the memory of a further token in g's stores: up to the smallest window all of them grow, beyond
// it the stores with a longer reach, and so on.
func memoryPerToken(g *graph.Graph) []tokenMemory {
	stores := g.KVs()
	var windows []int
	for _, s := range stores {
		if s.Window > 0 && !slices.Contains(windows, s.Window) {
			windows = append(windows, s.Window)
		}
	}
	slices.Sort(windows)
	list := make([]tokenMemory, len(windows)+1)
	for i := range list {
		if i < len(windows) {
			list[i].UpTo = windows[i]
		}
		for _, s := range stores {
			if s.Window == 0 || i < len(windows) && s.Window >= windows[i] {
				list[i].F16 += backend.PositionBytes(s, 2)
				list[i].F32 += backend.PositionBytes(s, 4)
				list[i].Q8 += backend.OlderBytes(g, s, 2)
			}
		}
	}
	return list
}

// latentFacts are the stores with a latent for each position, in place of keys and values.
type latentFacts struct {
	Layers  int `json:"layers"`
	Numbers int `json:"numbers"` // of a token in a layer
	Twice   int `json:"twice"`   // stores kept a second time by the CPU
}

// latents returns nil for a model without latents. All stores of a model are alike.
func latents(stores []*graph.KV) *latentFacts {
	var l *latentFacts
	for _, s := range stores {
		if s.Latent {
			if l == nil {
				l = &latentFacts{Numbers: s.Heads * s.Dim, Twice: s.Heads * s.Values()}
			}
			l.Layers++
		}
	}
	return l
}

// setTensors lists the tensors, and the share of each type in the model.
func (r *report) setTensors(m *checkpoint.Checkpoint) {
	places := tensorPlaces(m)
	byType := map[string]*typeUse{}
	for _, t := range m.Tensors() {
		facts := tensorFacts{Name: t.Name, Type: t.DType.String(), Shape: t.Shape, Bytes: int64(len(t.Data))}
		if p, ok := places[t.Name]; ok {
			facts.File, facts.Offset = p.file, &p.offset
		}
		r.Tensors = append(r.Tensors, facts)
		use := byType[facts.Type]
		if use == nil {
			use = &typeUse{Type: facts.Type}
			byType[facts.Type] = use
		}
		use.Tensors++
		use.Parameters += int64(t.Shape.Size())
		use.Bytes += facts.Bytes
		r.Parameters += int64(t.Shape.Size())
	}
	for _, use := range byType {
		r.Types = append(r.Types, *use)
	}
	slices.SortFunc(r.Types, func(a, b typeUse) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type))
	})
}

// place is where a tensor's data begins.
type place struct {
	file   string
	offset int64
}

// tensorPlaces finds the tensors of a GGUF file. Checkpoints have no places, since loaded models have no use for them.
func tensorPlaces(m *checkpoint.Checkpoint) map[string]place {
	if m.Format != checkpoint.GGUF {
		return nil
	}
	var f *gguf.File
	var err error
	if m.Path == demoName {
		f, err = gguf.Parse(demo)
	} else {
		f, err = gguf.Open(m.Path)
	}
	if err != nil { // the file has gone since its opening
		return nil
	}
	defer f.Close()
	places := map[string]place{}
	for _, t := range f.Tensors() {
		if path, offset, ok := f.Place(t.Name); ok {
			places[t.Name] = place{path, offset}
		}
	}
	return places
}

// setTokenizer describes the tokenizer.
func (r *report) setTokenizer(ctx context.Context, t *tokenizer.Tokenizer, ends []int) {
	facts := &tokenizerFacts{Vocabulary: t.VocabSize(), AddsBOS: t.AddsBOS()}
	facts.BOS, facts.EOS = named(t, t.BOS), named(t, t.EOS)
	for _, id := range ends {
		piece, _ := t.Token(id)
		facts.End = append(facts.End, tokenName{id, piece})
	}
	r.Tokenizer = facts
	if r.Template != nil { // a broken template is a matter for check
		r.Template.LostMarkers, _ = check.LostMarkers(ctx, r.Template.Text, t)
	}
}

func named(t *tokenizer.Tokenizer, get func() (int, bool)) *tokenName {
	id, ok := get()
	if !ok {
		return nil
	}
	piece, _ := t.Token(id)
	return &tokenName{id, piece}
}

// describeTemplate returns nil if there is no template.
func describeTemplate(text string) *templateFacts {
	if text == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(text))
	return &templateFacts{SHA256: hex.EncodeToString(sum[:]), Bytes: len(text), Text: text}
}

// recommended returns the publisher's recommendation for sampling, by the names of generation_config.json; nil for
// greedy.
func recommended(g modelsettings.Generation) map[string]float64 {
	s := map[string]float64{}
	for name, v := range map[string]float64{"temperature": g.Temperature, "top_k": float64(g.TopK), "top_p": g.TopP,
		"min_p": g.MinP} {
		if g.Sample && v != 0 {
			s[name] = v
		}
	}
	if g.Repeat != 0 {
		s["repetition_penalty"] = g.Repeat
	}
	return s
}

package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/jsonerr"
)

// Generation is the publisher's recommendation. The zero value recommends nothing.
type Generation struct {
	Sample      bool
	Temperature float64
	TopK        int
	TopP        float64
	MinP        float64
	Repeat      float64
	End         IDs     // ids that end a turn
	Suppress    IDs     // ids never to be generated
	Unapplied   []Entry // settings that would change answers
}

// unapplied lists settings of generation_config.json that change answers and that Karat does not apply, with their
// neutral values beside the usual ones (GenerationConfig in transformers 5). Lengths are the request's matter.
var unapplied = map[string]float64{
	"num_beams": 1, "penalty_alpha": 0, "typical_p": 1, "epsilon_cutoff": 0, "eta_cutoff": 0, "top_h": 1,
	"no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1,
	"presence_penalty": 0, "frequency_penalty": 0, "guidance_scale": 1, "min_length": 0, "min_new_tokens": 0,
	"bad_words_ids": 0, "force_words_ids": 0, "sequence_bias": 0, "stop_strings": 0, "begin_suppress_tokens": 0,
	"forced_bos_token_id": 0, "forced_eos_token_id": 0, "exponential_decay_length_penalty": 0,
	"watermarking_config": 0, "token_healing": 0,
}

// UnmarshalJSON reads a file over the files before it. A whole number may have any spelling: 50.0 is 50. A value out of
// its setting's range recommends nothing. Without do_sample a temperature, top_p or min_p recommends sampling. A
// temperature or top_p of 0 is greedy.
func (g *Generation) UnmarshalJSON(b []byte) error {
	var x struct {
		Sample      *bool    `json:"do_sample"`
		Temperature *float64 `json:"temperature"`
		TopK        *float64 `json:"top_k"`
		TopP        *float64 `json:"top_p"`
		MinP        *float64 `json:"min_p"`
		Repeat      *float64 `json:"repetition_penalty"`
		End         IDs      `json:"eos_token_id"`
		Suppress    IDs      `json:"suppress_tokens"`
	}
	x.End, x.Suppress = g.End, g.Suppress // unless the file has others, or null
	var all map[string]json.RawMessage
	if err := cmp.Or(json.Unmarshal(b, &x), json.Unmarshal(b, &all)); err != nil {
		return jsonerr.Plain(err, "")
	}
	g.End, g.Suppress = x.End, x.Suppress
	for _, key := range slices.Sorted(maps.Keys(unapplied)) {
		var v any
		if raw := all[key]; raw != nil && json.Unmarshal(raw, &v) == nil && !Neutral(v) && v != unapplied[key] {
			g.Unapplied = append(g.Unapplied, Entry{key, family.Show(v)})
		}
	}
	topK, samples, greedy := float64(g.TopK), false, false
	for _, n := range []struct {
		key       string
		given, to *float64
		least     float64
		most      float64
		off       float64
	}{
		{"temperature", x.Temperature, &g.Temperature, 0, 100, 1},
		{"top_k", x.TopK, &topK, -1, math.MaxInt32, 0}, // -1 is none, as in vLLM
		{"top_p", x.TopP, &g.TopP, 0, 1, 1},
		{"min_p", x.MinP, &g.MinP, 0, 1, 0},
		{"repetition_penalty", x.Repeat, &g.Repeat, 0.01, 100, 1},
	} {
		switch v := n.given; {
		case v == nil:
			continue
		case *v < n.least || *v > n.most:
			*n.to = 0
			g.Unapplied = append(g.Unapplied, Entry{n.key, family.Show(*v)})
			continue
		case n.to == &topK && *v != math.Trunc(*v):
			return fmt.Errorf("top_k: %v, want an integer", *v)
		}
		*n.to = *n.given
		samples = samples || *n.to != n.off && n.to != &topK && n.to != &g.Repeat // top_k is 50 in old files
		greedy = greedy || *n.to == 0 && n.off == 1
	}
	g.TopK = int(max(topK, 0))
	g.Sample = (*cmp.Or(x.Sample, &g.Sample) || x.Sample == nil && samples) && !greedy
	return nil
}

// IDs is a list of ids, in JSON also a single id.
type IDs []int

// UnmarshalJSON implements json.Unmarshaler. An id below 0 stands for none.
func (d *IDs) UnmarshalJSON(b []byte) error {
	var one *float64
	var list []float64
	if json.Unmarshal(b, &list) != nil {
		if json.Unmarshal(b, &one) != nil {
			return fmt.Errorf("ids of tokens: %.40s, want an integer, or a list of them", b)
		}
		list = []float64{*one} // null is a list
	}
	*d = nil
	for _, id := range list {
		if id != float64(int32(id)) {
			return fmt.Errorf("ids of tokens: %v, want an integer, or a list of them", id)
		}
		if id >= 0 {
			*d = append(*d, int(id))
		}
	}
	return nil
}

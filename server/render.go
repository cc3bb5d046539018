package server

import "cmp"

// rendered is a prompt in tokens with the answer's options, in the form of vLLM's GenerateRequest.
type rendered struct {
	ID       string         `json:"request_id"`
	Tokens   []int          `json:"token_ids"`
	Features *features      `json:"features"` // of pictures
	Sampling map[string]any `json:"sampling_params"`
	Model    string         `json:"model"`
	Stream   bool           `json:"stream"`
}

// features are the hashes and places of pictures, under "image".
type features struct {
	Hashes map[string][]string   `json:"mm_hashes"`
	Places map[string][]tokenRun `json:"mm_placeholders"`
}

// tokenRun is a run of tokens.
type tokenRun struct {
	Offset int `json:"offset"`
	Length int `json:"length"`
}

// renderText answers POST /v1/completions/render: the tokens of each prompt.
func renderText(x *exchange) any {
	x.takesPlace = true
	return x.replyLarge(renderAll(readCompletion(x), "cmpl-"))
}

// renderChat answers POST /v1/chat/completions/render.
func renderChat(x *exchange) any {
	x.takesPlace, x.counts = true, true
	return x.replyLarge(renderAll(readChat(x), "chatcmpl-")[0])
}

// renderAll returns the prompts of r, with ids of a kind.
func renderAll(r *request, id string) (all []rendered) {
	r.check()
	s, seen := r.sampling, (*features)(nil)
	if r.turn.shows() {
		seen = &features{map[string][]string{}, map[string][]tokenRun{}}
		for _, p := range r.turn.places {
			seen.Hashes["image"] = append(seen.Hashes["image"], p.Hash)
			seen.Places["image"] = append(seen.Places["image"], tokenRun{p.Offset, p.Length})
		}
	}
	for _, ids := range r.prompts {
		limit, _ := r.most(ids)
		o := map[string]any{"n": r.n, "temperature": s.Temperature, "top_p": cmp.Or(s.TopP, 1), "top_k": s.TopK,
			"min_p": s.MinP, "seed": *s.Seed, "stop": append([]string{}, r.stop...), "max_tokens": limit,
			"repetition_penalty": cmp.Or(s.RepeatPenalty, 1), "presence_penalty": s.PresencePenalty,
			"frequency_penalty": s.FrequencyPenalty, "logprobs": nil}
		if r.logprobs {
			o["logprobs"] = r.top
		}
		all = append(all, rendered{newID(id), ids, seen, o, r.asked.tuned.nameOf(r.model), r.reply.stream})
	}
	return all
}

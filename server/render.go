package server

import "cmp"

// rendered is a prompt in tokens with the answer's options, in the form of vLLM's GenerateRequest.
type rendered struct {
	ID       string         `json:"request_id"`
	Tokens   []int          `json:"token_ids"`
	Features any            `json:"features"` // of pictures: null
	Sampling map[string]any `json:"sampling_params"`
	Model    string         `json:"model"`
	Stream   bool           `json:"stream"`
}

// renderText answers POST /v1/completions/render: the tokens of each prompt.
func renderText(x *exchange) any {
	x.takesPlace = true
	return x.replyLarge(renderAll(readCompletion(x), "cmpl-"))
}

// renderChat answers POST /v1/chat/completions/render.
func renderChat(x *exchange) any {
	x.takesPlace = true
	return x.replyLarge(renderAll(readChat(x), "chatcmpl-")[0])
}

// renderAll returns the prompts of r, with ids of a kind.
func renderAll(r *request, id string) (all []rendered) {
	r.check()
	s := r.sampling
	for _, ids := range r.prompts {
		limit, _ := r.most(ids)
		o := map[string]any{"n": r.n, "temperature": s.Temperature, "top_p": cmp.Or(s.TopP, 1), "top_k": s.TopK,
			"min_p": s.MinP, "seed": *s.Seed, "stop": append([]string{}, r.stop...), "max_tokens": limit,
			"repetition_penalty": cmp.Or(s.RepeatPenalty, 1), "presence_penalty": s.PresencePenalty,
			"frequency_penalty": s.FrequencyPenalty, "logprobs": nil}
		if r.logprobs {
			o["logprobs"] = r.top
		}
		all = append(all, rendered{newID(id), ids, nil, o, r.asked.tuned.nameOf(r.model), r.reply.stream})
	}
	return all
}

package sample

import (
	"fmt"
)

// Logprob is a token with the natural logarithm of its probability.
type Logprob struct {
	ID      int
	Logprob float64
}

// Logprobs returns the log-softmax of logits, in float64, at temperature 1 and before any option: of the tokens ids, in
// their order, and of the top likeliest tokens, likeliest first, of equal ones the lowest id. A token at -Inf has
// log-probability -Inf and is never among the likeliest, so best may be shorter than top.
func Logprobs(logits []float32, ids []int, top int) (of, best []Logprob, err error) {
	for _, id := range ids {
		if id < 0 || id >= len(logits) {
			return nil, nil, fmt.Errorf("token %d is outside the vocabulary of %d", id, len(logits))
		}
	}
	if top < 0 {
		return nil, nil, fmt.Errorf("the %d likeliest tokens: negative", top)
	}
	norm, err := logSumExp(logits)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		of = append(of, Logprob{id, float64(logits[id]) - norm})
	}
	for _, x := range likeliest(nil, logits, min(top, len(logits))) {
		best = append(best, Logprob{int(x.id), float64(x.logit) - norm})
	}
	return of, best, nil
}

// logSumExp returns the logarithm of the sum of e^x over logits.
func logSumExp(logits []float32) (float64, error) {
	best, err := argmax(logits)
	if err != nil {
		return 0, err
	}
	top := float64(logits[best])
	return top + log(sumExp(logits, top)), nil
}

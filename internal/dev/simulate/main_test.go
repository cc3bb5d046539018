package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// made returns the requests of a small trace.
func made(seed uint64) []request {
	return conversations(rand.New(rand.NewPCG(seed, 1)), shape{45, 600})
}

// TestShape wants the lengths and the sharing of Mooncake's conversation trace.
func TestShape(t *testing.T) {
	prompt, answer, shared := means(made(1))
	if math.Abs(prompt/12035-1) > 0.04 || math.Abs(answer/343-1) > 0.04 || math.Abs(shared-0.40) > 0.02 {
		t.Errorf("%.0f tokens of prompt, %.0f of answer, %.3f shared", prompt, answer, shared)
	}
}

// TestRules wants the rules that know prefixes to find more of them, no more than there are, a short queue to be shorter
// than a random one, and the same table for the same seed.
func TestRules(t *testing.T) {
	all := made(2)
	f := fleet{replicas: 100, prefill: 8000, decode: 2000, blocks: 1000}
	of := map[string]outcome{}
	for _, by := range rules {
		o := simulate(3, f, all, by)
		of[by.name] = o
	}
	if o, again := of[rules[3].name], simulate(3, f, all, rules[3]); again != o {
		t.Errorf("%+v, then %+v", o, again)
	}
	random, quiet, aware, hash := of["random"], of["least queue"], of["prefix-aware"], of["hash of the prefix"]
	if quiet.p99 >= random.p99 || quiet.busiest >= random.busiest || aware.p50 >= quiet.p50 || aware.p99 >= quiet.p99 {
		t.Errorf("%+v", of)
	}
	if aware.hits < 3*random.hits || hash.hits < 3*random.hits || hash.hits > 0.45 || hash.busiest < aware.busiest {
		t.Errorf("%+v", of)
	}
}

// TestCache wants the least recently used blocks to go first, those that follow others before them.
func TestCache(t *testing.T) {
	p, gone := replica{cache: map[int]int{}}, []int{}
	note := func(b int) { gone = append(gone, b) }
	for _, blocks := range [][]int{{0, 1, 2}, {0, 3}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 4}} {
		p.touch(blocks, 3, note)
	}
	if len(gone) != 2 || gone[0] != 2 || gone[1] != 3 || len(p.cache) != 3 {
		t.Errorf("gone are %v, there %v", gone, p.cache)
	}
}

// TestTrace wants a published file's requests, and copies that share the first block alone.
func TestTrace(t *testing.T) {
	all, err := readTrace(strings.NewReader(`{"timestamp": 3000, "input_length": 900, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 0, "input_length": 1100, "output_length": 7, "hash_ids": [0, 1, 2]}
`), 2)
	if err != nil || len(all) != 4 || all[0].prompt != 1100 || all[3].at != 3.001 || all[1].blocks[1] != 3 || all[0].answer != 7 {
		t.Errorf("%+v %v", all, err)
	}
}

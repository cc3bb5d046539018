package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
)

// truths are requests of a kind each: greedy and by seeds, with penalties and log-probabilities, of one beginning and of
// different ones.
func truths() (all []string) {
	story := strings.Repeat("The sky is blue. ", 12)
	for i := range 16 {
		prompt := []string{"What is the capital of Egypt?", story + "What color is the sky?", story + "Write a function in Go.", "Hello"}[i%4]
		more := []string{`"temperature":0`, `"seed":11`, `"seed":12,"temperature":1.7,"top_p":0.8,"presence_penalty":0.5`, `"n":2,"seed":13,"top_k":9`}[i/4]
		all = append(all, fmt.Sprintf(`{"model":"demo","messages":[{"role":"user","content":%q}],"max_tokens":%d,"logprobs":true,"top_logprobs":3,%s}`, prompt, 10+i, more))
	}
	return all
}

// hash is that of all that an answer says.
func hash(answer string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(answer))) }

// TestTruthUnderLoad: the hash of an answer is the same alone and beside those of 16 clients, streamed or not, cold and from a
// prefix, by a server that was started again and by a model that was closed and loaded again.
func TestTruthUnderLoad(t *testing.T) {
	bodies := truths()
	load := func(ctx context.Context, memory int64) (*karat.Model, error) {
		return karat.Load(ctx, demoFile, karat.Options{Threads: 2, Context: 512, Parallel: 6, Memory: memory})
	}
	start := func() *client {
		return serveAll(t, Options{Requests: 1000, Loaded: 1, Models: []Model{{Name: "demo", Keep: -1, Load: load}, {Name: "other", Keep: -1, Load: load}}})
	}
	want := make([]string, len(bodies))
	alone := start()
	for i, body := range bodies {
		want[i] = hash(alone.said("/v1/chat/completions", body))
		if i%4 == 3 { // and what comes next finds nothing that is computed
			alone.post("/v1/completions", fmt.Sprintf(brief, "other"))
		}
	}
	different := map[string]bool{}
	for _, h := range want {
		different[h] = true
	}
	if len(different) < 12 { // a seed may choose what is likeliest
		t.Errorf("%d different answers test little", len(different))
	}
	for run := range 2 { // the second server is the first one started again
		c := start()
		for round := range 2 {
			var clients sync.WaitGroup
			for k := range 16 {
				clients.Go(func() {
					i := (k*5 + round*3) % len(bodies)
					body := bodies[i]
					if (k+round+run)%2 == 0 {
						body = strings.Replace(body, `{`, `{"stream":true,`, 1)
					}
					if got := hash(c.said("/v1/chat/completions", body)); got != want[i] {
						t.Errorf("server %d, round %d: %s has another answer", run, round, body)
					}
				})
			}
			clients.Wait()
		}
	}
}

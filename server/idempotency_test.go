package server

import "testing"

// TestIdempotencyKey: a request that is made again with its Idempotency-Key, of this server or of another, has the same answer, though no seed is given.
// Another key draws another answer, and a seed counts before the key.
func TestIdempotencyKey(t *testing.T) {
	one, other := serve(t, demo(t), Options{}), serve(t, demo(t), Options{})
	ask := func(c *client, key, more string) string {
		c.header = map[string]string{"Idempotency-Key": key}
		o := c.post("/v1/completions", `{"prompt":"A fact:","max_tokens":24,"temperature":2`+more+`}`)
		return o["choices"].([]any)[0].(map[string]any)["text"].(string)
	}
	first := ask(one, "a", "")
	if again, there := ask(one, "a", ""), ask(other, "a", ""); again != first || there != first {
		t.Errorf("%q, again %q, by another server %q", first, again, there)
	}
	if b := ask(one, "b", ""); b == first {
		t.Errorf("keys a and b: %q", b)
	}
	if a, b := ask(one, "", ""), ask(one, "", ""); a == b {
		t.Errorf("without a key twice %q", a)
	}
	if a, b := ask(one, "a", `,"seed":1`), ask(one, "b", `,"seed":1`); a != b || a == first {
		t.Errorf("a seed and keys: %q and %q", a, b)
	}
}

package server

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/adaptertest"
)

// TestLoraRoutes loads an adapter, asks it as a model, and unloads it under a request.
func TestLoraRoutes(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "allowed")
	for _, to := range []string{filepath.Join(folder, "style"), filepath.Join(dir, "secret")} {
		if err := os.MkdirAll(to, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := adaptertest.Write(t.Context(), to, demoFile, 0.5); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(folder, "out")); err != nil {
		t.Fatal(err)
	}
	c := serve(t, demo(t), Options{AdapterFolders: []string{folder}})
	load := func(want int, body string) string {
		t.Helper()
		status, answer, _ := c.do("POST", "/v1/load_lora_adapter", body)
		if status != want {
			t.Errorf("%s: %d, want %d: %s", body, status, want, answer)
		}
		return answer
	}
	ask := func(model string) map[string]any {
		t.Helper()
		var o map[string]any
		_, answer, _ := c.do("POST", "/v1/completions", `{"model":"`+model+`","prompt":"The sky","temperature":0,"max_tokens":8}`)
		if err := json.Unmarshal([]byte(answer), &o); err != nil {
			t.Fatal(answer)
		}
		return o
	}
	text := func(o map[string]any) any { return o["choices"].([]any)[0].(map[string]any)["text"] }
	plain := ask("demo")
	for _, body := range []string{`{"lora_name":"a","lora_path":"../secret"}`, `{"lora_name":"a","lora_path":"out"}`,
		`{"lora_name":"a","lora_path":"` + filepath.Join(dir, "secret") + `"}`, `{"lora_name":"a","lora_path":"."}`,
		`{"lora_name":"a","lora_path":"/etc/passwd"}`, `{"lora_name":"a","lora_path":"none"}`} {
		load(404, body)
	}
	for _, body := range []string{`{"lora_path":"style"}`, `{"lora_name":"a\u0085","lora_path":"style"}`, `{"lora_name":"a\u200b","lora_path":"style"}`, `{"lora_name":"a,b","lora_path":"style"}`,
		`{"lora_name":"demo","lora_path":"style"}`, `{"lora_name":"a","lora_path":"style","load_inplace":true}`} {
		load(400, body)
	}
	if said := load(200, `{"lora_name":"style","lora_path":"style"}`); !strings.HasPrefix(said, "Success: LoRA adapter 'style' added") {
		t.Error(said)
	}
	load(400, `{"lora_name":"style","lora_path":"`+filepath.Join(folder, "style")+`"}`)
	tuned := ask("style")
	if tuned["model"] != "style" || text(tuned) == text(plain) || tuned["system_fingerprint"] == plain["system_fingerprint"] {
		t.Errorf("%v\n%v", tuned, plain)
	}
	if _, models, _ := c.do("GET", "/v1/models", ""); !strings.Contains(models, `"parent":"demo"`) {
		t.Error(models)
	}
	if _, numbers, _ := c.do("GET", "/metrics", ""); !strings.Contains(numbers, `vllm:lora_requests_info{max_lora="64",running_lora_adapters="",waiting_lora_adapters=""} 1`) {
		t.Error(numbers)
	}
	if status, _, _ := c.do("POST", "/v1/embeddings", `{"model":"style","input":"a"}`); status != 400 {
		t.Errorf("embeddings of an adapter: %d", status)
	}

	// A request under way keeps its adapter, and the name with it.
	held := c.s.pool.borrow("style")
	if status, answer, _ := c.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"style"}`); status != 200 {
		t.Fatal(answer)
	}
	if o := ask("style"); o["error"] == nil {
		t.Errorf("a request names an adapter that is gone: %v", o)
	}
	load(409, `{"lora_name":"style","lora_path":"style"}`)
	c.s.pool.repay(held)
	load(200, `{"lora_name":"style","lora_path":"style"}`)
	if o := ask("style"); text(o) != text(tuned) {
		t.Errorf("loaded again it says %q, before %q", text(o), text(tuned))
	}
	if status, _, _ := c.do("POST", "/v1/unload_lora_adapter", `{"lora_name":"none"}`); status != 404 {
		t.Errorf("unloading an unknown adapter: %d", status)
	}
	if o := ask("demo"); text(o) != text(plain) {
		t.Errorf("without it: %q, before %q", text(o), text(plain))
	}
}

func TestNoLoraFolders(t *testing.T) {
	c := serve(t, demo(t), Options{})
	if status, answer, _ := c.do("POST", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"b"}`); status != 404 || !strings.Contains(answer, "--lora-folder") {
		t.Errorf("%d %s", status, answer)
	}
}

// TestRender wants the tokens that the prompt of an answer has.
func TestRender(t *testing.T) {
	c := serve(t, demo(t), Options{})
	var chat rendered
	_, answer, _ := c.do("POST", "/v1/chat/completions/render", `{"model":"demo","messages":[{"role":"user","content":"Hello"}],"max_tokens":3,"temperature":0.5,"stop":["x"],"seed":7}`)
	if err := json.Unmarshal([]byte(answer), &chat); err != nil {
		t.Fatal(answer)
	}
	_, count, _ := c.do("POST", "/v1/chat/completions/input_tokens", `{"model":"demo","messages":[{"role":"user","content":"Hello"}]}`)
	var n struct {
		Tokens int `json:"input_tokens"`
	}
	json.Unmarshal([]byte(count), &n)
	if o := chat.Sampling; len(chat.Tokens) != n.Tokens || n.Tokens == 0 || o["max_tokens"] != 3.0 || o["temperature"] != 0.5 || o["seed"] != 7.0 || chat.Model != "demo" {
		t.Errorf("%s, of %s", answer, count)
	}
	var texts []rendered
	_, answer, _ = c.do("POST", "/v1/completions/render", `{"model":"demo","prompt":["The sky","The sea"]}`)
	if err := json.Unmarshal([]byte(answer), &texts); err != nil || len(texts) != 2 || slices.Equal(texts[0].Tokens, texts[1].Tokens) {
		t.Error(answer)
	}
}

// TestLoraKeys wants adapters, which are for all callers, to be a right that a key among several must name.
func TestLoraKeys(t *testing.T) {
	folder := t.TempDir()
	if err := adaptertest.Write(t.Context(), folder, demoFile, 0.5); err != nil {
		t.Fatal(err)
	}
	const load, unload = `{"lora_name":"a","lora_path":"x"}`, `{"lora_name":"a"}`
	more := Key{Name: "more", Secret: "secret-of-more"}
	for name, x := range map[string]struct {
		keys []Key
		want int // 404 for a path that is none
	}{
		"a single key":  {[]Key{{Name: "one", Secret: secret}}, 404},
		"of several":    {[]Key{{Name: "one", Secret: secret}, more}, 403},
		"by its routes": {[]Key{{Name: "one", Secret: secret, Routes: []string{"/v1/*"}}, more}, 404},
	} {
		c := serve(t, demo(t), Options{AdapterFolders: []string{folder}, Keys: x.keys}).withKey(secret)
		for path, body := range map[string]string{"/v1/load_lora_adapter": load, "/v1/unload_lora_adapter": unload} {
			if status, answer, _ := c.do("POST", path, body); status != x.want {
				t.Errorf("%s: %s: %d %s, want %d", name, path, status, answer, x.want)
			}
		}
	}
}

// TestCacheOfKeys wants routers, who know nothing of keys, to find the pages of a single key's requests. Those of several
// keys are each key's own.
func TestCacheOfKeys(t *testing.T) {
	one, two := Key{Name: "one", Secret: secret}, Key{Name: "two", Secret: "secret-of-two"}
	for _, keys := range [][]Key{nil, {one}, {one, two}} {
		of := make(chan string, 100)
		l := loads{t: t} // since pages kept before are not told
		c := serveAll(t, Options{Models: []Model{l.model("demo")}, Keys: keys,
			Cache: func(_ string, p karat.CachePage) { of <- p.Of }}).withKey(secret)
		c.post("/v1/completions", `{"prompt":"`+strings.Repeat("The sky is blue. ", 20)+`","max_tokens":1}`)
		if of := <-of; (of == "") != (len(keys) < 2) {
			t.Errorf("%d keys: a page of %q", len(keys), of)
		}
	}
}

// TestUnloadInLoad wants an adapter unloaded while its model is loaded anew to be gone, and its name free.
func TestUnloadInLoad(t *testing.T) {
	folder := t.TempDir()
	if err := adaptertest.Write(t.Context(), folder, demoFile, 0.5); err != nil {
		t.Fatal(err)
	}
	l := loads{t: t}
	c := serveAll(t, Options{Models: []Model{l.model("demo"), l.model("b")}, Loaded: 1, AdapterFolders: []string{filepath.Dir(folder)}})
	do := func(path, body string) {
		t.Helper()
		if status, answer, _ := c.do("POST", path, body); status != 200 {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
	}
	load := `{"model":"demo","lora_name":"a","lora_path":"` + filepath.Base(folder) + `"}`
	do("/v1/load_lora_adapter", load)
	do("/v1/completions", `{"model":"b","prompt":"The sky","max_tokens":1}`) // in demo's place
	open := c.s.pool.open
	c.s.pool.open = func(ctx context.Context, e *entry, m *karat.Model) (*served, error) {
		x, err := open(ctx, e, m)
		do("/v1/unload_lora_adapter", `{"lora_name":"a"}`)
		return x, err
	}
	do("/v1/completions", `{"model":"demo","prompt":"The sky","max_tokens":1}`)
	c.s.pool.open = open
	do("/v1/load_lora_adapter", load)
}

// TestLoraLinks wants nothing of a folder with a link out to be read, and no word of where the link leads.
func TestLoraLinks(t *testing.T) {
	dir := t.TempDir()
	folder, style := filepath.Join(dir, "allowed"), filepath.Join(dir, "allowed", "style")
	if err := os.MkdirAll(style, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := adaptertest.Write(t.Context(), style, demoFile, 0.5); err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(style, "adapter_model.safetensors")
	if err := os.Rename(weights, filepath.Join(dir, "secret-place")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "secret-place"), weights); err != nil {
		t.Fatal(err)
	}
	c := serve(t, demo(t), Options{AdapterFolders: []string{folder}})
	status, answer, _ := c.do("POST", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"style"}`)
	if status != 404 || strings.Contains(answer, "secret-place") || strings.Contains(answer, dir) {
		t.Errorf("%d %s", status, answer)
	}
}

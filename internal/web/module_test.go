//go:build !js

package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/golden"
)

// packaged is the npm package in a folder, with a program that stands in for Karat's.
func packaged(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var module bytes.Buffer
	z := gzip.NewWriter(&module)
	if _, err := z.Write([]byte(standInModule)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"wasm_exec.js": standInProgram(t), "gpu.js": []byte(gpu.Shim), "karat.wasm.gz": module.Bytes()}
	for _, pattern := range []string{"*.js", "*.mjs", "*.json", "*.d.ts"} {
		names, err := filepath.Glob(filepath.Join("../../js", pattern))
		if err != nil || names == nil {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestModule uses the npm package in a browser, without a bundler: from its own site and from another.
func TestModule(t *testing.T) {
	t.Parallel()
	p, dir := open(t), packaged(t)
	model := append([]byte("GGUF"), bytes.Repeat([]byte{7}, 3_000_000)...)
	books := &shelf{data: model, breaks: true, met: make(chan struct{}, 1)}
	other := httptest.NewServer(books)
	defer other.Close()
	serve := func(more string) *httptest.Server {
		files := http.FileServer(http.Dir(dir))
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			switch {
			case r.URL.Path == "/":
				w.Header().Set("Content-Type", "text/html")
				w.Write([]byte("<!doctype html><link rel=icon href=data:>" + more))
			case strings.HasSuffix(r.URL.Path, ".gz") && r.URL.RawQuery == "unpacked": // as some servers have it
				w.Header().Set("Content-Encoding", "gzip")
				fallthrough
			default:
				files.ServeHTTP(w, r)
			}
		}))
	}
	site, cdn := serve(""), serve("")
	defer site.Close()
	defer cdn.Close()
	sum := sha256.Sum256(model)
	p.visit(site.URL)
	script := strings.NewReplacer("{{model}}", other.URL+"/tiny.gguf", "{{met}}", other.URL+"/met", "{{sum}}", hex.EncodeToString(sum[:]), "{{cdn}}", cdn.URL).Replace(moduleScript)
	for _, x := range do[[]string](p, script) {
		t.Error(x)
	}
	if n := len(books.asked); n != 3 || books.asked[1] == "bytes=0-" {
		t.Errorf("the model that broke off came by %q", books.asked)
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// moduleScript returns what is wrong with the package.
const moduleScript = `
	const { load, kept, remove } = await import('/index.js'), wrong = [], is = (what, got, want) => { if (JSON.stringify(got) !== JSON.stringify(want)) wrong.push(what + ': ' + JSON.stringify(got) + ', want ' + JSON.stringify(want)) };
	const refused = async (what, kind, f) => { try { await f(); wrong.push(what + ' is not refused') } catch (e) { is(what + ' (' + e.message + ')', e.kind ?? e.name, kind) } };
	const told = new Set();
	const model = await load({ url: '{{model}}', sha256: '{{sum}}', onProgress: e => { told.add(e.what); if (e.what === 'download') fetch('{{met}}') } });
	is('progress', [...told].sort(), ['check', 'download', 'model', 'program']);
	is('info', [model.info.name, model.info.backend, model.info.sha256], ['tiny.gguf', 'cpu', '{{sum}}']);
	const messages = [{ role: 'user', content: 'What is the color?' }], said = 'The sky is <b>blue</b> & wide.';
	const r = await model.chat.completions.create({ messages, logprobs: true, max_tokens: 9 });
	is('answer', [r.object, r.choices[0].message.content.trim(), r.choices[0].finish_reason, r.usage.completion_tokens], ['chat.completion', said, 'stop', 3]);
	is('logprobs', r.choices[0].logprobs.content.map(x => [x.token, x.logprob, x.top_logprobs.length]), [[' The sky', -.1, 0], [' is <b>blue</b>', -.1, 0], [' & wide.', -.1, 0]]);
	let whole = '', last;
	for await (const c of await model.chat.completions.create({ messages, stream: true, stream_options: { include_usage: true } })) { whole += c.choices[0]?.delta.content ?? ''; last = c }
	is('stream', [whole.trim(), last.usage.total_tokens > 3, last.choices], [said, true, []]);
	for await (const c of await model.chat.completions.create({ messages: [{ role: 'user', content: 'wait' }], stream: true })) break; // before the first token
	const control = new AbortController(), waits = model.chat.completions.create({ messages: [{ role: 'user', content: 'wait' }] }, { signal: control.signal });
	const behind = model.tokenize('one two'); // waits for its turn
	setTimeout(() => control.abort(), 50);
	await refused('an aborted answer', 'AbortError', () => waits);
	is('tokens', (await behind).map(x => x.text), ['one', ' two']);
	is('raw', (await model.completions.create({ prompt: 'one' })).choices[0].text, 'One');
	await refused('an unknown field', 'request', () => model.chat.completions.create({ messages, beam: 3 }));
	await refused('two answers', 'request', () => model.chat.completions.create({ messages, n: 2 }));
	await refused('a failure', 'memory', () => model.chat.completions.create({ messages: [{ role: 'user', content: 'fail memory' }] }));
	const e = await model.embeddings.create({ input: ['a', 'b'] });
	is('embeddings', [e.data.map(x => x.embedding), e.usage.prompt_tokens], [[[1, 0], [1, 1]], 2]);
	is('proof', (await model.prove()).inside, true);
	is('verdict', (await model.verify('{"receipt":1}')).verified, true);
	is('prompt', (await model.render({ messages })).text.startsWith('<start_of_turn>user'), true);
	const [k] = await kept();
	is('kept', [k.name, k.done, k.size], ['tiny.gguf', true, 3000004]);
	await refused('removing a model in use', 'taken', () => remove(k.id));
	model.close();
	await refused('a closed model', 'closed', () => model.tokenize('a'));
	const again = await load({ id: k.id, program: '/karat.wasm.gz?unpacked', worker: '/entry.js' });
	is('again', again.info.name, 'tiny.gguf');
	again.close();
	await until('the file is free', () => remove(k.id).then(() => true, () => false));
	is('removed', await kept(), []);
	await refused('another hash', 'hash', () => load({ url: '{{model}}', sha256: '0'.repeat(64) }));
	await refused('nothing', 'request', () => load({}));
	const far = await import('{{cdn}}/index.js'), there = await far.load({ file: new File([new TextEncoder().encode('GGUF and so on, of no worth')], 'own.gguf') });
	is('from another site', [there.info.name, (await there.chat.completions.create({ messages })).choices[0].message.content.trim()], ['own.gguf', said]);
	there.close();
	return wrong;
`

// TestNode uses the npm package in Node.
func TestNode(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		golden.Lacking(t, err)
	}
	c := exec.CommandContext(t.Context(), node, "--test", "node.test.mjs")
	c.Dir = packaged(t)
	c.Env = append(os.Environ(), "KARAT_CACHE="+filepath.Join(t.TempDir(), "new"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPackage uses the npm package with Karat itself: as its folder is published, in Node and in Chromium, by both engines,
// behind a download that breaks, with the worker's address and as the example's script.
func TestPackage(t *testing.T) {
	golden.SkipFast(t, "the program is built first")
	node, err := exec.LookPath("node")
	if err != nil {
		golden.Lacking(t, err)
	}
	dir, model := t.TempDir(), demo(t)[0].Data
	run := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), node, args...)
		c.Env = append(os.Environ(), "KARAT_CACHE="+filepath.Join(dir, "kept"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%.300q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("../../js/build.mjs", dir)
	for name, path := range map[string]string{"whole.mjs": "testdata/whole.mjs", "demo.gguf": "../../cmd/karat/demo.gguf"} {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	script := `import * as karat from ` + strconv.Quote("file://"+dir+"/node.js") + `; import { whole } from ` + strconv.Quote("file://"+dir+"/whole.mjs") + `;
		console.log((await whole(karat, { file: ` + strconv.Quote(dir+"/demo.gguf") + ` }, 'cpu')).join('\n'));`
	if wrong := strings.TrimSpace(run("--input-type=module", "--eval", script)); wrong != "" {
		t.Errorf("in Node: %s", wrong)
	}

	books := &shelf{data: model, breaks: true, met: make(chan struct{}, 1)}
	other := httptest.NewServer(books)
	defer other.Close()
	files := http.FileServer(http.Dir(dir))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
		w.Header().Set("Cross-Origin-Embedder-Policy", "require-corp")
		if r.URL.Path == "/" || r.URL.Path == "/favicon.ico" {
			w.Header().Set("Content-Type", "text/html")
			w.Write([]byte("<!doctype html><link rel=icon href=data:>"))
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer site.Close()
	p := openAlone(t, softwareGPU...)
	p.visit(site.URL)
	sum := sha256.Sum256(model)
	source := fmt.Sprintf(`const karat = await import('/index.js'), { whole } = await import('/whole.mjs'), source = { url: '%s/demo.gguf', sha256: '%x', worker: '/entry.js', onProgress: e => { if (e.what === 'download') fetch('%[1]s/met') } }; `, other.URL, sum)
	for _, x := range do[[]string](p, source+`if (!crossOriginIsolated) return ['the page is not isolated']; return whole(karat, source, 'cpu')`) {
		t.Error("in Chromium:", x)
	}
	if n := len(books.asked); n != 2 || books.asked[1] == "bytes=0-" {
		t.Errorf("the model that broke off came by %q", books.asked)
	}
	if do[bool](p, `return !await navigator.gpu?.requestAdapter()`) {
		golden.Lacking(t, "no GPU in the browser")
	}
	for _, x := range do[[]string](p, source+`const [{ id, done }] = await karat.kept(); return done ? whole(karat, { id }, 'webgpu') : ['the model is not kept']`) {
		t.Error("in Chromium, on a GPU:", x)
	}
	p.visit(site.URL + "/examples/chat.html?model=/demo.gguf")
	if got := do[string](p, `const out = $('#out'); await until('the model', () => out.textContent.includes(' on the '), 60); $('form').requestSubmit(); return until('an answer', () => out.textContent.includes('blue.') && out.textContent, 60)`); got == "" {
		t.Error("the example says nothing")
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

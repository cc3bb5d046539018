//go:build !js

package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/webbuild"
	"github.com/karat-run/karat/internal/lab"
)

// sabotage runs in the worker before the site's script. On a channel it is told to have
// shaders refused, or to lose the GPU.
const sabotage = `
if (typeof document === 'undefined' && globalThis.GPUAdapter) {
	const request = GPUAdapter.prototype.requestDevice, make = GPUDevice.prototype.createShaderModule, devices = [];
	let breaks = false;
	GPUAdapter.prototype.requestDevice = async function (...a) { const d = await request.apply(this, a); devices.push(d); return d };
	GPUDevice.prototype.createShaderModule = function (d) { return make.call(this, breaks ? { ...d, code: d.code + ' nonsense' } : d) };
	new BroadcastChannel('sabotage').onmessage = ({ data }) => { if (data === 'lose') for (const d of devices) d.destroy(); else breaks = data === 'break' };
}
`

// softwareGPU gives the page WebGPU by SwiftShader, which the browser brings.
var softwareGPU = []chromedp.ExecAllocatorOption{chromedp.Flag("enable-unsafe-webgpu", true), chromedp.Flag("use-webgpu-adapter", "swiftshader"),
	chromedp.Flag("enable-features", "Vulkan"), chromedp.Flag("disable-gpu", false)}

var built = sync.OnceValues(func() (p Program, err error) {
	p.Wasm, p.Exec, err = build.Build(context.Background(), filepath.Join("..", ".."))
	return p, err
})

// karatSite is the site of Karat itself.
func karatSite(t *testing.T) *Site {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	site, err := New("v0.0.0-test", false, program, demo(t)...)
	if err != nil {
		t.Fatal(err)
	}
	return site
}

// TestProgram runs Karat itself in the page, on WebGPU and without.
func TestProgram(t *testing.T) {
	golden.SkipFast(t, "the program is built first, and a GPU that is a program is slow")
	site := karatSite(t)
	// before is a handler of the site with a script before its own.
	before := func(js string) http.Handler {
		x := Site{files: slices.Clone(site.files), policy: site.policy}
		x.files[1].Data = append([]byte(js), x.files[1].Data...)
		return x.Handler()
	}
	var gone, without atomic.Bool // the demo, from the server; the GPU, from the browser
	usual, noGPU := before(sabotage), before("Object.defineProperty(globalThis.WorkerNavigator?.prototype ?? {}, 'gpu', { value: undefined });\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case gone.Load() && r.URL.Path == "/demo.gguf":
			http.NotFound(w, r)
		case without.Load():
			noGPU.ServeHTTP(w, r)
		default:
			usual.ServeHTTP(w, r)
		}
	}))
	defer s.Close()
	p := openAlone(t, softwareGPU...)
	p.size("light", 1200)
	useProgram(t, p, s.URL, &gone)
	loseGPU(t, p)
	without.Store(true)
	withoutGPU(t, p, s.URL)
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// spy runs in the worker before the site's script: it may take the vectors from the browser, and tells how many
// instances of the kernels were made, and how many workers.
const spy = `
let made = 0, workers = 0;
if (typeof document === 'undefined') {
	WebAssembly.Instance = new Proxy(WebAssembly.Instance, { construct(Instance, a) { made++; return new Instance(...a); } });
	globalThis.Worker = class extends Worker { constructor(...a) { super(...a); workers++; } };
	addEventListener('message', e => { if (e.data.op === 'made') { e.stopImmediatePropagation(); postMessage({ id: e.data.id, result: made + ' ' + workers }); } });
} else {
	globalThis.Worker = class extends Worker { constructor(...a) { super(...a); globalThis.engineWorker = this; } };
}
`

// TestKernels: with kernels on three threads and on one, and without, the page's program says the same tokens with the same log-probabilities.
func TestKernels(t *testing.T) {
	golden.SkipFast(t, "the program is built first")
	site := karatSite(t)
	const processors = "if (globalThis.WorkerNavigator) Object.defineProperty(WorkerNavigator.prototype, 'hardwareConcurrency', { value: %d });\n"
	var said [3]string
	for i, js := range []string{fmt.Sprintf(spy+processors, 3), fmt.Sprintf(spy+processors, 1),
		spy + "WebAssembly.validate = () => false;\n"} {
		x := Site{files: slices.Clone(site.files), policy: site.policy}
		x.files[1].Data = append([]byte(js), x.files[1].Data...)
		s := httptest.NewServer(x.Handler())
		defer s.Close()
		p := open(t)
		p.visit(s.URL)
		said[i] = do[string](p, `localStorage.setItem('backend', 'cpu'); await ready(120);
			const call = (op, args) => new Promise((ok, no) => {
				const id = 'test ' + op, tokens = [];
				engineWorker.addEventListener('message', function hear({ data }) {
					if (data.id !== id) return;
					if (data.event !== undefined) return tokens.push(data.event);
					engineWorker.removeEventListener('message', hear);
					data.error ? no(new Error(data.error.message)) : ok([data.result, tokens]);
				});
				engineWorker.postMessage({ id, op, args });
			});
			const [made] = await call('made');
			const [, tokens] = await call('generate', { prompt: 'The color of the sky is', options: { maxTokens: 24, top: 3, sampling: { temperature: 0 } } });
			return made + ' ' + JSON.stringify(tokens);`)
	}
	if !strings.HasPrefix(said[0], "2 2 [") || said[1] != "3 0"+said[0][3:] || said[2] != "0 0"+said[0][3:] ||
		strings.Count(said[0], "logprob") < 24*4 {
		t.Errorf("on three threads: %s\non one: %s\nwithout kernels: %s", said[0], said[1], said[2])
	}
}

// demo is the demo model and its record; with -short without its three longest prompts,
// which have most of the tokens.
func demo(t *testing.T) (files []File) {
	t.Helper()
	dir := filepath.Join(golden.Root(t), "cmd/karat")
	read := func(dir, name string) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: name, Data: data})
	}
	read(dir, "demo.gguf")
	if testing.Short() {
		r, err := lab.ReadRecord(filepath.Join(dir, "demo.golden.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		dir = t.TempDir()
		w, err := lab.Create(filepath.Join(dir, "demo.golden.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for _, p := range r.Prompts {
			if len(p.IDs) < 30 && err == nil {
				err = w.Add(p)
			}
		}
		if err := errors.Join(err, w.Commit(nil)); err != nil {
			t.Fatal(err)
		}
	}
	read(dir, "demo.golden.json")
	read(dir, "demo.golden.safetensors")
	return files
}

const continueText = `$('#mode').value = 'text'; $('#mode').dispatchEvent(new Event('change')); $('#max-tokens').value = 8; ask('The color of the sky is'); `

func useProgram(t *testing.T, p *tab, url string, gone *atomic.Bool) {
	p.visit(url) // where the GPU is a program the processor is chosen
	if said := do[string](p, `await ready(60); return $('.badge').textContent`); strings.Contains(said, "offers no WebGPU") {
		golden.Lacking(t, said)
	}
	do[any](p, `localStorage.setItem('backend', 'webgpu')`)
	start := time.Now()
	p.visit(url)
	do[any](p, `await ready(60)`)
	ready := time.Since(start)
	do[any](p, continueText+`await until('a token', () => answers()[0], 60)`)
	t.Logf("on the GPU, which is a program: ready after %v, the first token after %v", ready, time.Since(start))
	if got := do[string](p, `return answered(1)`); !strings.HasPrefix(got, " blue.") {
		t.Errorf("the text goes on with %q", got)
	}
	t.Log(do[string](p, `return text('#model') + ' | ' + text('.turn.assistant .stats')`))
	p.look("program-text")
	if said := do[string](p, `$('#max-tokens').value = 4000; ask('func main() {'); await until('some', () => answers()[0]?.length > 20, 60); $('#stop').click(); await answered(1); return text('.turn.assistant .stats')`); !strings.HasSuffix(said, "stopped") {
		t.Errorf("a stopped answer says %q", said)
	}
	do[any](p, `$('#mode').value = 'chat'; $('#mode').dispatchEvent(new Event('change')); $('#max-tokens').value = 40; ask('What is the color of the sky?'); await answered(1);
		$('#show-prompt').click(); await until('the prompt', () => !$('#prompt').hidden)`)
	if prompt := do[string](p, `return text('#prompt')`); !strings.Contains(prompt, "<start_of_turn>user") {
		t.Errorf("the prompt is %q", prompt)
	}
	p.look("program-chat")

	gone.Store(true)
	p.visit(url + "?again#proof")
	said := do[string](p, `await ready(60); $('#proof-run').click(); await until('the verdict', () => $('#verdict') || $('#notes [role=alert]'), 300); return text('#proof-result') + text('#notes')`)
	if !strings.HasPrefix(said, "Right.") {
		t.Errorf("the proof says %q", said)
	}
	t.Log(said[:min(len(said), 250)])
	p.look("program-proof")
	do[any](p, `openProbe(); $('#probe-run').click(); await until('the values', () => $('#probe-facts'), 60)`)
	p.look("program-probe")
	do[any](p, `$('#tab-bench').click(); $('#bench-tokens').value = 8; $('#bench-run').click(); await until('the times', () => $('#bench-json') || $('#notes [role=alert]'), 300)`)
	t.Log(do[string](p, `return text('#bench-result .scroll')`))
	if said := do[string](p, `const { kernels, memory, adapter } = JSON.parse($('#bench-json').value);
		return !(memory.gpu_bytes > 4e6) || adapter.timestamps && !(kernels.length > 5 && kernels.every(k => k.seconds >= 0 && k.dispatches > 0) && kernels[0].seconds > 0) ? $('#bench-json').value : ''`); said != "" {
		t.Errorf("the times of kernels, and the memory: %s", said)
	}
	p.look("program-bench")
}

func loseGPU(t *testing.T, p *tab) {
	const tell = `const channel = new BroadcastChannel('sabotage'), press = word => [...document.querySelectorAll('#notes button')].find(b => b.textContent === word).click(); `
	said := do[string](p, tell+`channel.postMessage('break'); $('#tab-chat').click(); $('#open-models').click(); $('#demo').click(); return failed('shader')`)
	if !strings.Contains(said, "compiler refused") {
		t.Errorf("a broken shader says %q", said)
	}
	p.look("program-shader")
	said = do[string](p, tell+`press('Use the processor'); await ready(60); `+continueText+`return await answered(1) + '|' + text('#model')`)
	if !strings.HasPrefix(said, " blue.") || !strings.Contains(said, "CPU") {
		t.Errorf("without shaders the processor says %q", said)
	}
	said = do[string](p, tell+`channel.postMessage('mend'); $('#open-models').click(); $('#demo').click(); await until('the GPU', () => text('#model').includes('GPU'), 60); await ready();
		$('#max-tokens').value = 4000; ask('func main() {'); await until('some', () => answers()[0]?.length > 20, 60); channel.postMessage('lose'); return failed('lost')`)
	if !strings.Contains(said, "GPU was lost") {
		t.Errorf("a lost GPU says %q", said)
	}
	p.look("program-lost")
	said = do[string](p, tell+`press('Load it again'); await until('the model', () => !$('#model b'), 10); await ready(60); `+continueText+`return await answered(1) + '|' + text('#model')`)
	if !strings.HasPrefix(said, " blue.") || !strings.Contains(said, "GPU") {
		t.Errorf("after the loss it says %q", said)
	}
}

func withoutGPU(t *testing.T, p *tab, url string) {
	do[any](p, `localStorage.setItem('backend', '')`)
	start := time.Now()
	p.visit(url + "?without")
	do[any](p, `await ready(60); `+continueText+`await until('a token', () => answers()[0], 60)`)
	t.Logf("without a GPU: the first token after %v", time.Since(start))
	said := do[string](p, `return await answered(1) + '|' + $('.badge').textContent + '|' + text('.turn.assistant .stats')`)
	if !strings.HasPrefix(said, " blue.") || !strings.Contains(said, "offers no WebGPU") {
		t.Errorf("without a GPU the page says %q", said)
	}
	t.Log(said)
	said = do[string](p, `$('#max-tokens').value = 4000; ask('func main() {'); await until('some', () => answers()[0]?.length > 20, 60); $('#stop').click(); await answered(1); return text('.turn.assistant .stats')`)
	if !strings.HasSuffix(said, "stopped") {
		t.Errorf("a stopped answer says %q", said)
	}
	useReceipt(t, p)
	said = do[string](p, `$('#tab-proof').click(); $('#proof-run').click(); await until('the verdict', () => $('#verdict') || $('#notes [role=alert]'), 300); return text('#proof-result')`)
	if !strings.HasPrefix(said, "Right.") {
		t.Errorf("the proof says %q", said)
	}
}

// useReceipt: an answer by a schema parses, and a receipt is verified by the page that saved it, and refused with another
// token.
func useReceipt(t *testing.T, p *tab) {
	t.Helper()
	said := do[string](p, does+`$('#mode').value = 'chat'; $('#mode').dispatchEvent(new Event('change')); $('#forget').click(); exact(); $('#max-tokens').value = 40; $('#receipts').click();
		$('#schema').value = '{"type": "object", "properties": {"color": {"enum": ["blue", "red"]}}, "required": ["color"], "additionalProperties": false}';
		let saved; const make = URL.createObjectURL; URL.createObjectURL = b => { saved = b; return make(b) };
		const of = async n => { ask('What is the color of the sky?'); const said = await answered(n); saved = null; does('assistant', 'Download receipt'); await until('the file', () => saved); return [said, await saved.text()] };
		const [json, formed] = await of(1); $('#schema').value = ''; const [, free] = await of(2); $('#receipts').click(); return JSON.parse(json).color + '|' + JSON.parse(formed).form.kind + '|' + free`)
	receipt, good := strings.CutPrefix(said, "blue|other|")
	var r map[string]any
	if err := json.Unmarshal([]byte(receipt), &r); err != nil || !good {
		t.Fatalf("an answer by a schema and one without, with receipts: %s: %v", said, err)
	}
	const verdict = `await until('the verdict', () => $('#receipt-verdict') || $('#notes [role=alert]'), 60); const said = text('#receipt-verdict') + text('#notes') + ';' + [...document.querySelectorAll('#receipt-result td:nth-child(2)')].map(e => e.textContent).join();
		$('#receipt-result').replaceChildren(); return said`
	p.upload("#receipt-file", written(t, "receipt.json", receipt))
	if said := do[string](p, verdict); !strings.HasPrefix(said, "Verified:") || !strings.HasSuffix(said, ";not signed"+strings.Repeat(",equal", 8)) {
		t.Errorf("the receipt is verified so: %q", said)
	}
	answer := r["answer"].([]any)
	answer[1] = answer[1].(float64) + 1
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	p.upload("#receipt-file", written(t, "receipt.json", string(b)))
	if said := do[string](p, verdict); !strings.HasPrefix(said, "Not verified") || strings.Count(said, "differs") != 1 {
		t.Errorf("with another token the receipt is verified so: %q", said)
	}
}

//go:build !js

package web

import (
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/server"
)

// servedPage starts a server of the demo with the page, and returns its address and the paths asked for so far.
func servedPage(t *testing.T, keys ...server.Key) (url string, asked func() []string) {
	t.Helper()
	m, err := karat.Load(t.Context(), filepath.Join(golden.Root(t), "cmd/karat/demo.gguf"), karat.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	site := standIn(t)
	served, err := New("v0.0.0-test", true, Program{Wasm: site.files[2].Data, Exec: standInProgram(t)}, site.files[3:6]...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Options{Models: []server.Model{{Name: "demo", Model: m}}, Keys: keys, Pages: served.Pages(), ReceiptKey: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	var mu sync.Mutex
	var paths []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	return web.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(paths)
	}
}

// does presses what can be done with the last turn of a role.
const does = `const does = (role, word) => [...[...document.querySelectorAll('.turn.' + role)].at(-1).querySelectorAll('.does button')].find(b => b.textContent === word).click();
	const exact = () => { $('#preset').value = 'exact'; $('#preset').dispatchEvent(new Event('change', {bubbles: true})) }; `

// TestServed: a page of a server chats with the server's model, and brings no engine until the reader wants the
// browser's. An answer is asked for again, edited, cut and continued, and branched at a token.
func TestServed(t *testing.T) {
	t.Parallel()
	url, asked := servedPage(t)
	p := open(t)
	p.size("light", 1200)
	p.visit(url)
	if got := do[string](p, does+`await ready(); exact(); ask('What is the color of the sky?'); return text('#model') + '|' + await answered(1)`); !strings.HasPrefix(got, "demo\nserver\ngemma3 · Q4_K") || !strings.HasSuffix(got, "|The color of the sky is blue.") {
		t.Errorf("a served page says %q", got)
	}
	if got := do[string](p, does+`does('assistant', 'Again'); await until('two', () => text('.turn.assistant .branches') === '‹2/2›'); await answered(1);
		$('.turn.assistant .branches button').click(); return text('.turn.assistant .branches') + ' ' + answers()`); !strings.HasPrefix(strings.ReplaceAll(got, "\n", " "), "‹1/2› The color") {
		t.Errorf("two answers: %q", got)
	}
	got := do[string](p, does+`does('assistant', 'Tokens'); const tokens = [...document.querySelectorAll('.token')].map(e => e.textContent).join('|');
		document.querySelectorAll('.token')[1].click(); const other = $('.likely button'), word = other.textContent.split(' ')[0]; other.click();
		await until('three', () => text('.turn.assistant .branches').includes('3/3')); return tokens + ';' + word + ';' + await answered(1)`)
	if parts := strings.Split(got, ";"); len(parts) != 3 || parts[0] != "The|␣color|␣of|␣the|␣sky|␣is|␣blue." || !strings.HasPrefix(parts[2], "The"+strings.ReplaceAll(parts[1], "␣", " ")) {
		t.Errorf("a branch at a token: %q", got)
	}
	if got := do[string](p, does+`does('user', 'Edit'); $('#say').value = 'What is the opposite of wet?'; $('#send').click(); await until('another', () => answers()[0]?.includes('dry')); return text('.turn.user .branches') + ' ' + answers().length`); strings.ReplaceAll(got, "\n", " ") != "‹2/2› 1" {
		t.Errorf("an edited question: %q", got)
	}
	if got := do[string](p, does+`$('#max-tokens').value = 2; ask('What is the color of the sky?'); const cut = await answered(2); $('#max-tokens').value = ''; does('assistant', 'Continue');
		await until('the rest', () => answers()[1].endsWith('blue.')); return cut + '|' + answers()[1]`); got != "The color|The color of the sky is blue." {
		t.Errorf("a cut answer and its rest: %q", got)
	}
	if got := do[string](p, does+`$('#schema').value = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}'; ask('Give me a number'); await answered(3); $('#schema').value = '{'; return answers()[2]`); !strings.HasPrefix(got, `{"a":`) && !strings.HasPrefix(got, `{ "a"`) {
		t.Errorf("by a schema: %q", got)
	}
	if got := do[string](p, `ask('What?'); return (await failed('schema')) + $('#say').value`); !strings.Contains(got, "schema cannot be read") || !strings.HasSuffix(got, "What?") {
		t.Errorf("by no schema: %q", got)
	}
	if got := do[string](p, `$('#schema').value = ''; $('#say').value = 'What is it?'; $('#show-prompt').click(); await until('the prompt', () => !$('#prompt').hidden); return $('#prompt pre').textContent.slice(-60)`); !strings.HasSuffix(got, "What is it?<end_of_turn>\n<start_of_turn>model\n") {
		t.Errorf("the prompt is %q", got)
	}
	for _, tab := range []string{"proof", "bench", "probe"} {
		if got := do[string](p, `'`+tab+`' === 'probe' ? openProbe() : $('#tab-`+tab+`').click(); $('#`+tab+`-run').click(); return failed('`+tab+`')`); !strings.Contains(got, "runs in this browser") || !strings.Contains(got, "Load the demo") {
			t.Errorf("%s of a server's model: %q", tab, got)
		}
	}
	for _, path := range asked() {
		if path == "/karat.wasm" || path == "/demo.gguf" {
			t.Errorf("the page asked for %s, though the server computes", path)
		}
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
	if got := do[string](p, `$('#open-models').click(); $('#demo').click(); await until('the demo', () => text('#model').startsWith('demo.gguf')); await ready(); return text('#model')`); !strings.Contains(got, "CPU") || !slices.Contains(asked(), "/karat.wasm") {
		t.Errorf("with the browser's engine the page says %q", got)
	}
}

// TestServedReceipt: an answer's receipt comes from the server, and one that is dropped on the page the server verifies.
func TestServedReceipt(t *testing.T) {
	t.Parallel()
	url, asked := servedPage(t)
	p := open(t)
	p.size("light", 1200)
	p.visit(url)
	receipt := do[string](p, does+`await ready(); exact(); ask('What is the color of the sky?'); await answered(1); let saved; const make = URL.createObjectURL; URL.createObjectURL = b => { saved = b; return make(b) };
		does('assistant', 'Download receipt'); await until('the file', () => saved); return saved.text()`)
	for _, c := range []struct{ text, want string }{
		{receipt, "Verified: this model gives this answer. equal equal equal equal equal equal equal equal equal 8 / 8"},
		{strings.Replace(receipt, `"karat `, `"other `, 1), "Not verified. differs not checked"},
		{strings.Replace(receipt, `"karat `, `"<img src=x onerror=alert(1)>`, 1), "Not verified. differs not checked"},
		{strings.Replace(receipt, `"prompt":[`, `"prompt":["",`, 1), "This receipt cannot be verified"},
		{strings.Replace(receipt[:strings.Index(receipt, `,"key":`)]+"}", `"prompt":[`, `"prompt":[`+strings.Repeat("1,", 5000), 1), "This receipt cannot be verified"},
	} {
		got := do[string](p, dropping+`drop('receipt.json', `+strconv.Quote(c.text)+`, 'application/json'); await until('the verdict', () => $('#receipt-verdict') || $('#notes [role=alert]'));
			const of = n => [...document.querySelectorAll('#receipt-result td:nth-child(' + n + ')')].map(e => e.textContent); const said = [text('#receipt-verdict') + text('#notes [role=alert] span'), ...of(2), of(3)[7]].join(' ') + ' ' + document.querySelectorAll('main img').length;
			$('#receipt-result').replaceChildren(); $('#notes').replaceChildren(); return said`)
		if !strings.HasPrefix(got, c.want) || !strings.HasSuffix(got, " 0") {
			t.Errorf("%.80s: %q, want %q", c.text, got, c.want)
		}
	}
	if paths := asked(); slices.Contains(paths, "/karat.wasm") || !slices.Contains(paths, "/v1/receipts/verify") {
		t.Errorf("the page asked for %q", paths)
	}
	for _, e := range p.errors() {
		if !strings.Contains(e, "400") { // refused, as is to be
			t.Error("console:", e)
		}
	}
}

// dropping drops a file on the page.
const dropping = `const drop = (name, data, type) => { const d = new DataTransfer(); d.items.add(new File([data], name, { type })); dispatchEvent(new DragEvent('drop', { dataTransfer: d, cancelable: true })) }; `

// called gives the model two tools, has it call them, and sends their results; it returns what is seen on the way.
const called = `$('#tools').value = JSON.stringify(['weather', 'clock'].map(name => ({ type: 'function', function: { name } })));
	ask('call weather clock'); await until('the calls', () => document.querySelectorAll('.call').length === 2 && !$('#send').hidden && $('.result'));
	const seen = [text('.call summary'), $('.call details').open, $('.call pre').textContent.replace(/\s/g, ''), $('.turn.assistant .stats').textContent.includes(' calls a tool')].join('|');
	const [one, two] = document.querySelectorAll('.calls .result'); one.value = '<b>rain</b>'; two.value = 'prompt'; $('.calls > button').click();
	await until('the answer', () => document.querySelectorAll('.turn.assistant').length === 2 && !document.querySelector('.typing') && !$('#send').hidden);
	const results = [...document.querySelectorAll('.turn.tool')].map(e => e.querySelector('.who').textContent + ': ' + e.querySelector('.text').textContent);
	return [seen, ...results, document.querySelectorAll('.calls .result').length].join(';')`

// TestCalls: calls of tools are shown with their arguments folded, and the reader's results go back to the model, of
// this browser's engine and of the server.
func TestCalls(t *testing.T) {
	t.Parallel()
	const want = `Calls weather|false|{"city":"Paris"}|true;Result of weather: <b>rain</b>;Result of clock: prompt;0`
	sent := func(messages string) bool {
		return strings.Contains(messages, `"tool_calls":[{"id":"c0","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}},{"id":"c1"`) &&
			strings.Contains(messages, `{"role":"tool","tool_call_id":"c0","name":"weather","content":"<b>rain</b>"},{"role":"tool","tool_call_id":"c1","name":"clock","content":"prompt"}]`)
	}
	p, _ := visited(t)
	if got := do[string](p, `await ready(); `+called); got != want {
		t.Errorf("of this browser: %s", got)
	}
	if got := do[string](p, `return answers()[1]`); !sent(got) {
		t.Errorf("of this browser the model got %s", got)
	}
	p.size("light", 390)
	p.look("calls")
	if got := do[string](p, `$('#tools').value = '[{"name": "f"}]'; ask('What?'); return await failed('tools') + $('#say').value`); !strings.Contains(got, "cannot be read") || !strings.HasSuffix(got, "What?") {
		t.Errorf("by a wrong list of tools: %q", got)
	}
	if got := do[string](p, `$('#tools').value = '[{"type": "function", "function": {"name": "f"}}]'; $('#forget').click(); ask('call f'); await until('the call', () => $('.result') && !$('#send').hidden);
		$('.result').value = 'fail memory'; $('.calls > button').click(); await failed('memory'); await until('the box', () => $('.result')); return $('.result').value + document.querySelectorAll('.turn.tool').length`); got != "fail memory0" {
		t.Errorf("a result that failed: %q", got)
	}
	url, _ := servedPage(t)
	p = open(t)
	p.visit(url)
	const stand = `const usual = fetch, bodies = []; globalThis.fetch = (path, o) => { if (!path.endsWith('chat/completions')) return usual(path, o);
		bodies.push(o.body); const chunk = (delta, finish_reason = null) => 'data: ' + JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] }) + '\n\n', call = (index, more, f) => chunk({ tool_calls: [{ index, ...more, function: f }] });
		return Promise.resolve(new Response(bodies.length > 1 ? chunk({ content: 'Done.' }, 'stop') : call(0, { id: 'c0', type: 'function' }, { name: 'weather', arguments: '{"city":' }) + call(0, {}, { arguments: '"Paris"}' }) + call(1, { id: 'c1' }, { name: 'clock', arguments: '{}' }) + chunk({}, 'tool_calls'))); };
		globalThis.bodies = bodies; `
	if got := do[string](p, `await ready(); `+stand+called); got != want {
		t.Errorf("of the server: %s", got)
	}
	if got := do[string](p, `return bodies[0] + '|' + JSON.stringify(JSON.parse(bodies[1]).messages) + '|' + answers()[1]`); !strings.Contains(got, `"tools":[{"type":"function","function":{"name":"weather"}},`) || !sent(got) || !strings.HasSuffix(got, "|Done.") {
		t.Errorf("the server got %s", got)
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestPicker: before a model is loaded its size, type, context and memory are told: of a server, a repository, and a file.
func TestPicker(t *testing.T) {
	t.Parallel()
	url, _ := servedPage(t)
	p := open(t)
	p.visit(url)
	if got := do[string](p, `await ready(); $('#open-models').click(); await until('the list', () => $('#served .facts')); return text('#served li')`); !strings.Contains(got, "MiB\u2069 · Q4_K · context 4,096\nuses ") || !strings.Contains(got, "of memory") {
		t.Errorf("a server's model: %q", got)
	}
	p, _ = visited(t)
	const hub = `const usual = fetch; globalThis.fetch = (path, o) => { path = String(path); if (!path.startsWith('https://huggingface.co/api/models/org/repo')) return usual(path, o); const file = (path, size) => ({ path, size, lfs: { oid: 'a'.repeat(64) } });
		return Promise.resolve(new Response(JSON.stringify(path.includes('tree/') ? [file('tiny-Q4_K_M.gguf', 4e8), file('big-BF16-00001-of-00002.gguf', 2e9), file('big-BF16-00002-of-00002.gguf', 2e9)] : { gguf: { context_length: 40960 } }))) }; `
	got := do[string](p, hub+`await ready(); $('#open-models').click(); $('#url').value = 'org/repo'; $('#fetch').click(); await until('the files', () => document.querySelectorAll('#files li').length); return [...document.querySelectorAll('#files li')].map(e => e.innerText.replace(/\s+/g, ' ')).join('|')`)
	if rows := strings.Split(got, "|"); len(rows) != 2 || !strings.Contains(rows[0], "381 MiB\u2069 · Q4_K_M · context 40,960 about") || !strings.Contains(rows[1], "3.7 GiB\u2069 · BF16 · context 40,960 too large without a GPU") {
		t.Errorf("files of a repository: %q", got)
	}
	p.size("light", 320)
	p.look("files")
	p.size("light", 1200)
	const file = `const u32 = n => [n & 255, n >> 8 & 255, n >> 16 & 255, n >>> 24], u64 = n => [...u32(n), 0, 0, 0, 0], str = s => [...u64(s.length), ...new TextEncoder().encode(s)];
		const head = new Uint8Array([...new TextEncoder().encode('GGUF'), ...u32(3), ...u64(0), ...u64(4), ...str('a.list'), ...u32(9), ...u32(8), ...u64(2), ...str('x'), ...str('yz'), ...str('toy.context_length'), ...u32(4), ...u32(2048), ...str('general.file_type'), ...u32(4), ...u32(15), ...str('cut'), ...u32(8), ...u64(900)]);
		const whole = new File([head], 'toy.gguf'), large = new File([head], 'large.gguf'); Object.defineProperty(large, 'size', { value: 3 * 2 ** 30 });
		const drop = f => dispatchEvent(Object.assign(new Event('drop', { cancelable: true }), { dataTransfer: { files: [f] } })); `
	if got := do[string](p, file+`$('#models').close(); const shown = new Set(), watch = new MutationObserver(() => shown.add(text('#model'))); watch.observe($('#model'), { childList: true });
		drop(whole); await until('the file', () => text('#model b') === 'toy.gguf'); return [...shown].join(';')`); !strings.Contains(got, "Q4_K_M · context 2,048") {
		t.Errorf("a file while it loads: %q", got)
	}
	got = do[string](p, file+`drop(large); await until('the question', () => text('#notes')); const said = text('#notes'); [...document.querySelectorAll('#notes button')].find(b => b.textContent === 'Load it all the same').click(); await until('the large one', () => text('#model b') === 'large.gguf'); return said`)
	if !strings.Contains(got, "3\u00a0GiB") || !strings.Contains(got, "too large") || !strings.Contains(got, "Q4_K_M · context 2,048") {
		t.Errorf("a file that is too large: %q", got)
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestRewrite: an answer is written anew as a branch from which the model goes on, a message is deleted and brought back,
// how full the context is is told, and words find repositories.
func TestRewrite(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	got := do[string](p, does+`await ready(); ask('What?'); await answered(1); does('assistant', 'Edit'); $('.turn.assistant .text textarea').value = 'It is **green**.'; [...document.querySelectorAll('.turn.assistant .text button')].find(b => b.textContent === 'Keep').click();
		await until('the branch', () => text('.turn.assistant .branches').includes('2/2')); ask('prompt'); await answered(2);
		return JSON.parse(answers()[1]).map(x => x.content).join('|') + ';' + document.querySelector('.turn.assistant strong').textContent`)
	if got != "What?|It is **green**.|prompt;green" {
		t.Errorf("an answer written anew: %q", got)
	}
	if got := do[string](p, `$('.turn.assistant:last-child .stats summary').click(); return text('.turn.assistant:last-child .stats')`); !strings.Contains(got, "of 4,096 tokens of context (0.") {
		t.Errorf("the context: %q", got)
	}
	got = do[string](p, does+`const turns = () => document.querySelectorAll('.turn').length, seen = [turns()]; does('user', 'Delete'); await until('less', () => turns() === 2); seen.push(turns());
		[...document.querySelectorAll('#notes button')].find(b => b.textContent === 'Undo').click(); await until('all', () => turns() === 4); seen.push(turns());
		[...document.querySelectorAll('.turn.user .does button')].find(b => b.textContent === 'Delete').click(); await until('nothing', () => $('#log .empty')); return seen.join() + ' ' + document.querySelectorAll('#talk-list .talk').length`)
	if got != "4,2,4 0" {
		t.Errorf("deleted messages: %q", got)
	}
	got = do[string](p, `const usual = fetch; globalThis.fetch = (path, o) => { path = String(path); if (!path.startsWith('https://huggingface.co/api/')) return usual(path, o);
		return Promise.resolve(new Response(JSON.stringify(path.includes('search=small%20model') ? [{ id: 'org/small-GGUF', downloads: 12345 }] : path.includes('/tree/') ? [{ path: 'small-Q8_0.gguf', size: 5e8, lfs: { oid: 'a'.repeat(64) } }] : {}))) };
		$('#open-models').click(); $('#url').value = 'small model'; $('#fetch').click(); await until('the repository', () => $('#files li')); const found = text('#files li').replace(/\s+/g, ' '); $('#files button').click(); await until('its file', () => text('#files li').includes('Q8_0')); return found`)
	if got != "org/small-GGUF 12,345 downloads Files" {
		t.Errorf("found by words: %q", got)
	}
	p.size("dark", 320)
	p.look("found")
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestServedKey: the page of a server with keys asks for one, and keeps it for its tab.
func TestServedKey(t *testing.T) {
	t.Parallel()
	url, _ := servedPage(t, server.Key{Name: "reader", Secret: "a-long-secret-of-a-reader"})
	p := open(t)
	p.visit(url)
	got := do[string](p, `const key = k => { $('#key').value = k; $('#key').form.requestSubmit() }; await until('the question', () => $('#key')); key('wrong'); await until('the question again', () => $('#key')?.value === '' && text('#notes').includes('does not accept this key'));
		key('a-long-secret-of-a-reader'); await ready(); ask('What is the color of the sky?'); return await answered(1) + '|' + Object.values(localStorage).join()`)
	if !strings.HasPrefix(got, "The color of the sky is blue.|") || strings.Contains(got, "secret") {
		t.Errorf("with a key: %q", got)
	}
	p.visit(url + "?again")
	if got := do[string](p, `await ready(); return text('#model')`); !strings.HasPrefix(got, "demo") {
		t.Errorf("after a reload: %q", got)
	}
	few, _ := servedPage(t, server.Key{Name: "few", Secret: "a-secret-for-two-routes", Routes: []string{"/v1/models", "/v1/chat/completions"}})
	p.visit(few)
	if got := do[string](p, `await until('the question', () => $('#key')); $('#key').value = 'a-secret-for-two-routes'; $('#key').form.requestSubmit(); await ready(); ask('What is the color of the sky?'); return answered(1)`); got != "The color of the sky is blue." {
		t.Errorf("with a key of two routes: %q", got)
	}
}

// TestTalks: conversations stay in the browser over tabs. They are found, renamed, deleted and brought back, saved and
// opened again.
func TestTalks(t *testing.T) {
	t.Parallel()
	p, url := visited(t)
	const list = `const list = () => [...document.querySelectorAll('#talk-list .talk')].map(e => e.textContent).join('|');
		const act = (i, word) => [...document.querySelectorAll('#talk-list li')[i].querySelectorAll('.pop button')].find(b => b.textContent === word).click(); `
	got := do[string](p, list+keeping+`for (const x of ['first of all', 'second']) { $('#forget').click(); ask(x); await answered(1); await until('the list', () => list().startsWith(x)) }
		$('#find').value = 'FIRST'; $('#find').dispatchEvent(new Event('input')); const found = list(); $('#find').value = ''; $('#find').dispatchEvent(new Event('input'));
		act(1, 'Rename'); const input = $('#talk-list input'); input.value = 'My talk'; input.blur(); await until('the name', () => list().includes('My talk'));
		return found + ';' + list()`)
	if got != "first of all;My talk|second" {
		t.Errorf("the list: %q", got)
	}
	got = do[string](p, list+keeping+`act(0, 'Delete'); await until('its end', () => list() === 'second'); press('Undo'); await until('it again', () => list().includes('My talk')); return list()`)
	if got != "My talk|second" {
		t.Errorf("after undo: %q", got)
	}
	p.visit(url + "?again")
	got = do[string](p, list+`await ready(); const before = list(); [...document.querySelectorAll('#talk-list .talk')].find(e => e.textContent === 'My talk').click();
		return before + ';' + document.querySelector('.turn.user .text').textContent + ';' + answers().length`)
	if got != "My talk|second;first of all;1" {
		t.Errorf("after a reload: %q", got)
	}
	p.upload("#import", written(t, "talks.json", `{"karat": "talks", "talks": [{"id": "x", "title": "Opened", "changed": 1, "mode": "chat", "system": "", "at": "2", "turns": [{"id": "1", "parent": "", "role": "user", "text": "a"}, {"id": "2", "parent": "1", "role": "assistant", "text": "b", "stop": "end"}]}]}`))
	if got := do[string](p, list+`await until('it', () => list().includes('Opened')); return text('#notes')`); !strings.HasPrefix(got, "1 conversation added") {
		t.Errorf("opened talks: %q", got)
	}
	p.upload("#import", written(t, "bad.json", `{"talks": [{"id": "y", "mode": "chat", "at": "1", "turns": [{"id": "1", "parent": "1", "role": "user", "text": "loop"}]}]}`))
	if got := do[string](p, `return failed('talks')`); !strings.Contains(got, "no file of saved conversations") {
		t.Errorf("of a turn that is its own parent the page says %q", got)
	}
}

// TestMarkdown: an answer's Markdown becomes elements, and nothing of it becomes a script, a picture or an address that
// is not of the web.
func TestMarkdown(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	for _, c := range []struct{ text, want string }{
		{"# A\n\n**b** *c* `d`", "h3 strong em code"},
		{"```go\nfunc main() {}\n```", "figure figcaption span button pre code span.hl-keyword"},
		{"| a |\n|--:|\n| 1 |", "table th.n td.n"},
		{"1. a\n2. b\n   - [x] c", "ol li ul li input"},
		{"[a](https://example.com) [b](javascript:alert(1)) <https://x.y>", "a[href=\"https://example.com\"] a[href=\"https://x.y\"]"},
		{"$x^2$ and \\(y\\) for $5 and $6", "math msup math"},
		{"<script>alert(1)</script><img src=x onerror=alert(1)>", ""},
		{"![a](https://example.com/a.png)", ""},
	} {
		got := do[string](p, `const n = answers().length; ask('echo '+`+strconv.Quote(c.text)+`); await answered(n + 1); const e = [...document.querySelectorAll('.turn.assistant .text')].at(-1);
			const want = `+strconv.Quote(c.want)+`; let i = 0;
			for (const w of want ? want.split(' ') : []) { await until(w, () => { const list = [...e.querySelectorAll('*')], j = list.findIndex((x, k) => k >= i && x.matches(w)); if (j < 0) return false; i = j + 1; return true }, 10) }
			return e.querySelectorAll('script, img, a[href^="javascript"]').length + ' ' + document.querySelectorAll('[onerror]').length`)
		if got != "0 0" {
			t.Errorf("%q: %s", c.text, got)
		}
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// TestOffline: a page that was open once works without its server: the program, the model and the conversations are
// there.
func TestOffline(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	p.visit(s.URL)
	do[any](p, `await ready(); await navigator.serviceWorker.ready; await until('its control', () => navigator.serviceWorker.controller)`)
	p.visit(s.URL + "?again") // whose files the service worker sees
	do[any](p, `await ready(); ask('What is it?'); await answered(1)`)
	s.CloseClientConnections()
	s.Close()
	p.visit(s.URL + "?offline")
	if got := do[string](p, `await ready(); ask('one'); return text('#model b') + ' ' + await answered(2)`); got != "demo.gguf One" {
		t.Errorf("without the server the page says %q", got)
	}
}

// TestAttach: texts go with a message, by a button or dropped on the page; what is no text, and a picture for a model
// that sees none, are told. A dropped model is opened.
func TestAttach(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	p.upload("#attach-file", written(t, "notes.txt", "buy milk"))
	got := do[string](p, dropping+`await until('the file', () => text('#attached').startsWith('notes.txt')); drop('b.go', 'package b', ''); await until('another', () => text('#attached').includes('b.go'));
		ask('prompt'); const sent = JSON.parse(await answered(1)); return sent[0].content + '|' + text('#attached') + '|' + text('.turn.user summary')`)
	if want := "notes.txt:\n```\nbuy milk\n```\n\nb.go:\n```\npackage b\n```\n\nprompt||notes.txt"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	for _, c := range []struct{ name, data, kind, want string }{{"a.bin", "a\\0b", "", "no text"}, {"a.png", "x", "image/png", "sees no pictures"}} {
		if got := do[string](p, dropping+`drop('`+c.name+`', '`+c.data+`', '`+c.kind+`'); return (await failed('it')) + text('#attached')`); !strings.Contains(got, c.want) {
			t.Errorf("%s: the page says %q", c.name, got)
		}
	}
	if got := do[string](p, dropping+`drop('mine.gguf', 'GGUF' + '0'.repeat(999), ''); await until('the model', () => text('#model').startsWith('mine.gguf')); await ready(); return text('#model b')`); got != "mine.gguf" {
		t.Errorf("a dropped model: %q", got)
	}
}

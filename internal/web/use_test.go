//go:build !js

package web

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestChat: what is asked can be stopped and fail, and a reader who uses the keyboard or
// listens has all of it.
func TestChat(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	p.visit(s.URL)
	said := do[string](p, `await ready(); $('#max-tokens').value = 100000; ask('count for me');
		await until('some tokens', () => answers()[0]?.length > 10); $('#stop').click(); await answered(1); return text('.turn.assistant .stats')`)
	if !strings.HasSuffix(said, "stopped") {
		t.Errorf("a stopped answer says %q", said)
	}
	if said := do[string](p, `$('#max-tokens').value = 9; ask('What is it?'); await answered(2); return $('#live').textContent`); !strings.Contains(said, "& wide.") {
		t.Errorf("a screen reader hears %q", said)
	}
	for kind, want := range map[string]string{"lost": "GPU was lost", "shader": "compiler refused", "memory": "not enough memory", "full": "context is full", "template": "template", "strange": "went wrong"} {
		said := do[string](p, `for (const b of document.querySelectorAll('#notes [role=alert] button')) if (b.textContent === 'Dismiss') b.click();
			ask('fail `+kind+`'); const said = await failed('`+kind+`'); await until('rest', () => !$('#send').hidden); return said + '|' + $('#say').value`)
		if !strings.Contains(said, want) || !strings.HasSuffix(said, "|fail "+kind) || !strings.Contains(said, "blk.3.ffn_down: "+kind) {
			t.Errorf("%s: the page says %q", kind, said)
		}
	}
	if got := do[[]string](p, `return answers()`); len(got) != 2 {
		t.Errorf("failed questions leave answers: %q", got)
	}
	got := do[[]string](p, `const at = []; $('#tab-chat').focus();
		for (const key of ['ArrowRight', 'ArrowRight', 'End', 'ArrowRight', 'ArrowLeft']) { document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})); at.push(document.activeElement.id) }
		return at`)
	if want := []string{"tab-proof", "tab-bench", "tab-diagnosis", "tab-chat", "tab-diagnosis"}; !slices.Equal(got, want) {
		t.Errorf("the arrow keys go to %q", got)
	}
	if light := do[string](p, `$('#theme').value = 'dark'; $('#theme').dispatchEvent(new Event('change')); return getComputedStyle(document.body).colorScheme`); light != "dark" {
		t.Errorf("dark is %q", light)
	}
}

// TestShown: the reader sees the model's template beside the prompt that it makes, sets the
// penalty of repetitions, and sees a node's values by tokens, whose text is there.
func TestShown(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	p.size("light", 1200)
	p.visit(s.URL)
	if set := do[string](p, `await ready(); $('#repeat-penalty').value = 1.3; $('#repeat-last').value = -1; ask('settings'); return answered(1)`); !strings.Contains(set, `"repeatPenalty":1.3`) || !strings.Contains(set, `"repeatLast":-1`) {
		t.Errorf("the penalty is %q", set)
	}
	if said := do[string](p, `ask('What is it?'); await answered(2); $('#show-prompt').click(); await until('the prompt', () => !$('#prompt').hidden);
		const log = $('#log'); return text('#prompt summary') + ': ' + $('#prompt details pre').textContent + ', hidden below: ' + Math.round(log.scrollHeight - log.clientHeight - log.scrollTop)`); said != "The template itself: {{ messages }}, hidden below: 0" {
		t.Errorf("beside the prompt stands %q", said)
	}
	if rows := do[string](p, `openProbe(); $('#probe-run').click(); await until('the values', () => $('#probe-facts')); return text('#probe-result tbody')`); strings.Count(rows, "␣sky") != 7 {
		t.Errorf("values by token: %q", rows)
	}
}

// TestChange: sliders multiply a node's values, of all heads and positions or of one each, and the last move counts, also
// one that comes while another is computed, or an answer. A node without heads has no slider for them.
func TestChange(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	p.size("light", 1200)
	p.visit(s.URL + "?lang=en#probe")
	const move = `const move = (id, v) => { $(id).value = v; $(id).dispatchEvent(new Event('input', {bubbles: true})); $(id).dispatchEvent(new Event('change', {bubbles: true})) };
		const said = () => until('the effect', () => !$('#probe-run').hidden && text('#change-result p')); `
	if got := do[string](p, move+`await ready(); await until('nodes', () => $('#node').value); $('#node').value = 'blk.0.attention'; $('#probe-text').value = 'settings'; $('#probe-run').click(); await until('sliders', () => $('#change-by'));
		const before = text('#change-result'); move('#change-by', 0); move('#change-position', 2); move('#change-head', 7);
		await until('the last', () => text('#change-result').includes('"heads":"7"')); return before + await said() + [...document.querySelectorAll('.slider output')].map(e => e.textContent).join('|')`); !strings.Contains(got, `{"node":"blk.0.attention","heads":"7","positions":"2","by":0}`) || !strings.HasSuffix(got, "× 0|2: ␣sky|7") || strings.HasPrefix(got, "Unchanged, Unchanged") {
		t.Errorf("after three moves the page says %q", got)
	}
	if got := do[string](p, move+`move('#change-head', -1); move('#change-position', -1); move('#change-by', 1); await until('the last', () => text('#change-result').includes('keep every bit')); return said()`); !strings.Contains(got, "keep every bit") {
		t.Errorf("a factor of 1: %q", got)
	}
	if got := do[string](p, move+`move('#change-by', 0.5); await until('the effect', () => text('#change-result').includes('"by":0.5')); return text('#change-result tbody')`); !strings.Contains(got, "␣blue.") || !strings.Contains(got, "36.4%") {
		t.Errorf("the next tokens are %q", got)
	}
	if got := do[string](p, move+`ask('count for me'); await until('some tokens', () => answers()[0]?.length > 10); move('#change-by', -1); move('#change-by', 3);
		const before = text('#change-result'); $('#stop').click(); await until('the last', () => text('#change-result').includes('"by":3')); return (await said()) + (before.includes('"by":3') ? ' too early' : '')`); !strings.Contains(got, `"by":3`) || strings.HasSuffix(got, "early") {
		t.Errorf("after a move beside an answer the page says %q", got)
	}
	if got := do[bool](p, `$('#node').value = 'blk.0.attn_norm'; $('#probe-run').click(); await until('values', () => text('h3.mono') === 'blk.0.attn_norm'); return !$('#change-head') && !!$('#change-position')`); !got {
		t.Error("a norm has sliders of heads, or none of positions")
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// keys presses keys.
func (p *tab) keys(keys string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.KeyEvent(keys)); err != nil {
		p.t.Fatal(err)
	}
}

// TestKeyboard uses the page without a mouse.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	p.visit(s.URL)
	do[any](p, `localStorage.setItem('backend', 'webgpu')`) // there is nothing to be said of it then
	p.visit(s.URL + "?again")
	do[any](p, `await ready()`)
	at := func() string {
		return do[string](p, `const e = document.activeElement; return e.id || e.className || e.innerText || e.tagName`)
	}
	if at() != "say" {
		t.Errorf("the page begins at %s", at())
	}
	do[any](p, `$('#say').blur(); document.body.tabIndex = -1; document.body.focus()`)
	var order []string
	for range 17 {
		p.keys(kb.Tab)
		order = append(order, at())
	}
	want := []string{"skip", "GPU", "open-models", "tab-chat", "⚙", "forget", "find", "small", "small", "log", "small", "small", "say",
		"attach", "show-prompt", "open-probe", "send"}
	if !slices.Equal(order, want) {
		t.Errorf("Tab goes to %q, want %q", order, want)
	}
	do[any](p, `document.body.focus()`)
	p.keys(kb.Tab)
	p.keys(kb.Enter)
	if at() != "say" { // by two keys from anywhere
		t.Errorf("behind the link for skipping is %s", at())
	}
	do[any](p, `$('#open-models').focus()`)
	p.keys(kb.Enter)
	do[any](p, `await until('the dialog', () => $('#models').open && $('#kept li'))`)
	for range 20 {
		p.keys(kb.Tab)
		if !do[bool](p, `return $('#models').contains(document.activeElement) || document.activeElement === document.body`) {
			t.Errorf("Tab leaves the open dialog for %s", at())
		}
	}
	p.keys(kb.Escape)
	if open := do[bool](p, `return $('#models').open`); open || at() != "open-models" {
		t.Errorf("Escape: open %v, at %s", open, at())
	}
	do[any](p, `$('#max-tokens').value = 100000; $('#say').focus()`)
	p.keys("count for me")
	p.keys(kb.Enter)
	do[any](p, `await until('some tokens', () => answers()[0]?.length > 10)`)
	p.keys(kb.Escape)
	if said := do[string](p, `await answered(1); return text('.turn.assistant .stats')`); !strings.HasSuffix(said, "stopped") || at() != "say" {
		t.Errorf("an answer that Escape stopped says %q, and the reader is at %s", said, at())
	}
	do[any](p, `$('#tab-chat').focus()`)
	p.keys(kb.ArrowRight)
	p.keys(kb.Tab + kb.Tab)
	if at() != "proof-run" {
		t.Errorf("behind the tabs is %s", at())
	}
	p.keys(kb.Enter)
	if said := do[string](p, `await until('the verdict', () => $('#verdict')); return document.activeElement.id`); said != "verdict" {
		t.Errorf("behind a proof the reader is at %q", said)
	}
}

// TestLanguages opens all of the page in the other languages on a narrow phone: each word of the interface is one of the
// language, nothing is cut, and Escape closes what was opened.
func TestLanguages(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	p.size("light", 320)
	p.visit(s.URL + "?lang=en")
	do[any](p, `await ready(); $('#forget').click(); $('#receipts').click(); $('#tools').value = '[{"type": "function", "function": {"name": "clock"}}]'; ask('What is it?'); await answered(1); ask('call clock'); await until('the call', () => $('.result') && !$('#send').hidden);
		openProbe(); $('#probe-run').click(); await until('the values', () => $('#probe-facts') && !$('#probe-run').hidden);
		for (const x of ['proof', 'bench']) { $('#tab-' + x).click(); $('#' + x + '-run').click(); await until(x, () => $('#' + x + '-result').childElementCount && !$('#' + x + '-run').hidden) }`)
	p.upload("#receipt-file", written(t, "receipt.json", `{"receipt": 1, "answer": [1, 2]}`))
	do[any](p, `await until('the verdict', () => $('#receipt-verdict') && !$('#proof-run').hidden); window.words = e => e.textContent + '|' + (e.getAttribute('aria-label') ?? '') + '|' + (e.placeholder ?? '');
		$('#open-models').click(); await until('the list', () => $('#kept li')); window.english = new Map([...document.querySelectorAll('[data-said]')].map(e => [e, words(e)])); $('#models').close(); window.all = english.size`)
	for _, lang := range []string{"ar", "zh"} {
		got := do[[]string](p, `$('#language').value = '`+lang+`'; $('#language').dispatchEvent(new Event('change'));
			return [...english].filter(([e, was]) => e.isConnected && /[a-z]{3}/.test(was.replace(/demo\.gguf|clock|logits?|ORG|CPU|WebAssembly|https?|blk\S+/gi, '')) && words(e) === was).map(([e, was]) => was)`)
		for _, x := range got {
			t.Errorf("%s: in English stands %q", lang, x)
		}
		for _, tab := range []string{"chat", "proof", "bench", "diagnosis"} {
			do[any](p, `$('#tab-`+tab+`').click(); $('#probe').hidden || $('#open-probe').click(); $('main').scrollTop = 0`)
			p.look(tab + "-whole-" + lang)
		}
		do[any](p, `$('#tab-chat').click(); $('#settings').open = $('#more').open = true`)
		p.look("settings-" + lang)
		do[any](p, `$('#temperature').focus()`)
		p.keys(kb.Escape)
		do[any](p, `$('#list-talks').click(); $('#find').focus()`)
		p.look("talks-" + lang)
		p.keys(kb.Escape)
		do[any](p, `openProbe()`)
		p.look("probe-" + lang)
		if got := do[string](p, `return $('#settings').open + ' ' + document.body.classList.contains('listing')`); got != "false false" {
			t.Errorf("behind Escape the settings and the list are open: %s", got)
		}
		do[any](p, `$('#open-models').click(); await until('the list', () => $('#kept li'))`)
		p.look("models-whole-" + lang)
		p.keys(kb.Escape)
	}
	if n := do[int](p, `return all`); n < 150 {
		t.Errorf("%d elements have words", n)
	}
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// A shelf is another site, which gives files by ranges, breaks off and lies as it is told to.
type shelf struct {
	mu     sync.Mutex
	data   []byte            // of all files but those
	files  map[string][]byte // which have their own
	breaks bool              // whether the next answer breaks off behind its first half
	stalls bool              // whether answers stop there until the browser leaves,
	over   chan struct{}     // or the test is over
	asked  []string          // the ranges
	met    chan struct{}     // if there, what breaks off waits for a request of /met
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/met" {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		select {
		case s.met <- struct{}{}:
		default:
		}
		return
	}
	s.mu.Lock()
	data, breaks, stalls := s.data, s.breaks, s.stalls
	if own := s.files[r.URL.Path]; own != nil {
		data = own
	}
	s.breaks = false
	s.asked = append(s.asked, r.Header.Get("Range"))
	s.mu.Unlock()
	if r.URL.Path != "/closed.gguf" {
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/none"):
		http.NotFound(w, r)
		return
	case r.URL.Path == "/page.gguf":
		data = []byte("<!doctype html><title>Log in</title>")
	case r.URL.Path == "/endless.gguf": // of no length
		w.Write(data[:4])
		http.NewResponseController(w).Flush()
		return
	case r.URL.Path == "/shifted.gguf":
		w.Header().Set("Access-Control-Expose-Headers", "Content-Range")
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 7-%d/%d", len(data)-1, len(data)))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(data[7:])
		return
	case r.URL.Path == "/plain.gguf": // by a server that knows no ranges
		r.Header.Del("Range")
	}
	if !breaks && !stalls {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	w.WriteHeader(http.StatusOK)
	w.Write(data[:len(data)/2])
	http.NewResponseController(w).Flush()
	if s.met != nil { // else the browser may lose what it did not read
		select {
		case <-r.Context().Done():
		case <-s.met:
		}
	}
	if stalls {
		select {
		case <-r.Context().Done():
		case <-s.over:
		}
	}
	panic(http.ErrAbortHandler)
}

// tell changes how a shelf answers.
func (s *shelf) tell(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

const fetching = `
	const add = async (url, sum) => { if (!$('#models').open) $('#open-models').click(); $('#url').value = url; $('#sum').value = sum; $('#fetch').click() };
	const row = name => [...document.querySelectorAll('#kept li')].find(e => e.querySelector('.name')?.textContent === name);
	const press = (name, word) => [...row(name).querySelectorAll('button')].find(b => b.textContent === word).click();
	const quiet = () => { for (const b of document.querySelectorAll('#notes [role=alert] button')) if (b.textContent === 'Dismiss') b.click() };
	const list = async () => { if (!$('#models').open) $('#open-models').click(); await until('the list', () => $('#kept li')) };
`

// TestModels: a model comes by ranges through a connection that breaks, is checked, stays
// when the page is left, and can be deleted; what is wrong with it is said.
func TestModels(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	data := append([]byte("GGUF"), bytes.Repeat([]byte("karat"), 400_000)...)
	books := &shelf{data: data, breaks: true, over: make(chan struct{})}
	other := httptest.NewServer(books)
	defer other.Close()
	defer close(books.over)
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	p.visit(s.URL)

	said := do[string](p, fmt.Sprintf(fetching+`await ready(); add('%s/big.gguf', '%s'); await until('the file', () => row('big.gguf')?.innerText.includes('Check')); return row('big.gguf').innerText`, other.URL, sum))
	if !strings.Contains(said, "1.9\u00a0MiB") || !strings.Contains(said, sum[:16]) {
		t.Errorf("the kept file is shown as %q", said)
	}
	if len(books.asked) != 2 {
		t.Errorf("asked for %q", books.asked)
	}
	for _, c := range []struct{ path, sum, want string }{
		{"/wrong.gguf", strings.Repeat("0", 64), "SHA-256 is not the expected one"}, {"/page.gguf", "", "not a GGUF file"}, {"/none.gguf", "", "the server says 404"}, {"/closed.gguf", "", "CORS"},
	} {
		said := do[string](p, fmt.Sprintf(fetching+`quiet(); add('%s%s', '%s'); return await failed('%[2]s') + await until('the address', () => $('#url').value)`, other.URL, c.path, c.sum))
		if !strings.Contains(said, c.want) || !strings.HasSuffix(said, other.URL+c.path) { // which is there to be mended
			t.Errorf("%s: the page says %q", c.path, said)
		}
	}
	if in := do[string](p, `$('#models').close(); return until('the note in the page', () => $('#notes').parentElement === document.body && text('#notes'))`); !strings.Contains(in, "CORS") {
		t.Errorf("behind the closed dialog the page says %q", in)
	}
	if said := do[string](p, fetching+`quiet(); await list(); press('big.gguf', 'Check'); return until('the check', () => row('big.gguf').innerText.includes('is right') && row('big.gguf').innerText)`); said == "" {
		t.Error("the check says nothing")
	}

	books.tell(func() { books.stalls = true })
	if said := do[string](p, fmt.Sprintf(fetching+`quiet(); add('%s/half.gguf', ''); await until('a part', () => row('half.gguf')?.innerText.match(/[KM]iB.* of/)); press('half.gguf', 'Pause');
		return until('the rest', () => row('half.gguf')?.innerText.includes('Resume') && row('half.gguf').innerText)`, other.URL)); !strings.Contains(said, "1.9\u00a0MiB") {
		t.Errorf("a paused download says %q", said)
	}
	books.tell(func() { books.stalls, books.asked = false, nil })

	p.visit(s.URL + "?again") // the page is left, and opened anew
	if said := do[string](p, fetching+`await ready(); await list(); press('half.gguf', 'Resume'); await until('all', () => row('half.gguf')?.innerText.includes('Use')); return row('half.gguf').innerText`); !strings.Contains(said, "sha256") {
		t.Errorf("a resumed download says %q", said)
	}
	if len(books.asked) != 1 || books.asked[0] == "bytes=0-" {
		t.Errorf("a resumed download asks for %q", books.asked)
	}
	other.Close()
	said = do[string](p, fetching+`press('big.gguf', 'Use'); await until('the model', () => text('#model').startsWith('big.gguf')); await ready();
		await list(); press('big.gguf', 'Delete'); press('big.gguf', 'Delete for good'); await until('its end', () => !row('big.gguf')); press('half.gguf', 'Delete'); press('half.gguf', 'Delete for good'); await until('its end', () => !row('half.gguf')); return text('#room')`)
	if !strings.Contains(said, "are used") {
		t.Errorf("the room is %q", said)
	}
	for _, e := range p.errors() {
		if !strings.Contains(e, "404") && !strings.Contains(e, "ERR_") && !strings.Contains(e, "CORS") {
			t.Error("console:", e)
		}
	}
}

// TestNetwork: servers without ranges, whose file changes, and that lie are dealt with or
// told of, and so are too little room and another tab that brings the same file.
func TestNetwork(t *testing.T) {
	t.Parallel()
	p := openAlone(t) // whose disk is full in the end
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	books := &shelf{data: append([]byte("GGUF"), bytes.Repeat([]byte("karat"), 400_000)...), breaks: true, over: make(chan struct{})}
	other := httptest.NewServer(books)
	defer other.Close()
	defer close(books.over)
	p.visit(s.URL)
	if said := do[string](p, fmt.Sprintf(fetching+`await ready(); add('%s/plain.gguf', ''); await until('the file', () => row('plain.gguf')?.innerText.includes('Check')); return row('plain.gguf').innerText`, other.URL)); !strings.Contains(said, "1.9\u00a0MiB") || len(books.asked) != 2 {
		t.Errorf("without ranges: %q, asked %q", said, books.asked)
	}

	books.tell(func() { books.stalls = true })
	do[any](p, fmt.Sprintf(fetching+`add('%s/new.gguf', ''); await until('a part', () => row('new.gguf')?.innerText.match(/[KM]iB.* of/))`, other.URL))
	q := p.beside()
	q.visit(s.URL)
	if said := do[string](q, fmt.Sprintf(fetching+`await ready(); add('%s/new.gguf', ''); return failed('taken')`, other.URL)); !strings.Contains(said, "Another tab") {
		t.Errorf("a second tab says %q", said)
	}
	do[any](p, fetching+`press('new.gguf', 'Pause'); await until('the rest', () => row('new.gguf').innerText.includes('Resume'))`)
	data := append([]byte("GGUF"), bytes.Repeat([]byte("other"), 300_000)...)
	books.tell(func() { books.stalls, books.data, books.asked = false, data, nil })
	said := do[string](p, fetching+`press('new.gguf', 'Resume'); await until('all', () => row('new.gguf').innerText.includes('Use')); return row('new.gguf').innerText`)
	if sum := fmt.Sprintf("%x", sha256.Sum256(data)); !strings.Contains(said, sum[:16]) || books.asked[len(books.asked)-1] != "bytes=0-" {
		t.Errorf("a file that changed: %q, asked %q", said, books.asked)
	}

	for _, c := range []struct{ url, want string }{
		{other.URL + "/endless.gguf", "does not say how long"}, {other.URL + "/shifted.gguf", "byte 7 where 0 was asked for"},
		{"http://karat.invalid/model.gguf", "The network did not give the file"}, {"ftp://127.0.0.1/model.gguf", "The network did not give the file"},
		{other.URL + "/none%E0%A4.gguf?x#y", "the server says 404"},
	} {
		if said := do[string](p, fmt.Sprintf(fetching+`quiet(); add('%s', ''); return failed('network')`, c.url)); !strings.Contains(said, c.want) {
			t.Errorf("%s: the page says %q", c.url, said)
		}
	}
	if said := do[string](p, fetching+`add('model.gguf', ''); return $('#url').validationMessage`); said != "This is no address." {
		t.Errorf("what is no address: %q", said)
	}
	// The browser enforces this, whatever room it says there is.
	if _, err := chromedp.Call(p.ctx, storage.OverrideQuotaForOrigin, storage.OverrideQuotaForOriginParams{Origin: s.URL, QuotaSize: new(4e6)}); err != nil {
		t.Fatal(err)
	}
	if said := do[string](p, fmt.Sprintf(fetching+`quiet(); add('%s/room.gguf', ''); return failed('quota')`, other.URL)); !strings.Contains(said, "not enough room") {
		t.Errorf("without room the page says %q", said)
	}
}

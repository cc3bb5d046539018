//go:build !js

package web

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/karat-run/karat/internal/dev/golden"
)

var (
	shots = flag.String("shots", "", "write screenshots of the page to this `folder`")
	axe   = flag.String("axe", "", "have axe-core, this `file`, inspect the page as well")
)

// A tab is a page that a test uses.
type tab struct {
	t   *testing.T
	ctx context.Context

	shot string // how screenshots of this size are called

	mu   sync.Mutex
	said []string // errors on the page's console
}

// browse starts a headless browser until ctx ends.
func browse(ctx context.Context, flags ...chromedp.ExecAllocatorOption) (context.Context, context.CancelFunc, error) {
	o := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), flags...)
	if os.Geteuid() == 0 { // root has no sandbox there
		o = append(o, chromedp.NoSandbox)
	}
	ctx, _ = chromedp.NewExecAllocator(ctx, o...)
	ctx, cancel := chromedp.NewContext(ctx)
	return ctx, cancel, chromedp.Do(ctx)
}

// shared is the browser of all tests without flags, each with a profile of its own.
var shared struct {
	start sync.Once
	ctx   context.Context
	close context.CancelFunc
	err   error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.close != nil {
		shared.close()
	}
	os.Exit(code)
}

// open opens a tab in the shared browser, or skips the test where there is none.
func open(t *testing.T) *tab {
	t.Helper()
	shared.start.Do(func() { shared.ctx, shared.close, shared.err = browse(context.Background()) })
	found(t, shared.err)
	ctx, cancel := chromedp.NewContext(shared.ctx, chromedp.WithNewBrowserContext())
	return newTab(t, ctx, cancel)
}

// openAlone opens a tab in a browser of its own.
func openAlone(t *testing.T, flags ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	ctx, cancel, err := browse(t.Context(), flags...)
	found(t, err)
	return newTab(t, ctx, cancel)
}

// found skips the test where err says that there is no browser, and fails it at other errors.
func found(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) {
		golden.Lacking(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newTab(t *testing.T, ctx context.Context, cancel context.CancelFunc) *tab {
	t.Helper()
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	found(t, chromedp.Do(ctx))
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, cdplog.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *tab) hear(ev any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch ev := ev.(type) {
	case *cdplog.EventEntryAdded:
		if ev.Entry.Level == cdplog.EntryLevelError {
			p.said = append(p.said, ev.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		p.said = append(p.said, ev.ExceptionDetails.Text)
	}
}

// errors are those on the console since the last call.
func (p *tab) errors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.said
	p.said = nil
	return all
}

// helpers are what the scripts of tests use.
const helpers = `
	const $ = s => document.querySelector(s), text = s => $(s)?.innerText.trim() ?? '';
	const until = async (what, f, seconds = 20) => {
		for (const end = Date.now() + seconds * 1000; Date.now() < end; await new Promise(go => setTimeout(go, 20))) { const v = await f(); if (v) return v }
		throw new Error('waited ' + seconds + ' s for ' + what + '; the page says: ' + document.body.innerText.slice(0, 1500));
	};
	const ready = (seconds) => until('the model', () => $('#model b') && !$('#send').disabled, seconds);
	const ask = s => { $('#say').value = s; $('#send').click() };
	const answers = () => [...document.querySelectorAll('.turn.assistant')].map(e => (e.querySelector('.text pre code') || e.querySelector('.text')).textContent);
	const answered = n => until('answer ' + n, () => answers().length === n && !document.querySelector('.typing') && !$('#send').hidden && answers().at(-1), 60);
	const openProbe = () => { $('#tab-chat').click(); if ($('#probe').hidden) $('#open-probe').click() };
	const failed = kind => until('the error ' + kind + ' where it is seen', () => { // not behind an open dialog
		const e = $('#notes [role=alert]');
		return e && (!$('dialog[open]') || e.closest('dialog')) && text('#notes [role=alert]');
	}, 60);
`

// do runs a script in the page and returns what it returns.
func do[T any](p *tab, script string) T {
	p.t.Helper()
	wait := func(e *runtime.EvaluateParams) { e.AwaitPromise = new(true) }
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T]("(async () => {"+helpers+script+"})()", wait))
	if err != nil {
		p.t.Fatalf("%s: %v", strings.TrimSpace(script), err)
	}
	return v
}

func (p *tab) visit(url string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Navigate(url)); err != nil {
		p.t.Fatal(err)
	}
}

// inspection returns what is wrong with how the page looks and with what a screen reader
// can tell of it.
const inspection = `
	const problems = [], tell = s => { if (problems.length < 20) problems.push(s) };
	if (document.documentElement.scrollWidth > document.documentElement.clientWidth) tell('the page is ' + document.documentElement.scrollWidth + ' wide');
	const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
	const rgb = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data] };
	const lum = c => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]) };
	const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c } return [255, 255, 255] };
	for (const e of document.querySelectorAll('body *')) {
		if (!e.checkVisibility() || e.closest('.unseen, .skip, :disabled') || $('dialog[open]') && !e.closest('dialog')) continue;
		const words = [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()), box = e.getBoundingClientRect(), name = e.tagName + ' ' + e.textContent.trim().slice(0, 30);
		if (words) {
			const s = getComputedStyle(e), a = lum(rgb(e.closest('svg') ? s.fill : s.color)), b = lum(behind(e)), contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
			if (contrast < 4.5) tell('contrast ' + contrast.toFixed(1) + ': ' + name);
			if (!e.closest('.scroll, .shown, pre, .tokens') && (box.right > innerWidth + .5 || box.left < -.5)) tell('ends outside: ' + name);
			if (/\{\w+\}|undefined|NaN\b(?!\))|\[object/.test(e.textContent) && !e.children.length && !/^nans$|^NaN$/.test(e.textContent)) tell('says ' + name);
		}
		if (e.matches('button, select, input, textarea, [role=region], svg[role=img], progress, meter')) {
			const named = e.getAttribute('aria-label') || e.labels?.[0]?.textContent.trim() || e.matches('button') && e.textContent.trim();
			if (!named) tell('has no name: ' + e.outerHTML.slice(0, 80));
			if (e.matches('button, select') && (box.width < 24 || box.height < 24)) tell('too small to touch: ' + name);
		}
	}
	return problems;
`

// size sets the window's width and the light that the reader likes.
func (p *tab) size(scheme string, width int64) {
	p.t.Helper()
	p.shot = fmt.Sprintf("%s-%d", scheme, width)
	size := chromedp.EmulateViewport(width, 800)
	if width < 600 {
		size = chromedp.EmulateViewport(width, 800, chromedp.EmulateMobile)
	}
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err := errors.Join(err, chromedp.Do(p.ctx, size)); err != nil {
		p.t.Fatal(err)
	}
}

// unnamed are the roles of the things that a screen reader could not name, though they
// are to be read or used.
func (p *tab) unnamed() (roles []string) {
	p.t.Helper()
	tree, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		p.t.Fatal(err)
	}
	named := 0
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		switch role := strings.Trim(string(n.Role.Value), `"`); role {
		case "button", "checkbox", "combobox", "dialog", "image", "link", "log", "meter", "progressbar", "region", "spinbutton", "tab", "table", "tabpanel", "textbox":
			if named++; n.Name == nil || strings.Trim(string(n.Name.Value), `" `) == "" {
				roles = append(roles, role)
			}
		}
	}
	if named < 5 {
		p.t.Errorf("a screen reader finds %d things", named)
	}
	return roles
}

// look inspects the page, and saves what it looks like.
func (p *tab) look(name string) {
	p.t.Helper()
	name += "-" + p.shot
	for _, x := range do[[]string](p, inspection) {
		p.t.Errorf("%s: %s", name, x)
	}
	if roles := p.unnamed(); roles != nil {
		p.t.Errorf("%s: to a screen reader these have no names: %q", name, roles)
	}
	if *axe != "" {
		b, err := os.ReadFile(*axe)
		if err != nil {
			p.t.Fatal(err)
		}
		for _, x := range do[[]string](p, "if (!window.axe) {"+string(b)+"}\nreturn (await axe.run()).violations.map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.target.join(' ')).join(' | '))") {
			p.t.Errorf("%s: axe: %s", name, x)
		}
	}
	if *shots == "" {
		return
	}
	image, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, name+".png"), image, 0o666)
	}
	if err != nil {
		p.t.Fatal(name, err)
	}
}

// TestPage uses the page as a reader does, with a program that stands in for Karat's.
func TestPage(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	p.size("light", 1200)
	p.visit(s.URL)
	do[any](p, `await ready()`)
	p.look("start")
	got := do[[]string](p, `ask('What is the <i>color</i>?'); await answered(1); return answers()`)
	if len(got) != 1 || got[0] != "The sky is <b>blue</b> & wide." {
		t.Errorf("the answer is %q", got)
	}
	do[any](p, `$('#show-prompt').click(); await until('the prompt', () => !$('#prompt').hidden)`)
	p.look("chat")
	p.size("dark", 1200)
	p.look("chat")
	p.tour("")

	do[any](p, `localStorage.setItem('backend', 'webgpu')`)
	p.size("light", 390)
	p.visit(s.URL + "?lang=ar")
	do[any](p, `await ready(); $('#forget').click(); ask('ما لون السماء؟'); await answered(1)`)
	p.look("chat-arabic")
	p.tour("-arabic")
	p.size("light", 1200)
	p.look("models-arabic")
	p.visit(s.URL + "?lang=ar#proof")
	do[any](p, `await ready(); $('#proof-run').click(); await until('the verdict', () => $('#verdict'))`)
	p.look("proof-arabic")
	p.size("dark", 390)
	p.visit(s.URL + "?lang=en")
	do[any](p, `await ready(); $('#forget').click(); ask('What is the color?'); await answered(1)`)
	p.look("chat")
	p.tour("")

	dir := filepath.Join(t.TempDir(), "site") // on a server of files that knows no headers, in a folder
	if err := standIn(t).Write(dir); err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(http.StripPrefix("/sub/", http.FileServer(http.Dir(dir))))
	defer plain.Close()
	p.visit(plain.URL + "/sub/")
	do[any](p, `await ready(); ask('What is the color?'); await answered(1)`)
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// tour looks at the other tabs and at the dialog.
func (p *tab) tour(suffix string) {
	p.t.Helper()
	for _, x := range []string{"proof", "bench", "probe"} {
		do[any](p, fmt.Sprintf(`'%[1]s' === 'probe' ? openProbe() : $('#tab-%[1]s').click(); $('#%[1]s-run').click(); await until('the result', () => $('#%[1]s-result').childElementCount && !$('#%[1]s-run').hidden)`, x))
		p.look(x + suffix)
	}
	do[any](p, `$('#change-by').value = 0; $('#change-by').dispatchEvent(new Event('input', {bubbles: true})); $('#change-by').dispatchEvent(new Event('change', {bubbles: true})); await until('the effect', () => text('#change-result') && !$('#probe-run').hidden); $('#change-result').parentElement.scrollIntoView()`)
	p.look("change" + suffix)
	do[any](p, `$('#open-models').click(); await until('the list', () => $('#kept li'))`)
	p.look("models" + suffix)
}

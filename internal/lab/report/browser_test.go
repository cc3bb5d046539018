//go:build !js

package report

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab/diagnose"
)

var shots = flag.String("shots", "", "write screenshots of the pages to this `folder`")

// browser starts a headless browser, or skips the test where there is none.
func browser(t *testing.T) context.Context {
	t.Helper()
	options := slices.Clone(chromedp.DefaultExecAllocatorOptions[:])
	if os.Geteuid() == 0 { // root has no sandbox there
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	err := chromedp.Do(ctx)
	if errors.Is(err, exec.ErrNotFound) {
		golden.Lacking(t, err) // a browser
	}
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// inspection runs in a page and returns what is wrong with how it looks: what is
// wider than the window, text on other text or too faint, and anything that was loaded.
const inspection = `(() => {
	const problems = [], say = s => { if (problems.length < 20) problems.push(s) };
	const root = document.documentElement, text = e => e.textContent.trim().slice(0, 30);
	if (root.scrollWidth > innerWidth) say('the page is ' + root.scrollWidth + ' wide');
	for (const e of performance.getEntriesByType('resource')) say('loads ' + e.name);

	const rgb = s => (s.match(/[\d.]+/g) || []).map(Number);
	const lum = c => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]) };
	const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length == 3 || c[3] > 0) return c } return [255, 255, 255] };
	for (const e of document.querySelectorAll('body *')) {
		if (![...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()) || !e.checkVisibility() || e.tagName == 'STYLE') continue;
		const s = getComputedStyle(e), a = lum(rgb(s.color)), b = lum(behind(e));
		const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (contrast < 4.5) say('contrast ' + contrast.toFixed(1) + ': ' + text(e));
		const box = e.getBoundingClientRect();
		if (!e.closest('.scroll, pre') && box.right > innerWidth + .5) say('ends at ' + box.right + ': ' + text(e));
	}
	const labels = [...document.querySelectorAll('.map tfoot th')].map(e => [e, e.getBoundingClientRect()]);
	for (const [e, a] of labels) if (e.scrollWidth > a.width + 1) say('text on text: ' + text(e));
	return problems;
})()`

// TestBrowser looks at the pages in a real browser, on a desk and on a phone, light
// and dark.
func TestBrowser(t *testing.T) {
	ctx := browser(t)
	all := samples(t)
	all["large"] = large(300, 100)
	dir := t.TempDir()
	for sample, d := range all {
		path := filepath.Join(dir, sample+".html")
		if err := os.WriteFile(path, []byte(write(t, HTML, d)), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := chromedp.Do(ctx, chromedp.Navigate("file://"+path)); err != nil {
			t.Fatal(sample, err)
		}
		look(t, ctx, sample, "light", 1200)
		look(t, ctx, sample, "dark", 390)
		if sample == "ember" {
			look(t, ctx, sample, "dark", 1200)
			look(t, ctx, sample, "light", 390)
		}
	}
	if *shots != "" {
		printed(t, ctx, filepath.Join(dir, "ember.html"))
	}
}

// TestStill looks at a page in a browser that runs no scripts.
func TestStill(t *testing.T) {
	ctx := browser(t)
	open(t, ctx, samples(t)["ember"])
	until(t, ctx, `document.querySelectorAll('.live .uplot').length >= 5`)
	if n := elements(t, ctx, `noscript pre`); n != 0 {
		t.Fatal("the text is shown beside the charts")
	}
	if _, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	open(t, ctx, samples(t)["ember"])
	if n := elements(t, ctx, `noscript pre`); n != 1 || elements(t, ctx, `.live`) != 0 {
		t.Fatalf("without scripts the page has %d texts", n)
	}
	look(t, ctx, "still", "light", 1200)
	look(t, ctx, "still", "dark", 390)
}

// TestCharts points at charts, enlarges one, and wants it whole again: by the button that
// shows only then, and by a double click.
func TestCharts(t *testing.T) {
	ctx := browser(t)
	open(t, ctx, samples(t)["ember"])
	const first = `.charts figure:first-child .u-over` // the equations
	at := middle(t, ctx, first)
	move := func(x, y float64, options ...chromedp.MouseOption) {
		t.Helper()
		if err := chromedp.Do(ctx, chromedp.MouseEvent(chromedp.MouseMoved, x, y, options...)); err != nil {
			t.Fatal(err)
		}
	}
	tip := func() string {
		t.Helper()
		until(t, ctx, `!document.querySelector('.tip').hidden`)
		return evaluate[string](t, ctx, `document.querySelector('.tip').innerText`)
	}
	move(at[0], at[1])
	if s := tip(); !strings.Contains(s, " · ") || !strings.Contains(s, "what rounding makes ") || !strings.Contains(s, "hold") {
		t.Errorf("the chart says %q", s)
	}
	if *shots != "" {
		image, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		saveShot(t, "pointed.png", image)
	}
	const whole = `document.querySelector('.charts .live button').hidden`
	until(t, ctx, whole)
	drag := func() {
		t.Helper()
		err := chromedp.Do(ctx, chromedp.MouseEvent(chromedp.MousePressed, at[0], at[1], chromedp.ButtonLeft))
		move(at[0]+40, at[1]+5, chromedp.ButtonLeft)
		move(at[0]+80, at[1]+5, chromedp.ButtonLeft)
		if err := errors.Join(err, chromedp.Do(ctx, chromedp.MouseEvent(chromedp.MouseReleased, at[0]+80, at[1]+5, chromedp.ButtonLeft))); err != nil {
			t.Fatal(err)
		}
	}
	drag()
	until(t, ctx, `!`+whole)
	if *shots != "" {
		image, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		saveShot(t, "enlarged.png", image)
	}
	evaluate[bool](t, ctx, `(document.querySelector('.charts .live button').click(), true)`)
	until(t, ctx, whole)
	drag()
	until(t, ctx, `!`+whole)
	if err := chromedp.Do(ctx, chromedp.MouseClickXY(at[0], at[1], chromedp.ClickCount(2))); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, whole)
	cell := middle(t, ctx, `.map td[class^="heat"]`)
	move(cell[0], cell[1])
	if s := tip(); !strings.Contains(s, "layer ") || !strings.HasSuffix(s, " floors") {
		t.Errorf("a cell says %q", s)
	}
}

// TestTouch points at a chart with a finger.
func TestTouch(t *testing.T) {
	ctx := browser(t)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(390, 900, chromedp.EmulateMobile)); err != nil {
		t.Fatal(err)
	}
	open(t, ctx, samples(t)["ember"])
	at := middle(t, ctx, `.charts .u-over`)
	_, err := chromedp.Call(ctx, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: input.DispatchTouchEventTypeTouchStart, TouchPoints: []*input.TouchPoint{{X: at[0], Y: at[1]}}})
	if err != nil {
		t.Fatal(err)
	}
	until(t, ctx, `!document.querySelector('.tip').hidden`)
	if s := evaluate[string](t, ctx, `document.querySelector('.tip').innerText`); !strings.Contains(s, "what rounding makes ") {
		t.Errorf("the chart says %q", s)
	}
}

// open opens a diagnosis as a page, whose charts are drawn once it has been laid out.
func open(t *testing.T, ctx context.Context, d *diagnose.Diagnosis) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, []byte(write(t, HTML, d)), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.Navigate("file://"+path)); err != nil {
		t.Fatal(err)
	}
}

func evaluate[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatal(expression, err)
	}
	return v
}

// until asks a page again and again whether something holds: the browser draws when it likes.
func until(t *testing.T, ctx context.Context, expression string) {
	t.Helper()
	for range 2000 {
		if evaluate[bool](t, ctx, expression) {
			return
		}
	}
	t.Fatal("it never holds that ", expression)
}

func elements(t *testing.T, ctx context.Context, selector string) int {
	t.Helper()
	return evaluate[int](t, ctx, `document.querySelectorAll('`+selector+`').length`)
}

// middle scrolls to the first element of a selector, once there is one, and returns its
// middle in the window.
func middle(t *testing.T, ctx context.Context, selector string) []float64 {
	t.Helper()
	until(t, ctx, `document.querySelector('`+selector+`') !== null`)
	return evaluate[[]float64](t, ctx, `(e => { e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2] })(document.querySelector('`+selector+`'))`)
}

// look inspects the page that is open, with all of it unfolded.
func look(t *testing.T, ctx context.Context, sample, scheme string, width int64) {
	t.Helper()
	shot := fmt.Sprintf("%s-%s-%d", sample, scheme, width)
	size := chromedp.EmulateViewport(width, 900)
	if width < 600 {
		size = chromedp.EmulateViewport(width, 900, chromedp.EmulateMobile)
	}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err := errors.Join(err, chromedp.Do(ctx, size)); err != nil {
		t.Fatal(shot, err)
	}
	// Charts are drawn, or drawn anew, when the browser has laid them out.
	until(t, ctx, `(() => {
		for (const e of document.querySelectorAll('details')) e.open = !e.classList.contains('raw');
		return [...document.querySelectorAll('.live')].every(box => box.querySelector('.uplot')?.scrollWidth <= box.clientWidth + 1);
	})() || document.querySelector('.live') === null`)
	problems, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](inspection))
	if err != nil {
		t.Fatal(shot, err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", shot, p)
	}
	if *shots == "" {
		return
	}
	image, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(shot, err)
	}
	saveShot(t, shot+".png", image)
}

// printed saves a page as it is printed.
func printed(t *testing.T, ctx context.Context, path string) {
	t.Helper()
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	if err := errors.Join(err, chromedp.Do(ctx, chromedp.Navigate("file://"+path))); err != nil {
		t.Fatal(err)
	}
	r, err := chromedp.Call(ctx, cdp.PrintToPDF, cdp.PrintToPDFParams{})
	if err != nil {
		t.Fatal(err)
	}
	saveShot(t, "printed.pdf", r.Data)
}

func saveShot(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(*shots, name), b, 0o666); err != nil {
		t.Fatal(err)
	}
}

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
	"testing"

	"github.com/chromedp/cdproto/emulation"
	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
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
		t.Skip("there is no browser here that could show the pages:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// inspection runs in a page and returns what is wrong with how it looks: what is
// wider than the window, text on other text or outside its chart or too small or too
// faint, and anything that was loaded.
const inspection = `(() => {
	for (const e of document.querySelectorAll('details')) e.open = !e.classList.contains('raw');
	const problems = [], say = s => { if (problems.length < 20) problems.push(s) };
	const root = document.documentElement, text = e => e.textContent.trim().slice(0, 30);
	if (root.scrollWidth > innerWidth) say('the page is ' + root.scrollWidth + ' wide');
	for (const e of performance.getEntriesByType('resource')) say('loads ' + e.name);

	const rgb = s => (s.match(/[\d.]+/g) || []).map(Number);
	const lum = c => { const f = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]) };
	const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length == 3 || c[3] > 0) return c } return [255, 255, 255] };
	for (const e of document.querySelectorAll('body *')) {
		if (![...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()) || !e.checkVisibility() || e.tagName == 'STYLE') continue;
		const s = getComputedStyle(e), a = lum(rgb(e.closest('svg') ? s.fill : s.color)), b = lum(behind(e));
		const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		if (contrast < 4.5) say('contrast ' + contrast.toFixed(1) + ': ' + text(e));
		const box = e.getBoundingClientRect();
		if (!e.closest('.scroll, pre') && box.right > innerWidth + .5) say('ends at ' + box.right + ': ' + text(e));
	}
	for (const svg of document.querySelectorAll('svg')) {
		if (!svg.checkVisibility()) continue;
		if (!svg.closest('.heat') && svg.parentElement.scrollWidth > svg.parentElement.clientWidth) say('a chart does not fit: ' + svg.getAttribute('aria-label'));
		const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width;
		const labels = [...svg.querySelectorAll('text')].map(e => [e, e.getBoundingClientRect()]);
		for (const [e, a] of labels) {
			const size = parseFloat(getComputedStyle(e).fontSize) * scale;
			if (size < 8.5) say('text of ' + size.toFixed(1) + ' px: ' + text(e));
			if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) say('outside its chart: ' + text(e));
			for (const [o, b] of labels)
				if (e !== o && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) say('text on text: ' + text(e) + ', ' + text(o));
		}
		for (const p of svg.querySelectorAll('path')) {
			const b = p.getBoundingClientRect();
			if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1) { say('a line leaves its chart: ' + svg.getAttribute('aria-label')); break }
			if (svg.closest('.heat') && p.style.fill) for (const [e, a] of labels)
				if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) { say('text on a cell: ' + text(e)); break }
		}
	}
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

//go:build !js

package web

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// visited is a page of the program that stands in for Karat's, with its model.
func visited(t *testing.T) (*tab, string) {
	t.Helper()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	t.Cleanup(s.Close)
	p.size("light", 1200)
	p.visit(s.URL)
	do[any](p, `await ready()`)
	return p, s.URL
}

// file is a file that begins so, which tells the stand-in what it is.
func file(t *testing.T, name, begin string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, append([]byte(begin), make([]byte, 5000)...), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// written is a file of a text.
func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// rest waits until nothing runs on the model.
const rest = `await until('rest', () => !busyNow()); `

const keeping = `
	const busyNow = () => !$('#send').checkVisibility() || $('#model').textContent.startsWith('Loading');
	const set = (id, v) => { const e = $('#' + id); e.value = v; e.dispatchEvent(new Event('change', {bubbles: true})) };
	const press = word => [...document.querySelectorAll('#notes button')].find(b => b.textContent === word).click();
	const prompt = async () => { const n = answers().length; ask('prompt'); return JSON.parse(await answered(n + 1)) };
`

// TestStopFirst: an answer that is stopped before its first token leaves nothing in the
// next prompt, and what was asked is there to be sent again.
func TestStopFirst(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	said := do[string](p, keeping+`ask('wait'); await until('the question', () => document.querySelector('.typing') && $('#stop').checkVisibility()); await until('how far the prompt is read', () => text('.turn.assistant .stats') === 'reading 340 of 1,200 tokens'); $('#stop').click(); `+rest+`
		const left = answers().length + ' ' + $('#say').value; return left + ' ' + JSON.stringify(await prompt())`)
	if want := `0 wait [{"role":"user","content":"prompt"}]`; said != want {
		t.Errorf("got %s, want %s", said, want)
	}
}

// TestLoads: a load that fails, or is cancelled, leaves the model that worked.
func TestLoads(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	const after = `const said = text('#notes [role=alert]'); ` + rest + `const n = answers().length; ask('What is it?'); return [text('#model b'), said, await answered(n + 1)].join('|')`
	for _, c := range []struct{ name, begin, want string }{
		{"note.txt.gguf", "Dear reader", "This file cannot be used"},
		{"strange.gguf", "GGUFmamba", "does not know this kind of model"},
		{"large.gguf", "GGUFlarge", "not enough memory"}, // found out when the old one is gone
	} {
		p.choose(file(t, c.name, c.begin))
		got := do[string](p, keeping+`await until('the error', () => $('#notes [role=alert]')); `+after)
		if !strings.HasPrefix(got, "demo.gguf|"+c.want) && !strings.Contains(got, c.want) || !strings.HasPrefix(got, "demo.gguf|") || !strings.HasSuffix(got, "|The sky is <b>blue</b> & wide.") {
			t.Errorf("%s: %q", c.name, got)
		}
		if c.begin == "GGUFmamba" && strings.Contains(got, "download it again") {
			t.Errorf("of a model that is not known the page says %q", got)
		}
	}
	p.choose(file(t, "slow.gguf", "GGUFslow"))
	got := do[string](p, keeping+`await until('the load', () => text('#model').includes('slow.gguf')); $('#cancel').click(); `+rest+`await ready(); `+after)
	if got != "demo.gguf||The sky is <b>blue</b> & wide." {
		t.Errorf("a cancelled load: %q", got)
	}
}

// TestDeleted: a model in use that is deleted leaves nothing to be sent to.
func TestDeleted(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	books := &shelf{data: append([]byte("GGUF"), bytes.Repeat([]byte("karat"), 1000)...)}
	other := httptest.NewServer(books)
	defer other.Close()
	said := do[string](p, fmt.Sprintf(fetching+`add('%s/big.gguf', ''); await until('the file', () => row('big.gguf')?.innerText.includes('Use')); press('big.gguf', 'Use');
		await until('the model', () => text('#model').startsWith('big.gguf')); await ready(); await list(); press('big.gguf', 'Delete'); press('big.gguf', 'Delete for good'); await until('its end', () => !row('big.gguf'));
		$('#models').close(); return $('#send').disabled + ' ' + text('#model')`, other.URL))
	if said != "true No model is loaded." {
		t.Errorf("behind its deletion: %q", said)
	}
}

// TestTemplateless: behind a model without a template, which continues texts and says so,
// one that has a template chats.
func TestTemplateless(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	p.choose(file(t, "bare.gguf", "GGUFbare"))
	got := do[string](p, keeping+`await until('the model', () => text('#model').startsWith('bare.gguf')); await ready(); const one = $('#mode').value + text('#notes [data-kind=mode]');
		$('#open-models').click(); $('#demo').click(); await until('the demo', () => text('#model').startsWith('demo.gguf')); await ready(); return one + '|' + $('#mode').value + text('#notes [data-kind=mode]')`)
	if !strings.HasPrefix(got, "textThis model has no chat template") || !strings.HasSuffix(got, "|chat") {
		t.Errorf("modes: %q", got)
	}
}

// TestKept: a conversation and the settings stay when the mode changes, the GPU is lost and
// the page is loaded again, and then the model is the one that was in use.
func TestKept(t *testing.T) {
	t.Parallel()
	p, url := visited(t)
	got := do[string](p, keeping+`ask('What is it?'); await answered(1); set('mode', 'text'); ask('A text'); await answered(1); set('mode', 'chat');
		set('temperature', '0.5'); return JSON.stringify(answers()) + (await prompt()).length`)
	if got != `["The sky is <b>blue</b> & wide."]3` {
		t.Errorf("behind a change of the mode: %s", got)
	}
	got = do[string](p, keeping+`ask('fail lost'); await failed('lost'); press('Load it again'); `+rest+`await ready(); return answers().length + ' ' + $('#temperature').value + ' ' + (await prompt()).length`)
	if got != "2 0.5 5" {
		t.Errorf("behind a lost GPU: %s", got)
	}
	p.visit(url + "?again")
	got = do[string](p, keeping+`await ready(); return answers().length + ' ' + $('#temperature').value + ' ' + (await prompt()).length`)
	if got != "3 0.5 7" {
		t.Errorf("behind a reload: %s", got)
	}
	books := httptest.NewServer(&shelf{data: append([]byte("GGUF"), bytes.Repeat([]byte("karat"), 1000)...)})
	defer books.Close()
	do[any](p, fmt.Sprintf(fetching+`add('%s/big.gguf', ''); await until('the file', () => row('big.gguf')?.innerText.includes('Use')); press('big.gguf', 'Use'); await until('the model', () => text('#model').startsWith('big.gguf')); await ready()`, books.URL))
	p.visit(url)
	if got := do[string](p, keeping+`await ready(); return text('#model b') + ' ' + answers().length`); got != "big.gguf 4" {
		t.Errorf("behind a reload the model is %s", got)
	}
	p.choose(file(t, "mine.gguf", "GGUF"))
	do[any](p, `await until('the model', () => text('#model').startsWith('mine.gguf')); await ready()`)
	p.visit(url + "?again")
	if got := do[string](p, keeping+`await ready(); await until('the note', () => $('#notes [data-kind=again]')); return text('#model b') + ' ' + text('#notes [data-kind=again]')`); !strings.HasPrefix(got, "demo.gguf mine.gguf was a file of this device") {
		t.Errorf("behind a reload of a page with a file of the device: %s", got)
	}
	if got := do[string](p, keeping+`$('#forget').click(); return answers().length + $('.empty p').innerText`); !strings.HasPrefix(got, "0Write") {
		t.Errorf("a new conversation begins with %s", got)
	}
}

// TestSmall: small things that a reader is told. A note that was dismissed stays away, a
// seed is drawn and told, and one token is no tokens.
func TestSmall(t *testing.T) {
	t.Parallel()
	p, url := visited(t)
	if got := do[string](p, keeping+`ask('one'); await answered(1); $('.badge').open = true; return text('.badge') + '|' + text('#notes') + '|' + text('.turn.assistant .stats')`); !strings.HasPrefix(got, "CPU") || !strings.Contains(got, "no WebGPU") || !strings.Contains(got, "||1 token, ") {
		t.Errorf("the badge, the notes and one token: %q", got)
	}
	p.choose(file(t, "bare.gguf", "GGUFbare"))
	do[any](p, keeping+`await until('the note', () => $('#notes [data-kind=mode]')); press('Dismiss'); $('#open-models').click(); $('#demo').click(); await until('the demo', () => text('#model').startsWith('demo.gguf')); await ready()`)
	p.visit(url + "?again")
	do[any](p, `await ready()`)
	p.choose(file(t, "bare.gguf", "GGUFbare"))
	if got := do[string](p, keeping+`await until('the model', () => text('#model').startsWith('bare.gguf')); await ready(); const said = text('#notes'); $('#open-models').click(); $('#demo').click(); await until('the demo', () => text('#model').startsWith('demo.gguf')); await ready(); return said`); strings.Contains(got, "no chat template") {
		t.Errorf("a dismissed note is there after a reload: %q", got)
	}
	got := do[[]string](p, keeping+`set('temperature', '0.7'); const seeds = [];
		for (const seed of ['', '', '7']) { set('seed', seed); const n = answers().length; ask('settings'); seeds.push(String(JSON.parse(await answered(n + 1)).seed)); seeds.push($('.turn:last-child .stats p').textContent) } return seeds`)
	if len(got) != 6 || got[0] == "0" || got[0] == got[2] || got[4] != "7" || !strings.Contains(got[1], "seed "+got[0]+" ·") || !strings.Contains(got[5], "seed 7 ·") {
		t.Errorf("seeds: %q", got)
	}
}

// TestMeasured: Bench computes what it tells of: the raw text or what the template makes of
// it, and nothing of a run before.
func TestMeasured(t *testing.T) {
	t.Parallel()
	p, _ := visited(t)
	for i, want := range []string{"false 6 6,6,6 0,0,0 32 32 32", "true 8 8,8,8 0,0,0 32 32 32"} {
		got := do[string](p, keeping+fmt.Sprintf(`$('#tab-bench').click(); $('#bench-result').replaceChildren(); $('#bench-template').checked = %v; $('#bench-prompt').value = 'count the color of the sky'; $('#bench-run').click();
			await until('the result', () => $('#bench-json') || $('#notes [role=alert]')); if (!$('#bench-json')) return text('#notes [role=alert]');
			const r = JSON.parse($('#bench-json').value); return [r.prompt.template, r.prompt.ids.length, r.prompt_tokens, r.prompt_kept, r.tokens.join(' ')].join(' ')`, i == 1))
		if got != want {
			t.Errorf("template %v: %q, want %q", i == 1, got, want)
		}
	}
}

// seen tells whether an element lies within the window as a whole.
const seen = `const seen = s => { const b = $(s).getBoundingClientRect(); return $(s).checkVisibility() && b.height > 0 && b.top >= 0 && b.bottom <= innerHeight && b.left >= 0 && b.right <= innerWidth };`

// TestPhone: on a phone what is written and Stop are in sight, an answer is followed, and
// nothing moves much while the page comes; nor at a desk.
func TestPhone(t *testing.T) {
	t.Parallel()
	p := open(t)
	s := httptest.NewServer(standIn(t).Handler())
	defer s.Close()
	for _, c := range []struct{ width, height int64 }{{1280, 800}, {390, 844}} {
		p.shot = fmt.Sprintf("%dx%d", c.width, c.height)
		o := chromedp.EmulateViewport(c.width, c.height)
		if c.width < 600 {
			o = chromedp.EmulateViewport(c.width, c.height, chromedp.EmulateMobile)
		}
		if err := chromedp.Do(p.ctx, o); err != nil {
			t.Fatal(err)
		}
		p.visit(s.URL + "?" + p.shot)
		moved := do[float64](p, `await ready(60); const frame = () => new Promise(go => requestAnimationFrame(() => setTimeout(go)));
			await frame(); let all = 0; const add = list => { for (const e of list) all += e.value }, o = new PerformanceObserver(l => add(l.getEntries()));
			o.observe({type: 'layout-shift', buffered: true}); await frame(); await frame(); add(o.takeRecords()); return all`)
		t.Logf("%s: the layout shifts by %.3f", p.shot, moved)
		if moved > 0.1 {
			t.Errorf("%s: the layout shifts by %.3f", p.shot, moved)
		}
		p.look("first")
		got := do[string](p, seen+`$('#forget').click(); const first = [seen('#say'), seen('#send')]; $('#max-tokens').value = 9999; ask('lines'); await until('many lines', () => answers()[0]?.includes('line 45'));
			const log = $('#log'), end = log.scrollHeight - log.scrollTop - log.clientHeight;
			const said = [...first, seen('#say'), seen('#stop'), end < 80, log.scrollHeight > log.clientHeight, scrollY === 0].join(' '); $('#stop').click(); await answered(1); return said`)
		if got != "true true true true true true true" {
			t.Errorf("%s: the message, Send, the message and Stop in an answer, its end in sight: %s", p.shot, got)
		}
		p.look("answered")
		do[any](p, `$('details.side').open = true`)
		p.look("settings")
		do[any](p, `$('details.side').open = false; $('#show-prompt').click(); await until('the prompt', () => !$('#prompt').hidden)`)
		p.look("prompt")
		do[any](p, `openProbe(); $('#probe-run').click(); await until('the values', () => $('#probe-facts'))`)
		p.look("probe")
		if got := do[string](p, wide); got != "" {
			t.Errorf("%s: of the probe these do not fit: %s", p.shot, got)
		}
	}
}

// wide lists what of the probe's result cannot be seen without moving it sideways.
const wide = `const all = []; for (const e of document.querySelectorAll('#probe-result svg, #probe-result .card, #probe-result .scroll, #probe-result td'))
	if (e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth + 1 && !e.matches('svg, td.text')) all.push((e.getAttribute('class') || e.tagName) + ' ' + e.scrollWidth + '>' + e.clientWidth);
	return all.join(', ')`

//go:build !js

package web

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
)

// choose gives the page files as if the reader had chosen them in the browser's dialog.
func (p *tab) choose(files ...string) {
	p.t.Helper()
	p.upload("#file", files...)
}

// upload chooses files in an input.
func (p *tab) upload(input string, files ...string) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.SetUploadFiles(input, files)); err != nil {
		p.t.Fatal(err)
	}
}

// tiny is a small model of the tests as a GGUF file, and as the parts of a split one.
func tiny(t *testing.T) (whole string, parts []string) {
	t.Helper()
	dir, model := t.TempDir(), golden.Model(t, "tiny-llama")
	for name, split := range map[string]int64{"tiny.gguf": 0, "split.gguf": 2 << 20} {
		if _, err := convert.Convert(t.Context(), model, filepath.Join(dir, name), convert.Options{Split: split}); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(dir, "split-*.gguf"))
	if err != nil || len(parts) < 2 {
		t.Fatal(parts, err)
	}
	return filepath.Join(dir, "tiny.gguf"), parts
}

// continued has a model whose name begins so continue a text, and returns that and what is
// said of the model.
const continued = `await until('the model', () => text('#model').startsWith('%s')); await ready(60); $('#mode').value = 'text'; $('#mode').dispatchEvent(new Event('change')); $('#max-tokens').value = 8; ask('The color of the sky is'); return await answered(1) + '|' + text('#model')`

// TestFiles: Karat in the page opens files of the device, whole and in parts, proves a
// model without a record, keeps one from an address, also in parts, for another visit and
// for two tabs at once; files that are none are told of, and the page goes on.
func TestFiles(t *testing.T) {
	golden.SkipFast(t, "the program is built first")
	s := httptest.NewServer(karatSite(t).Handler())
	defer s.Close()
	p := openAlone(t, softwareGPU...)
	p.size("light", 390)
	whole, parts := tiny(t)
	p.visit(s.URL)
	do[any](p, `await ready(60)`)
	p.hostile(whole)
	text := p.localFile(whole)
	do[any](p, `$('#tab-chat').click(); localStorage.setItem('backend', 'webgpu')`)
	p.visit(s.URL + "?gpu")
	do[any](p, `await ready(60)`)
	p.localParts(parts, text)
	p.keepParts(s.URL, parts, text)
	for _, e := range p.errors() {
		t.Error("console:", e)
	}
}

// localFile opens a model of the device, has it continue a text, which is returned, and
// proves it.
func (p *tab) localFile(path string) (text string) {
	p.t.Helper()
	p.choose(path)
	text, model, _ := strings.Cut(do[string](p, fmt.Sprintf(continued, "tiny.gguf")), "|")
	if !strings.Contains(model, "CPU") {
		p.t.Errorf("a local file: %q", model)
	}
	said := do[string](p, `$('#tab-proof').click(); $('#proof-run').click(); await until('the verdict', () => $('#verdict') || $('#notes [role=alert]'), 120); return text('#proof-result') + text('#notes [role=alert]')`)
	if !strings.HasPrefix(said, "Right.") || !strings.Contains(said, "No record travels with this model") {
		p.t.Errorf("the proof of a model without a record says %q", said)
	}
	p.look("files-proof")
	return text
}

// localParts opens the parts of a split model in any order, and one alone.
func (p *tab) localParts(parts []string, text string) {
	p.t.Helper()
	backwards := slices.Clone(parts)
	slices.Reverse(backwards)
	p.choose(backwards...)
	if got := do[string](p, fmt.Sprintf(continued, "split-00001")); !strings.HasPrefix(got, text+"|") || !strings.Contains(got, "GPU") {
		p.t.Errorf("the parts of a split file on the GPU: %q, want %q", got, text)
	}
	p.choose(parts[len(parts)-1])
	if said := do[string](p, `return failed('file')`); !strings.Contains(said, "is not among the files") {
		p.t.Errorf("a part alone: %q", said)
	}
	p.look("files-part")
}

// keepParts brings the parts of a split model from another site, and uses them when that
// is gone: after a reload, and in a second tab.
func (p *tab) keepParts(url string, parts []string, text string) {
	p.t.Helper()
	books := &shelf{files: map[string][]byte{}}
	for _, path := range parts {
		data, err := os.ReadFile(path)
		if err != nil {
			p.t.Fatal(err)
		}
		books.files["/"+filepath.Base(path)] = data
	}
	other := httptest.NewServer(books)
	defer other.Close()
	name := fmt.Sprintf("split-%05d-of-%05[1]d.gguf", len(parts))
	if said := do[string](p, fmt.Sprintf(fetching+`quiet(); add('%s/%s', ''); await until('all parts', () => [...document.querySelectorAll('#kept li')].filter(e => e.innerText.includes('split-') && e.innerText.includes('Check')).length === %d); return text('#room')`, other.URL, name, len(parts))); !strings.Contains(said, "are used") {
		p.t.Errorf("the room is %q", said)
	}
	p.look("files-kept")
	other.Close()
	p.visit(url + "?again") // from what is kept
	use := fmt.Sprintf(fetching+`await ready(60); await list(); press('%s', 'Use'); `, name) + fmt.Sprintf(continued, "split-00001")
	if got := do[string](p, use); !strings.HasPrefix(got, text+"|") {
		p.t.Errorf("kept parts: %q, want %q", got, text)
	}
	q := p.beside()
	q.visit(url + "?beside")
	if got := do[string](q, use); !strings.HasPrefix(got, text+"|") {
		p.t.Errorf("in a second tab: %q, want %q", got, text)
	}
	if said := do[string](q, fmt.Sprintf(fetching+`await list(); press('%[1]s', 'Delete'); press('%[1]s', 'Delete for good'); return failed('taken')`, name)); !strings.Contains(said, "Another tab") {
		p.t.Errorf("what another tab uses is deleted: %q", said)
	}
	for _, e := range q.errors() {
		p.t.Error("console of the second tab:", e)
	}
}

// hostile opens files that are no models, and one that is none any more.
func (p *tab) hostile(model string) {
	p.t.Helper()
	data, err := os.ReadFile(model)
	if err != nil {
		p.t.Fatal(err)
	}
	long := bytes.Clone(data)
	long[8], long[14] = 0xff, 0xff // tensors, of which there are not so many
	dir := p.t.TempDir()
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"cut.gguf":    {data[:len(data)-1000], "cut.gguf"},
		"head.gguf":   {data[:100], "head.gguf is cut off"},
		"image.gguf":  {[]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"), "image.gguf: not a GGUF file: it begins with "},
		"empty.gguf":  {nil, "empty.gguf: the file is empty"},
		"tensor.gguf": {long, "tensor.gguf: header"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, c.data, 0o666); err != nil {
			p.t.Fatal(err)
		}
		do[any](p, fetching+`quiet()`)
		p.choose(path)
		if said := do[string](p, `return failed('file')`); !strings.Contains(said, "This file cannot be used") || !strings.Contains(said, c.want) {
			p.t.Errorf("%s: the page says %q", name, said)
		}
	}
	p.look("files-hostile")
	if said := do[string](p, fetching+`quiet(); return text('#model') + $('#send').disabled`); !strings.HasPrefix(said, "demo.gguf") || !strings.HasSuffix(said, "false") {
		p.t.Errorf("behind a file that is none the model that worked is gone: %q", said)
	}
}

// beside is another tab of the same browser.
func (p *tab) beside() *tab {
	p.t.Helper()
	ctx, cancel := chromedp.NewContext(p.ctx)
	p.t.Cleanup(cancel)
	q := &tab{t: p.t, ctx: ctx, shot: p.shot}
	if err := chromedp.Listen(ctx, q.hear); err != nil {
		p.t.Fatal(err)
	}
	return q
}

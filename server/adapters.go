package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/karat-run/karat"
)

// maxAdapters bounds the adapters of a server.
const maxAdapters = 64

// tuned is a model with an adapter loaded by a request. Requests name the adapter as a model. The pool's mu guards the
// fields.
type tuned struct {
	of               *entry
	name, path       string
	print            string // hash of the adapter
	uses             int    // requests
	gone             bool   // for new requests
	waiting, running atomic.Int64
}

// tuning finds the adapter of a name for new requests, nil if there is none. The caller holds mu.
func (p *pool) tuning(name string) *tuned {
	i := slices.IndexFunc(p.tuned, func(t *tuned) bool { return t.name == name && !t.gone })
	if i < 0 {
		return nil
	}
	return p.tuned[i]
}

// borrow returns the adapter of a name, for use until repay; nil if there is none.
func (p *pool) borrow(name string) *tuned {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tuning(name)
	if t != nil {
		t.uses++
	}
	return t
}

// repay ends a use. The last use of a gone adapter unloads the adapter.
func (p *pool) repay(t *tuned) {
	p.mu.Lock()
	t.uses--
	over := t.gone && t.uses == 0
	m := t.of.now
	p.mu.Unlock()
	if !over {
		return
	}
	if m != nil {
		m.model.UnloadAdapter(t.name) // an error says: the model was loaded anew, without the adapter
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tuned = slices.DeleteFunc(p.tuned, func(x *tuned) bool { return x == t })
}

// adaptersOf returns the adapters of a model, or of all for nil.
func (p *pool) adaptersOf(e *entry) (all []*tuned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tuned {
		if !t.gone && (e == nil || t.of == e) {
			all = append(all, t)
		}
	}
	return all
}

// tune gives adapters to a model loaded anew, and returns them.
func (p *pool) tune(ctx context.Context, e *entry, m *karat.Model) (all []*tuned) {
	for _, t := range p.adaptersOf(e) {
		if _, err := m.LoadAdapter(ctx, karat.Adapter{Name: t.name, Path: t.path}); err != nil {
			p.log.Error("adapter not loaded", "adapter", t.name, "model", e.Name, "error", err.Error())
			p.mu.Lock()
			p.tuned = slices.DeleteFunc(p.tuned, func(x *tuned) bool { return x == t })
			p.mu.Unlock()
			continue
		}
		all = append(all, t)
	}
	return all
}

// untune takes adapters of tune away that were unloaded meanwhile. The caller holds mu.
func (p *pool) untune(m *served) {
	for _, t := range m.tuned {
		if t.uses == 0 && (t.gone || !slices.Contains(p.tuned, t)) {
			m.model.UnloadAdapter(t.name) // never an error: nobody else has unloaded the adapter
		}
	}
	m.tuned = nil
}

// readAdapter returns the name in a request to load or unload an adapter.
func readAdapter(x *exchange) (*fields, string) {
	x.takesPlace = true
	if len(x.s.o.AdapterFolders) == 0 {
		throw(refuse(http.StatusNotFound, "no_adapters", "",
			"This server loads no adapters: it was started without "+"--lora-folder FOLDER"))
	}
	if k := x.who.key; k != nil && k.Routes == nil && len(x.s.gate.keys) > 1 {
		throw(refuse(http.StatusForbidden, "insufficient_permissions", "", "Adapters come and go for all callers, so "+
			"the key %q needs this route in its routes=", k.Name))
	}
	f := x.body()
	name := f.needText("lora_name")
	if name == "" || len(name) > 128 || strings.ContainsAny(name, ",\"") ||
		strings.ContainsFunc(name, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }) {
		fail("lora_name", "%.64q, want a name of up to 128 bytes without spaces, commas, quotes and signs that do not "+
			"print", name)
	}
	return f, name
}

// loadAdapter answers POST /v1/load_lora_adapter, from vLLM.
func loadAdapter(x *exchange) any {
	f, name := readAdapter(x)
	asked := f.needText("lora_path")
	f.lacks("load_inplace", "is_3d_lora_weight")
	m := x.readOptionalModel(f)
	f.done()
	path := adapterPath(x.s.o.AdapterFolders, asked)
	p := x.s.pool
	e := p.find(m.name)
	t := &tuned{of: e, name: name, path: path, gone: true} // not to be named before the load's end
	p.mu.Lock()
	there := slices.IndexFunc(p.tuned, func(t *tuned) bool { return t.name == name })
	switch {
	case p.find(name) != nil:
		p.mu.Unlock()
		return bad("lora_name", "%q is the name of a model: give the adapter another", name)
	case there >= 0 && !p.tuned[there].gone:
		p.mu.Unlock()
		return bad("lora_name", "The lora adapter %q has already been loaded", name)
	case there >= 0:
		p.mu.Unlock()
		return refuse(http.StatusConflict, "", "lora_name", "The adapter %q is being loaded, or requests still "+
			"run with it: try again later", name)
	case len(p.tuned) >= maxAdapters:
		p.mu.Unlock()
		return bad("lora_name", "This server has %d adapters, and takes no more: unload one", maxAdapters)
	}
	p.tuned = append(p.tuned, t)
	p.mu.Unlock()
	print, err := m.model.LoadAdapter(x.ctx, karat.Adapter{Name: name, Path: path})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.tuned = slices.DeleteFunc(p.tuned, func(x *tuned) bool { return x == t })
		x.s.log.Error("adapter not loaded", "adapter", name, "model", m.name, "error", err.Error())
		if x.ctx.Err() != nil || errors.Is(err, karat.ErrClosed) {
			return x.s.explain(x.ctx, err)
		}
		return bad("lora_path", "%s", strings.ReplaceAll(err.Error(), path, asked))
	}
	t.gone, t.print = false, print
	x.s.log.Info("adapter loaded", "adapter", name, "model", m.name)
	return sayText(x, "Success: LoRA adapter '"+name+"' added successfully.")
}

// unloadAdapter answers POST /v1/unload_lora_adapter, from vLLM.
func unloadAdapter(x *exchange) any {
	f, name := readAdapter(x)
	f.hint("lora_int_id")
	f.done()
	p := x.s.pool
	t := p.borrow(name)
	if t == nil || !x.who.sees(t.of) {
		if t != nil {
			p.repay(t)
		}
		return refuse(http.StatusNotFound, "", "lora_name", "The lora adapter %q cannot be found", name)
	}
	p.mu.Lock()
	t.gone = true
	p.mu.Unlock()
	p.repay(t) // unloads the adapter, or leaves the work to the adapter's last request
	x.s.log.Info("adapter unloaded", "adapter", name, "model", t.of.Name)
	return sayText(x, "Success: LoRA adapter '"+name+"' removed successfully.")
}

// sayText answers with a plain text, as vLLM does.
func sayText(x *exchange, text string) any {
	x.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	x.w.WriteHeader(http.StatusOK)
	io.WriteString(x.w, text+"\n") // an error is the client's, already gone
	return nil
}

// adapterPath returns the real path of an adapter in one of the allowed folders. Nothing outside of the folders is
// looked at, and links do not lead out, of a folder's files neither. Whoever writes into the folders is trusted: a link
// made later is followed.
func adapterPath(folders []string, asked string) string {
	for _, folder := range folders {
		path := filepath.Clean(asked)
		if !filepath.IsAbs(path) {
			path = filepath.Join(folder, path)
		}
		if !isWithin(folder, path) {
			continue
		}
		root, err := filepath.EvalSymlinks(folder)
		real, fault := filepath.EvalSymlinks(path)
		if cmp.Or(err, fault) != nil || !isWithin(root, real) {
			continue
		}
		files, _ := os.ReadDir(real) // of a file: none
		if !slices.ContainsFunc(files, func(f os.DirEntry) bool {
			to, err := filepath.EvalSymlinks(filepath.Join(real, f.Name()))
			return err != nil || !isWithin(root, to)
		}) {
			return real
		}
	}
	throw(refuse(http.StatusNotFound, "", "lora_path", "%.256q is no adapter in the folders that this server allows",
		asked))
	return ""
}

// isWithin reports whether a clean path is below a folder.
func isWithin(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != "." && filepath.IsLocal(rel)
}

// nameOf returns m's name in answers, or the adapter's.
func (t *tuned) nameOf(m *served) string {
	if t != nil {
		return t.name
	}
	return m.name
}

// printOf returns the fingerprint of m, with an adapter's.
func (t *tuned) printOf(m *served) string {
	if t != nil {
		return m.print + "_" + t.print
	}
	return m.print
}

// count counts an answer as waiting, after its begins as running, and after end not at all.
func (t *tuned) count(c *choice) (end func()) {
	c.begins = func() {}
	if t == nil {
		return c.begins
	}
	now := &t.waiting
	now.Add(1)
	c.begins = func() {
		now.Add(-1)
		now = &t.running
		now.Add(1)
	}
	return func() { now.Add(-1) }
}

// refuseTuned throws the problem of an adapter where the model makes vectors, or judges.
func refuseTuned(x *exchange) {
	if x.tuned != nil {
		throw(unsupported("model", "%q is a model with an adapter, which makes texts alone", x.tuned.name))
	}
}

package hub

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/karat-run/karat/internal/hub/local"
	"github.com/karat-run/karat/internal/sysinfo"
)

// PullOptions say how to pull. Their zero value works.
type PullOptions struct {
	Name     string // of the model here; "" is the reference's
	Rate     int64  // bytes a second at most; 0 is no limit
	Lines    int    // connections at a time; 0 is defaultLines
	Endpoint string // of hf: references; "" is HF_ENDPOINT, else HuggingFaceURL
	Token    string // of hf: references; "" is the user's, in the place of Hugging Face's programs

	// Begin, if not nil, is called before the download with the number of files and their bytes, -1 if unknown. Its
	// error ends the pull.
	Begin func(files int, size int64) error
	// Progress, if not nil, is called with the progress, perhaps by several goroutines at once.
	Progress func(Progress)
	// Note, if not nil, is called with messages for the user.
	Note func(string)

	adjust  func(*http.Transport) // of tests, as are the next
	part    int64
	unknown int64
	free    func(dir string) int64
}

const defaultLines = 4

// Progress is how far a pull is, in bytes.
type Progress struct {
	Done int64 // present
	Came int64 // downloaded by this pull
	All  int64 // -1 if unknown
}

// puller is the state of a pull.
type puller struct {
	store  *Store
	client *client
	o      PullOptions
	told   atomic.Value // the last note of again
}

// Pull gets the model of a reference, or its new files, and returns its manifest. Pull ends with ctx and keeps the
// bytes downloaded by then for the next Pull.
func (s *Store) Pull(ctx context.Context, reference string, o PullOptions) (*Manifest, error) {
	r, err := ParseReference(reference)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(o.Name, r.Name())
	if name == "" {
		return nil, fmt.Errorf("%s: nothing in it makes a name: give one behind it", r)
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	old, err := ownModel(s, name, r)
	if err != nil {
		return nil, err
	}
	p := &puller{store: s, o: o}
	if err := p.connect(r); err != nil {
		return nil, err
	}
	defer p.client.close()
	ctx = context.WithValue(ctx, tellKey{}, p.noteRetry)
	plan, err := p.plan(ctx, r, old)
	if err != nil {
		return nil, err
	}
	for _, n := range plan.notes {
		p.note(n)
	}
	return p.pull(ctx, name, r, plan)
}

// noteRetry notes a new try at a server.
func (p *puller) noteRetry(err error, n int) {
	text := fmt.Sprintf("%v, trying again (%d of %d)", err, n, attempts)
	if host := unreachableHost(err); host != "" {
		text = fmt.Sprintf("cannot reach %s, trying again (%d of %d)", host, n, attempts)
	}
	if p.told.Swap(text) != text { // several connections fail alike
		p.note(text)
	}
}

// ownModel returns the model of a name, nil if there is none. A model from elsewhere is not replaced.
func ownModel(s *Store, name string, r *Reference) (*Manifest, error) {
	m, err := s.Get(name)
	if err != nil {
		return nil, nil // none, or a broken model: the pull mends it
	}
	if m.Source != r.String() {
		return nil, fmt.Errorf(
			"there is a model %s, from %s: give another name, karat pull %s NAME, or remove it, karat rm %s", m.Name,
			m.Source,
			r, m.Name)
	}
	return m, nil
}

// connect makes the client for a reference's server.
func (p *puller) connect(r *Reference) error {
	address := ""
	switch r.Kind {
	case HuggingFace:
		address = cmp.Or(p.o.Endpoint, os.Getenv("HF_ENDPOINT"), HuggingFaceURL)
	case OCI:
		address = r.base()
	case URL:
		address = r.URL.String()
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("endpoint %q: want https://HOST", clip(address))
	}
	p.client = newClient(u, p.o.adjust)
	if r.Kind != HuggingFace {
		return nil
	}
	token, err := p.o.Token, checkToken(p.o.Token, "token")
	if token == "" {
		token, err = tokenHF()
	}
	switch {
	case err != nil:
		return err
	case token == "":
	case u.Scheme == "http" && !loopback(u.Hostname()):
		p.note("HF_ENDPOINT is not https: no token is sent")
	default:
		p.client.secret = "Bearer " + token
	}
	return nil
}

func (p *puller) note(text string) {
	if p.o.Note != nil {
		p.o.Note(text)
	}
}

// plan asks the server for the meaning of the reference. Files in old of the same revision need no download to be
// known.
func (p *puller) plan(ctx context.Context, r *Reference, old *Manifest) (out *plan, err error) {
	switch r.Kind {
	case HuggingFace:
		out, err = p.planHF(ctx, r)
	case OCI:
		out, err = p.planOCI(ctx, r)
	default:
		out, err = p.planURL(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	var files []File
	for _, f := range out.files {
		files = append(files, File{Path: f.path, Size: f.size})
	}
	if len(files) > maxFiles {
		return nil, fmt.Errorf("%s: %d files, at most %d", r, len(files), maxFiles)
	}
	if err := checkFiles(files); err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	if old == nil {
		return out, nil
	}
	for _, f := range out.files {
		for _, have := range old.Files {
			same := out.revision != "" && out.revision == old.Revision || f.etag != "" && f.etag == have.ETag
			if f.digest.IsZero() && same && have.Path == f.path && (f.size < 0 || have.Size == f.size) {
				f.digest = have.SHA256
			}
		}
	}
	return out, nil
}

// planURL asks for a file's properties.
func (p *puller) planURL(ctx context.Context, r *Reference) (*plan, error) {
	f := &remote{path: r.file(), url: r.URL.String(), size: -1, digest: r.Digest}
	if !p.storeHas(f) {
		h, err := (&fetcher{client: p.client}).probe(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
		if f.size = h.size; isStrong(h.etag) {
			f.etag = h.etag
		}
	}
	return &plan{format: GGUF, files: []*remote{f}}, nil
}

// storeHas reports whether a file need not be asked for.
func (p *puller) storeHas(f *remote) bool {
	return p.store.root != nil && !f.digest.IsZero() && p.store.hasBlob(f.digest, -1)
}

// pull gets the files of a plan.
func (p *puller) pull(ctx context.Context, name string, r *Reference, plan *plan) (*Manifest, error) {
	u := &Unfinished{Name: name, Source: r.String(), Began: time.Now().UTC().Truncate(time.Second)}
	var all int64
	for _, f := range plan.files {
		u.Keys = append(u.Keys, f.key())
		if f.size < 0 || all < 0 {
			all = -1
			continue
		}
		all += f.size
	}
	if p.o.Begin != nil {
		if err := p.o.Begin(len(plan.files), all); err != nil {
			return nil, err
		}
	}
	if err := beginPull(p.store, ctx, u); err != nil {
		return nil, err
	}
	if err := p.checkRoom(plan); err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	get := &fetcher{store: p.store, client: p.client, limit: &limiter{rate: float64(p.o.Rate)}, u: u,
		lines: cmp.Or(max(p.o.Lines, 0), defaultLines), part: cmp.Or(p.o.part, partSize),
		unknown: cmp.Or(p.o.unknown, unknownSize)}
	if p.o.Progress != nil {
		get.report = func(done, came int64) { p.o.Progress(Progress{done, came, all}) }
	}
	m := &Manifest{Name: name, Source: u.Source, Revision: plan.revision, Pulled: u.Began, Format: plan.format,
		License: plan.license}
	for _, f := range plan.files {
		got, err := get.fetch(ctx, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
		if got.ETag == "" {
			got.ETag = f.etag
		}
		m.Files = append(m.Files, got)
	}
	if err := finishPull(p.store, ctx, m); err != nil {
		return nil, err
	}
	return m, nil
}

// checkRoom returns an error if the disk has no room for the missing files.
func (p *puller) checkRoom(plan *plan) error {
	var need int64
	for _, f := range plan.files {
		if p.storeHas(f) {
			continue
		}
		need += max(f.size, 0)
		if data, err := p.store.read(partialFile(f.key()) + ".json"); err == nil {
			if at, err := parsePartial(data); err == nil {
				need -= at.have()
			}
		}
	}
	free := sysinfo.Disk
	if p.o.free != nil {
		free = p.o.free
	}
	if n := free(p.store.dir); n > 0 && need > n {
		return fmt.Errorf("it needs %d bytes more, and the disk of %s has %d (%s may name a folder on another disk)",
			need, p.store.dir, n, local.Variable)
	}
	return nil
}

// Running asks a server at base, such as http://127.0.0.1:8080, for its loaded models: GET /api/ps, from Ollama.
func Running(ctx context.Context, base, key string) (data []byte, err error) {
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("server %q: want http://HOST:PORT", clip(base))
	}
	c := newClient(u, nil)
	defer c.close()
	if key != "" {
		c.secret = "Bearer " + key
	}
	r, err := c.get(ctx, u.String()+"/api/ps", http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	w := c.watch(r.Body)
	defer w.stop()
	return readMost(r, w, maxAnswer)
}

package hub

import (
	"context"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/karat-run/karat/internal/hub/local"
)

// remote is a file at a server.
type remote struct {
	path   string
	url    string
	size   int64  // -1 if unknown
	digest Digest // zero if unknown
	git    string // the SHA-1 of the file as a blob of git; "" if unknown
	etag   string // at the beginning of the pull; "" if unknown
}

// key identifies the file among partial downloads: by its digest, or by its address.
func (r *remote) key() string {
	if !r.digest.IsZero() {
		return r.digest.hex()
	}
	return digestBytes([]byte(r.url + "\n" + r.git)).hex()
}

func partialFile(key string) string { return path.Join("partial", key) }

// dropPartial removes the data of a download, and then its lock, held by the caller.
func dropPartial(s *Store, key string) error {
	return errors.Join(dropPartialData(s, key), s.drop(partialFile(key)+".lock"))
}

// dropPartialData removes all of a download except its lock.
func dropPartialData(s *Store, key string) error {
	return errors.Join(s.drop(partialFile(key)), s.drop(partialFile(key)+".json"))
}

// drop removes a file, if present.
func (s *Store) drop(name string) error {
	err := s.root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// partSize is the bytes of a connection's turn, partState the bytes between two notes of the progress.
const (
	partSize    = 64 << 20
	partState   = 16 << 20
	unknownSize = 64 << 30
)

// partial is how far a download is.
type partial struct {
	ETag string  `json:"etag,omitempty"`
	Size int64   `json:"size"`
	Part int64   `json:"part"` // bytes of each part but the last
	Done []int64 `json:"done"` // bytes present of each part
}

// parsePartial reads the state of a download.
func parsePartial(data []byte) (*partial, error) {
	var p partial
	if err := strictJSON(data, &p); err != nil {
		return nil, err
	}
	if p.Size < 1 || p.Size > maxFile || p.Part < 1 || int64(len(p.Done)) != (p.Size-1)/p.Part+1 {
		return nil, fmt.Errorf("partial file: %d parts of %d bytes of %d", len(p.Done), p.Part, p.Size)
	}
	for i, n := range p.Done {
		if n < 0 || n > p.length(i) {
			return nil, fmt.Errorf("partial file: %d bytes of part %d", n, i)
		}
	}
	return &p, nil
}

// length returns the bytes of a part.
func (p *partial) length(i int) int64 { return min(p.Part, p.Size-int64(i)*p.Part) }

// have returns the bytes present.
func (p *partial) have() (n int64) {
	for _, d := range p.Done {
		n += d
	}
	return n
}

// errChanged is the error of a file changed at the server: the download begins anew.
var errChanged = errors.New("the file changed at the server meanwhile")

// errOther is wrapped by the errors of files with unpromised contents.
var errOther = errors.New("it is removed")

// fetcher gets files into the store.
type fetcher struct {
	store   *Store
	client  *client
	limit   *limiter
	u       *Unfinished
	lines   int   // connections at a time
	part    int64 // partSize
	unknown int64 // most bytes of a file whose size nobody says
	done    atomic.Int64
	net     atomic.Int64 // the part of done from this pull
	report  func(done, came int64)
}

// add counts new bytes, or a negative number of bytes to be downloaded again.
func (f *fetcher) add(n int64) {
	if all := f.done.Add(n); f.report != nil {
		f.report(all, f.net.Load())
	}
}

// changes is the maximum of changes of a file during its download.
const changes = 3

// fetch downloads a file, or the rest of a partial download, and verifies the file. fetch waits for another process
// with the same file.
func (f *fetcher) fetch(ctx context.Context, r *remote) (File, error) {
	if out, ok, err := f.find(ctx, r); ok || err != nil {
		return out, err
	}
	key := r.key()
	l, err := f.store.lock(ctx, partialFile(key)+".lock")
	if err != nil {
		return File{}, err
	}
	defer l.Close()
	if out, ok, err := f.find(ctx, r); ok || err != nil { // another process downloaded the file
		return out, errors.Join(err, dropPartial(f.store, key))
	}
	for n := 1; ; n++ {
		out, resumed, err := f.download(ctx, r)
		if err == nil {
			return out, dropPartial(f.store, key)
		}
		changed, other := errors.Is(err, errChanged), errors.Is(err, errOther)
		if changed && r.digest.IsZero() && r.git == "" { // the promised size is of the old file
			r.size, r.etag = -1, ""
		}
		if changed || other { // the data present is of no use
			if e := dropPartialData(f.store, key); e != nil {
				return File{}, fmt.Errorf("%s: %w", r.path, errors.Join(err, e))
			}
		}
		if !changed && !(other && resumed) || n == changes {
			return File{}, fmt.Errorf("%s: %w", r.path, err)
		}
	}
}

// find returns the file if the store has it.
func (f *fetcher) find(_ context.Context, r *remote) (File, bool, error) {
	if r.digest.IsZero() || !f.store.hasBlob(r.digest, r.size) {
		return File{}, false, nil
	}
	st, err := f.store.root.Lstat(blobFile(r.digest))
	if err != nil {
		return File{}, false, err
	}
	f.add(st.Size())
	return File{Path: r.path, Size: st.Size(), SHA256: r.digest}, true, nil
}

// download downloads a file, verifies the file, and makes a blob of it. resumed reports a partial download before.
func (f *fetcher) download(ctx context.Context, r *remote) (out File, resumed bool, err error) {
	name := partialFile(r.key())
	file, err := f.store.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return File{}, false, err
	}
	defer file.Close()
	counted := f.done.Load()
	p := f.state(r, file)
	etag, err := f.transfer(ctx, r, file, p)
	if err == nil {
		err = file.Sync()
	}
	var d Digest
	var size int64
	if err == nil {
		d, size, err = verify(ctx, file, r, func() { f.add(0) })
	}
	if err != nil {
		f.add(counted - f.done.Load())
		return File{}, p != nil, err
	}
	if err := file.Close(); err != nil {
		return File{}, false, err
	}
	if err := keepBlob(f.store, ctx, f.u, name, d); err != nil {
		return File{}, false, err
	}
	out = File{Path: r.path, Size: size, SHA256: d}
	if r.digest.IsZero() && r.git == "" && isStrong(etag) {
		out.ETag = etag
	}
	return out, false, nil
}

// verify returns the digest of a file, checked against the promised size and digest, and calls tick on the way.
func verify(ctx context.Context, file *os.File, r *remote, tick func()) (Digest, int64, error) {
	st, err := file.Stat()
	if err != nil {
		return Digest{}, 0, err
	}
	if r.size >= 0 && st.Size() != r.size {
		return Digest{}, 0, refusedf("%d bytes came, and %d were promised: %w", st.Size(), r.size, errOther)
	}
	git := sha1.New()
	fmt.Fprintf(git, "blob %d\x00", st.Size())
	in := io.Reader(&stoppable{ctx, tick, io.NewSectionReader(file, 0, st.Size())})
	if r.git != "" {
		in = io.TeeReader(in, git)
	}
	d, err := digestOf(in)
	if err != nil {
		return d, 0, err
	}
	if !r.digest.IsZero() && d != r.digest {
		return d, 0, refusedf("its SHA-256 is %s, and %s was promised: %w", d.hex(), r.digest.hex(), errOther)
	}
	if sum := hex.EncodeToString(git.Sum(nil)); r.git != "" && subtle.ConstantTimeCompare([]byte(sum),
		[]byte(r.git)) == 0 {
		return d, 0, refusedf("its hash in git is %s, and %s was promised: %w", sum, r.git, errOther)
	}
	return d, st.Size(), nil
}

// stoppable is a reader ended by ctx.
type stoppable struct {
	ctx  context.Context
	tick func()
	r    io.Reader
}

func (s *stoppable) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	s.tick()
	return s.r.Read(b)
}

// transfer downloads the missing parts of a file, and returns the file's ETag.
func (f *fetcher) transfer(ctx context.Context, r *remote, file *os.File, p *partial) (etag string, err error) {
	if p == nil {
		head, err := f.probe(ctx, r)
		if err != nil {
			return "", err
		}
		if !head.ranges || head.size < 1 {
			return head.etag, f.stream(ctx, r, file, head.size)
		}
		p = &partial{ETag: head.etag, Size: head.size, Part: f.part}
		p.Done = make([]int64, (p.Size-1)/p.Part+1)
		if err := errors.Join(file.Truncate(0), file.Truncate(p.Size)); err != nil {
			return "", err
		}
	}
	t := &transfer{f: f, r: r, file: file, p: p}
	f.add(p.have())
	return p.ETag, t.fetchParts(ctx)
}

// state returns the progress of a file, nil for a beginning.
func (f *fetcher) state(r *remote, file *os.File) *partial {
	data, err := f.store.read(partialFile(r.key()) + ".json")
	if err != nil {
		return nil
	}
	p, err := parsePartial(data)
	if err != nil || r.size >= 0 && p.Size != r.size {
		return nil
	}
	if r.digest.IsZero() && r.git == "" && !isStrong(p.ETag) { // a change of the file would go unnoticed
		return nil
	}
	if st, err := file.Stat(); err != nil || st.Size() != p.Size {
		return nil
	}
	return p
}

// isStrong reports whether an ETag promises the same bytes.
func isStrong(etag string) bool { return strings.HasPrefix(etag, `"`) && len(etag) < maxText }

// header is a server's description of a file.
type header struct {
	size   int64 // -1 if unknown
	etag   string
	ranges bool // whether the server sends parts
}

// probe asks for the first byte of a file.
func (f *fetcher) probe(ctx context.Context, r *remote) (h header, err error) {
	err = retry(ctx, func(ctx context.Context) (bool, error) {
		a, err := f.client.get(ctx, r.url, http.Header{"Range": {"bytes=0-0"}}, http.StatusRequestedRangeNotSatisfiable)
		if err != nil {
			return false, err
		}
		defer drain(a)
		h = header{size: -1, etag: a.Header.Get("ETag")}
		switch a.StatusCode {
		case http.StatusPartialContent:
			first, last, all, ok := contentRange(a.Header.Get("Content-Range"))
			if !ok || first != 0 || last != 0 {
				return false, refusedf("%s: Content-Range %q, and the first byte was asked for", show(a.Request.URL),
					clip(a.Header.Get("Content-Range")))
			}
			h.size, h.ranges = all, true
		case http.StatusRequestedRangeNotSatisfiable: // of an empty file
		default:
			h.size = a.ContentLength
		}
		if h.size > maxFile || r.size >= 0 && h.size >= 0 && h.size != r.size {
			return false, refusedf("%s: %d bytes, and %d were promised (at most %d)", show(a.Request.URL), h.size,
				r.size, int64(maxFile))
		}
		return false, nil
	})
	return h, err
}

// contentRange reads "bytes FIRST-LAST/ALL".
func contentRange(s string) (first, last, all int64, ok bool) {
	var rest string
	n, _ := fmt.Sscanf(s, "bytes %d-%d/%d%s", &first, &last, &all, &rest)
	return first, last, all, n == 3 && first >= 0 && last >= first && all > last
}

// stream downloads a file from a server without parts: from the beginning, each time.
func (f *fetcher) stream(ctx context.Context, r *remote, file *os.File, size int64) error {
	most := f.unknown
	if size = max(size, r.size); size >= 0 {
		most = size
	}
	return retry(ctx, func(ctx context.Context) (bool, error) {
		if err := file.Truncate(0); err != nil {
			return false, refusal{err}
		}
		a, err := f.client.get(ctx, r.url, nil)
		if err != nil {
			return false, err
		}
		defer a.Body.Close()
		n, err := f.copy(ctx, a, file, 0, most, nil)
		if err == nil && size >= 0 && n != size {
			err = fmt.Errorf("%s: %d bytes came, and %d were promised", show(a.Request.URL), n, size)
		}
		if err != nil {
			f.add(-n)
		}
		return false, err
	})
}

// copy writes a body to a place of a file, at most most bytes, and counts the bytes. A longer body is an error. copy
// calls noted with the bytes of each write.
func (f *fetcher) copy(ctx context.Context, a *http.Response, file *os.File, at, most int64,
	noted func(n int64) error) (sum int64, err error) {
	w := f.client.watch(a.Body)
	defer w.stop()
	b := make([]byte, 64<<10)
	for {
		n, err := w.Read(b)
		if sum+int64(n) > most {
			return sum, refusedf("%s: more bytes come than the %d that are allowed", show(a.Request.URL), most)
		}
		if n > 0 {
			if _, err := file.WriteAt(b[:n], at+sum); err != nil {
				return sum, refusal{adviseOnRoom(err)}
			}
			sum += int64(n)
			f.net.Add(int64(n))
			f.add(int64(n))
			if noted != nil {
				if err := noted(int64(n)); err != nil {
					return sum, refusal{err}
				}
			}
			waited, err := f.limit.wait(ctx, n)
			if err != nil {
				return sum, err
			}
			if waited {
				w.reset()
			}
		}
		if err == io.EOF {
			return sum, nil
		}
		if err != nil {
			return sum, withoutAddress(err)
		}
	}
}

// A transfer downloads the parts of a file.
type transfer struct {
	f    *fetcher
	r    *remote
	file *os.File
	mu   sync.Mutex
	p    *partial
	news int64 // bytes since the state was noted
}

// fetchParts downloads the missing parts, several at a time, until the first error.
func (t *transfer) fetchParts(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := t.note(); err != nil {
		return err
	}
	todo := make(chan int, len(t.p.Done))
	for i, n := range t.p.Done {
		if n < t.p.length(i) {
			todo <- i
		}
	}
	close(todo)
	var lines sync.WaitGroup
	for range min(t.f.lines, len(todo)) {
		lines.Go(func() {
			for i := range todo {
				if err := t.part(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	lines.Wait()
	if err := context.Cause(ctx); err != nil {
		return errors.Join(err, t.note())
	}
	return nil
}

// note writes down the progress, for bytes already on the disk.
func (t *transfer) note() error {
	t.mu.Lock()
	p := *t.p
	p.Done = append([]int64{}, t.p.Done...)
	t.news = 0
	t.mu.Unlock()
	if err := t.file.Sync(); err != nil {
		return adviseOnRoom(err)
	}
	return adviseOnRoom(writeState(t.f.store, t.r.key(), &p))
}

// adviseOnRoom adds advice to the error of a full disk.
func adviseOnRoom(err error) error {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if runtime.GOOS == "windows" { // ERROR_HANDLE_DISK_FULL and ERROR_DISK_FULL
		full = errors.Is(err, syscall.Errno(39)) || errors.Is(err, syscall.Errno(112))
	}
	if full {
		return fmt.Errorf("%w: make room and pull again, it goes on where it is (%s may name a folder on another "+
			"disk)", err, local.Variable)
	}
	return err
}

// writeState notes how far a download is.
func writeState(s *Store, key string, p *partial) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return s.writeBytes(partialFile(key)+".json", data)
}

// part gets the missing bytes of a part.
func (t *transfer) part(ctx context.Context, i int) error {
	return retry(ctx, func(ctx context.Context) (progress bool, err error) {
		t.mu.Lock()
		have := t.p.Done[i]
		t.mu.Unlock()
		from, end := int64(i)*t.p.Part+have, int64(i)*t.p.Part+t.p.length(i)
		if from == end {
			return false, nil
		}
		h := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", from, end-1)}}
		if isStrong(t.p.ETag) {
			h.Set("If-Range", t.p.ETag)
		}
		a, err := t.f.client.get(ctx, t.r.url, h, http.StatusRequestedRangeNotSatisfiable)
		if err != nil {
			return false, err
		}
		defer a.Body.Close()
		if err := t.check(a, from, end-1); err != nil {
			return false, err
		}
		n, err := t.f.copy(ctx, a, t.file, from, end-from, func(n int64) error { return t.add(i, n) })
		if err == nil && n < end-from {
			err = io.ErrUnexpectedEOF
		}
		return n >= leastBytes, err
	})
}

// check returns an error if an answer is not the requested part of the unchanged file.
func (t *transfer) check(a *http.Response, first, last int64) error {
	changed := refusal{errChanged}
	if a.StatusCode != http.StatusPartialContent { // If-Range did not hold, or the file has become shorter
		return changed
	}
	if tag := a.Header.Get("ETag"); isStrong(t.p.ETag) && isStrong(tag) && tag != t.p.ETag {
		return changed
	}
	f, l, all, ok := contentRange(a.Header.Get("Content-Range"))
	switch {
	case !ok || f != first || l != last && all == t.p.Size:
		return refusedf("%s: Content-Range %q, and bytes %d-%d of %d were asked for", show(a.Request.URL),
			clip(a.Header.Get("Content-Range")), first, last, t.p.Size)
	case all != t.p.Size:
		return changed
	}
	return nil
}

// add counts bytes of a part, and notes the state now and then.
func (t *transfer) add(i int, n int64) error {
	t.mu.Lock()
	t.p.Done[i] += n
	t.news += n
	due := t.news >= partState
	t.mu.Unlock()
	if due {
		return t.note()
	}
	return nil
}

package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/filelock"
)

// Limits of the store, in bytes, and of its things.
const (
	maxFile   = 200 << 20
	maxStore  = 16 << 30
	maxStored = 10000
	maxKept   = 1 << 20 // of a thing without its data
)

// keepFor is the time that files, and finished batches, are kept.
const keepFor = 30 * 24 * time.Hour

// store keeps files and batches in a folder. A thing exists from the moment of NAME.json, which appears whole;
// NAME.data has the contents of a file. Names are made here, and no others reach the folder.
type store struct {
	root *os.Root
	log  *slog.Logger
	// held while the store is open: of two servers each would run the other's batches, and remove its files
	lock   *os.File
	things *shares    // files and batches of each owner, and files under way
	bytes  *shares    // of files, and of lines written by batches
	mu     sync.Mutex // guards the rest, and the files NAME.json
	file   map[string]*storedFile
	job    map[string]*batch
}

// storedFile is a file in the form of OpenAI's API, with its owner.
type storedFile struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Bytes    int64  `json:"bytes"`
	Created  int64  `json:"created_at"`
	Expires  int64  `json:"expires_at,omitempty"` // 0 is never, as files of older versions
	Filename string `json:"filename"`
	Purpose  string `json:"purpose"`
	Status   string `json:"status"`
	owner    string
}

// newFile returns a file without its bytes.
func (s *Server) newFile(id, name, purpose, owner string) *storedFile {
	now := s.now()
	return &storedFile{ID: id, Object: "file", Created: now.Unix(), Expires: now.Add(keepFor).Unix(), Filename: name,
		Purpose: purpose, Status: "processed", owner: owner}
}

// kept is the form of a thing in its file. The first version named keys without a name by their line, as key1: such a
// key is another once a line before it goes, so the things of these names are nobody's.
type kept[T any] struct {
	Version int    `json:"version"`
	Owner   string `json:"owner"`
	Thing   T      `json:"thing"`
}

const keptVersion = 2

// numbered is how the first version named keys without a name.
var numbered = regexp.MustCompile(`^key[0-9]+$`)

// nobody returns an owner without a key, since names have no spaces.
func nobody(name string) string { return "nobody " + name }

// storeName matches the names made by the store.
var storeName = regexp.MustCompile(`^(file-|batch_)[a-z2-7]{24}$`)

// openStore reads the folder, and removes the remains of a killed server: incomplete files.
func openStore(dir string, keys keyring, log *slog.Logger) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	t := &store{root: root, log: log, things: newShares(maxStored, keys), bytes: newShares(maxStore, keys),
		file: map[string]*storedFile{}, job: map[string]*batch{}}
	if err = t.takeLock(); err == nil {
		err = t.read()
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("store %s: %w", dir, err)
	}
	return t, nil
}

// takeLock takes the lock, in a writable folder.
func (t *store) takeLock() (err error) {
	if t.lock, err = t.root.OpenFile("lock", os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	ok, err := filelock.Try(t.lock)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // this system locks no files
		return nil
	case err == nil && !ok:
		return errors.New("another server uses this folder; give each a folder of its own")
	}
	return err
}

func (t *store) close() error {
	if t.lock != nil {
		t.lock.Close() // nothing was written to the file
	}
	return t.root.Close()
}

// damagedEnd ends the name of an unreadable thing, set aside with its data.
const damagedEnd = ".json.damaged"

func (t *store) read() error {
	list, err := fs.ReadDir(t.root.FS(), ".")
	if err != nil {
		return err
	}
	damaged := map[string]bool{}
	for _, e := range list {
		if name, is := strings.CutSuffix(e.Name(), damagedEnd); is {
			damaged[name] = true
		}
		name, isThing := strings.CutSuffix(e.Name(), ".json")
		if !isThing || !storeName.MatchString(name) {
			continue
		}
		if err := t.readThing(name); err != nil {
			damaged[name] = true
			t.log.Error("a thing in the store is damaged, and set aside", "name", name+damagedEnd, "error",
				errors.Join(err, t.root.Rename(e.Name(), name+damagedEnd)).Error())
		}
	}
	for _, e := range list {
		name, isData := strings.CutSuffix(e.Name(), ".data")
		part, isPart := strings.CutSuffix(e.Name(), ".tmp")
		lost := isData && storeName.MatchString(name) && t.file[name] == nil && !damaged[name] && !t.isExpected(name)
		if lost || isPart && storeName.MatchString(strings.TrimSuffix(part, ".json")) {
			if err := t.root.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	for _, b := range t.job {
		t.things.add(b.owner, b.weight())
		if !b.isOver() {
			t.eachOutput(b, t.things.add, func(_ string, bytes int64) { t.bytes.add(b.owner, bytes) })
		}
	}
	return nil
}

// readThing takes in a file or a batch.
func (t *store) readThing(name string) error {
	if strings.HasPrefix(name, "file-") {
		f, owner, err := readKept[storedFile](t, name)
		if err != nil {
			return err
		}
		if f.ID != name || f.Bytes < 0 {
			return errors.New("it is no file")
		}
		f.owner = owner
		t.file[name] = f
		t.things.add(owner, 1)
		t.bytes.add(owner, f.Bytes)
		return nil
	}
	b, owner, err := readKept[batch](t, name)
	if err != nil {
		return err
	}
	if b.ID != name || !b.isSound() {
		return errors.New("it is no batch")
	}
	b.owner = owner
	t.job[name] = b
	return nil
}

// eachOutput calls count for each place kept for a file of a batch, and see for the data present there.
func (t *store) eachOutput(b *batch, count func(owner string, n int64), see func(name string, bytes int64)) {
	for i, id := range b.Outputs {
		if t.file[id] != nil { // already counted as a file
			continue
		}
		count(b.owner, 1)
		for _, name := range []string{b.part(i), id + ".data"} {
			if info, err := t.root.Stat(name); err == nil {
				see(name, info.Size())
			}
		}
	}
}

// isExpected reports whether an unfinished batch will have the file.
func (t *store) isExpected(file string) bool {
	for _, b := range t.job {
		if !b.isOver() && (b.Outputs[0] == file || b.Outputs[1] == file) {
			return true
		}
	}
	return false
}

func readKept[T any](t *store, name string) (thing *T, owner string, err error) {
	f, err := t.root.Open(name + ".json")
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	var k kept[T]
	text, err := io.ReadAll(io.LimitReader(f, maxKept+1))
	if err == nil && len(text) > maxKept {
		err = fmt.Errorf("it has more than %d bytes", maxKept)
	}
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if k.Version < keptVersion && numbered.MatchString(k.Owner) {
		k.Owner = nobody(k.Owner)
	}
	return &k.Thing, k.Owner, err
}

// keep writes a thing, whole or not at all, and only if it can be read back. The caller holds t.mu.
func (t *store) keep(id, owner string, thing any) error {
	text, err := json.Marshal(kept[any]{keptVersion, owner, thing})
	if err == nil && len(text) > maxKept {
		err = fmt.Errorf("%s has %d bytes, at most %d are kept", id, len(text), maxKept)
	}
	if err != nil {
		return err
	}
	part := id + ".json.tmp"
	f, err := t.root.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, t.root.Remove(part))
	}
	return t.root.Rename(part, id+".json")
}

// receive writes the contents of a new file, and returns their bytes.
func (t *store) receive(id string, from io.Reader) (n int64, err error) {
	part := id + ".tmp"
	f, err := t.root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(f, io.LimitReader(from, maxFile+1))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil && n > maxFile {
		err = errLarge
	}
	if err == nil {
		err = t.root.Rename(part, id+".data")
	}
	if err != nil {
		return 0, errors.Join(err, t.root.Remove(part))
	}
	return n, nil
}

var errLarge = errors.New("the file is too large")

// reserve counts things and bytes of an owner, if there is room for them.
func (t *store) reserve(owner string, things, bytes int64, now time.Time) *problem {
	t.expire(now)
	if t.things.take(owner, things) {
		if t.bytes.take(owner, bytes) {
			return nil
		}
		t.things.give(owner, things)
	}
	return refuse(413, "storage_full", "", "This server keeps no more files and batches of yours. Delete some with "+
		"DELETE /v1/files/ID and /v1/batches/ID")
}

// release gives back the counts of reserve.
func (t *store) release(owner string, things, bytes int64) {
	t.things.give(owner, things)
	t.bytes.give(owner, bytes)
}

// expire removes the files and batches whose time is over.
func (t *store) expire(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.job {
		if b.isOver() && now.After(b.ended().Add(keepFor)) {
			t.log.Info("batch expired", "batch", b.ID, "error", t.dropBatch(b))
		}
	}
	for _, f := range t.file {
		if f.Expires > 0 && now.Unix() >= f.Expires && !t.reads(f) {
			t.log.Info("file expired", "file", f.ID, "error", t.dropFile(f))
		}
	}
}

// add takes in a file, with its data present and counted.
func (t *store) add(f *storedFile) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.keep(f.ID, f.owner, f); err != nil {
		return err
	}
	t.file[f.ID] = f
	return nil
}

// find returns a file of a caller, nil if there is none.
func (t *store) find(id, owner string) *storedFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.file[id]; f != nil && f.owner == owner {
		return f
	}
	return nil
}

// remove deletes a file, unless a batch reads it.
func (t *store) remove(f *storedFile) (busy bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reads(f) {
		return true, nil
	}
	return false, t.dropFile(f)
}

// reads reports whether an unfinished batch reads a file.
func (t *store) reads(f *storedFile) bool {
	for _, b := range t.job {
		if b.Input == f.ID && !b.isOver() {
			return true
		}
	}
	return false
}

// dropFile removes a file. The caller holds t.mu.
func (t *store) dropFile(f *storedFile) error {
	if t.file[f.ID] == nil {
		return nil // somebody else was faster
	}
	delete(t.file, f.ID)
	t.release(f.owner, 1, f.Bytes)
	if err := t.root.Remove(f.ID + ".json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return t.root.Remove(f.ID + ".data")
}

// dropBatch removes a finished batch. Its files stay. The caller holds t.mu.
func (t *store) dropBatch(b *batch) error {
	if t.job[b.ID] == nil {
		return nil
	}
	delete(t.job, b.ID)
	t.things.give(b.owner, b.weight())
	return t.root.Remove(b.ID + ".json")
}

// files returns the ones of a caller, the newest first.
func (t *store) files(owner, purpose string) (all []*storedFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.file {
		if f.owner == owner && (purpose == "" || f.Purpose == purpose) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b *storedFile) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(b.ID, a.ID))
	})
	return all
}

// uploadLimit is how long a file may take to arrive.
const uploadLimit = 10 * time.Minute

// maxFilename bounds the names of files, in bytes; names are only shown.
const maxFilename = 255

// uploadFile answers POST /v1/files.
func uploadFile(x *exchange) any {
	kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		return refuse(http.StatusUnsupportedMediaType, "", "", "Content-Type is not multipart/form-data")
	}
	if coding := x.r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, "", "", "Content-Encoding %q: want none for a file", coding)
	}
	x.from.limit = uploadLimit
	x.r.Body = http.MaxBytesReader(x.w, x.r.Body, maxFile+1<<20)
	parts, err := x.r.MultipartReader()
	if err != nil {
		return bad("", "The body is not multipart/form-data")
	}
	f, t := x.s.newFile(newID("file-"), "", "", x.who.name), x.s.store
	room := int64(maxFile) // the file's, until its size is known
	if n := x.r.ContentLength; n >= 0 {
		room = min(room, n)
	}
	throw(t.reserve(f.owner, 1, room, x.s.now()))
	kept := false // a kept file may be gone by the end, and its room given back
	defer func() {
		if !kept {
			t.root.Remove(f.ID + ".data") // data of a file unknown to all
			t.release(f.owner, 1, room)
		}
	}()
	if !x.receive(f, parts) {
		return bad("file", "Missing required parameter: 'file'")
	}
	switch {
	case f.Purpose == "":
		return bad("purpose", "Missing required parameter: 'purpose'")
	case f.Purpose != "batch":
		fail("purpose", "%.64q, want batch", f.Purpose)
	}
	t.bytes.give(f.owner, room-f.Bytes)
	room = f.Bytes
	if err := t.add(f); err != nil {
		return x.s.explain(x.ctx, err)
	}
	kept = true
	return f
}

// receive reads the parts of an upload, and reports whether a file was there.
func (x *exchange) receive(f *storedFile, parts *multipart.Reader) (there bool) {
	for purpose := false; ; {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return there
		}
		if err != nil {
			throw(uploadProblem(err))
		}
		switch name := part.FormName(); {
		case name == "purpose" && !purpose:
			purpose = true
			text, err := io.ReadAll(io.LimitReader(part, 65))
			if err != nil {
				throw(uploadProblem(err))
			}
			f.Purpose = string(text)
		case name == "file" && !there:
			if f.Filename = part.FileName(); len(f.Filename) > maxFilename {
				fail("file", "its name has %d bytes, at most %d", len(f.Filename), maxFilename)
			}
			if f.Bytes, err = x.s.store.receive(f.ID, part); err != nil {
				if errors.Is(err, errLarge) {
					throw(uploadProblem(&http.MaxBytesError{Limit: maxFile}))
				}
				throw(uploadProblem(err))
			}
			there = true
		case name == "purpose" || name == "file":
			fail(name, "the field is there twice")
		default:
			throw(unknownField(name))
		}
	}
}

// uploadProblem returns the problem of an incomplete upload.
func uploadProblem(err error) *problem {
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return refuse(http.StatusRequestEntityTooLarge, "", "file", "The file has more than %d bytes", large.Limit)
	}
	if own := (*fs.PathError)(nil); errors.As(err, &own) {
		return internal("The server could not keep the file")
	}
	return bodyProblem(err, "")
}

// file returns the file of a path.
func (x *exchange) file() *storedFile {
	id := x.r.PathValue("id")
	if f := x.s.store.find(id, x.who.name); f != nil {
		return f
	}
	panic(noThing("file", id))
}

func noThing(kind, id string) *problem {
	return refuse(http.StatusNotFound, "not_found", "id", "No such %s: %.64q", kind, id)
}

func showFile(x *exchange) any { return x.file() }

func deleteFile(x *exchange) any {
	f := x.file()
	busy, err := x.s.store.remove(f)
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	if busy {
		return refuse(http.StatusConflict, "in_use", "id", "A batch reads the file")
	}
	return map[string]any{"id": f.ID, "object": "file", "deleted": true}
}

// sendFile answers GET /v1/files/ID/content.
func sendFile(x *exchange) any {
	f := x.file()
	data, err := x.s.store.root.Open(f.ID + ".data")
	if err != nil {
		return x.s.explain(x.ctx, err)
	}
	defer data.Close()
	x.w.Header().Set("Content-Type", "application/octet-stream")
	x.w.Header().Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	c := http.NewResponseController(x.w)
	buffer := make([]byte, 64<<10)
	for {
		n, err := data.Read(buffer)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		c.SetWriteDeadline(time.Now().Add(writeLimit)) // a writer without deadlines writes without a deadline
		if _, err := x.w.Write(buffer[:n]); err != nil {
			return nil // the client has gone
		}
	}
}

// listed is a part of a list.
type listed[T any] struct {
	Object string  `json:"object"`
	Data   []T     `json:"data"`
	First  *string `json:"first_id"`
	Last   *string `json:"last_id"`
	More   bool    `json:"has_more"`
}

// page returns a query's part of a list, by after, limit and order.
func page[T any](x *exchange, all []T, id func(T) string, most int) (list listed[T]) {
	q := x.r.URL.Query()
	limit := most
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			fail("limit", "%.32q, want 1 to %d", text, most)
		}
		limit = n
	}
	switch order := q.Get("order"); order {
	case "", "desc":
	case "asc":
		slices.Reverse(all)
	default:
		fail("order", "%.32q, want asc, desc", order)
	}
	if after := q.Get("after"); after != "" {
		i := slices.IndexFunc(all, func(v T) bool { return id(v) == after })
		if i < 0 {
			fail("after", "there is no %.64q", after)
		}
		all = all[i+1:]
	}
	list = listed[T]{Object: "list", Data: append([]T{}, all[:min(limit, len(all))]...), More: len(all) > limit}
	if n := len(list.Data); n > 0 {
		list.First, list.Last = nullable(id(list.Data[0])), nullable(id(list.Data[n-1]))
	}
	return list
}

func listFiles(x *exchange) any {
	list := page(x, x.s.store.files(x.who.name, strings.TrimSpace(x.r.URL.Query().Get("purpose"))),
		func(f *storedFile) string { return f.ID }, maxStored)
	return x.replyLarge(list)
}

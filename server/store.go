package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/filelock"
)

// Limits of the store, in bytes, and of its things.
const (
	maxFile   = 200 << 20
	maxStore  = 16 << 30
	maxStored = 10000
)

// store keeps files and batches in a folder. A thing is there once NAME.json is, which appears whole; what a file
// holds is in NAME.data. Names are made here, and no others reach the folder.
type store struct {
	root *os.Root
	lock *os.File   // held while the store is open: of two servers each would run the other's batches, and remove its files
	mu   sync.Mutex // guards what follows, and the files NAME.json
	file map[string]*storedFile
	job  map[string]*batch
}

// storedFile is a file as OpenAI's API tells it, and whose it is.
type storedFile struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Bytes    int64  `json:"bytes"`
	Created  int64  `json:"created_at"`
	Filename string `json:"filename"`
	Purpose  string `json:"purpose"`
	Status   string `json:"status"`
	owner    string
}

// kept is how a thing lies in its file.
type kept[T any] struct {
	Owner string `json:"owner"`
	Thing T      `json:"thing"`
}

// storeName are the names that the store makes.
var storeName = regexp.MustCompile(`^(file-|batch_)[a-z2-7]{24}$`)

// openStore reads the folder. What a server has left that was killed goes: files that were not received whole.
func openStore(dir string) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	t := &store{root: root, file: map[string]*storedFile{}, job: map[string]*batch{}}
	if err = t.own(); err == nil {
		err = t.read()
	}
	if err != nil {
		t.close()
		return nil, fmt.Errorf("store %s: %w", dir, err)
	}
	return t, nil
}

// own takes the lock, which needs a folder that can be written to.
func (t *store) own() (err error) {
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
		t.lock.Close() // nothing was written to it
	}
	return t.root.Close()
}

func (t *store) read() error {
	list, err := fs.ReadDir(t.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range list {
		name, isThing := strings.CutSuffix(e.Name(), ".json")
		switch {
		case !isThing || !storeName.MatchString(name):
		case strings.HasPrefix(name, "file-"):
			k, err := readKept[storedFile](t, e.Name())
			if err != nil {
				return err
			}
			k.Thing.owner = k.Owner
			t.file[name] = &k.Thing
		default:
			k, err := readKept[batch](t, e.Name())
			if err != nil {
				return err
			}
			k.Thing.owner = k.Owner
			t.job[name] = &k.Thing
		}
	}
	for _, e := range list {
		name, isData := strings.CutSuffix(e.Name(), ".data")
		part, isPart := strings.CutSuffix(e.Name(), ".tmp")
		lost := isData && storeName.MatchString(name) && t.file[name] == nil && !t.expected(name)
		if lost || isPart && storeName.MatchString(strings.TrimSuffix(part, ".json")) {
			if err := t.root.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// expected reports whether a batch that is not over will have the file.
func (t *store) expected(file string) bool {
	for _, b := range t.job {
		if !b.over() && (b.Outputs[0] == file || b.Outputs[1] == file) {
			return true
		}
	}
	return false
}

func readKept[T any](t *store, name string) (k kept[T], err error) {
	f, err := t.root.Open(name)
	if err != nil {
		return k, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return k, fmt.Errorf("%s: %w", name, err)
	}
	return k, nil
}

// keep writes a thing, which appears whole or not at all. The caller holds t.mu.
func (t *store) keep(id, owner string, thing any) error {
	text, err := json.Marshal(kept[any]{owner, thing})
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

// receive writes what a new file holds, and returns its bytes.
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

// full says whether the store takes no more things.
func (t *store) full() *problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	var bytes int64
	for _, f := range t.file {
		bytes += f.Bytes
	}
	if bytes > maxStore || len(t.file)+len(t.job) >= maxStored {
		return &problem{status: 413, kind: invalid, code: "storage_full", message: "This server keeps no more files and batches. Delete some with DELETE /v1/files/ID"}
	}
	return nil
}

// add takes a file in, whose data is there.
func (t *store) add(f *storedFile) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.keep(f.ID, f.owner, f); err != nil {
		return err
	}
	t.file[f.ID] = f
	return nil
}

// find is a file of a caller, nil if there is none.
func (t *store) find(id, owner string) *storedFile {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.file[id]; f != nil && f.owner == owner {
		return f
	}
	return nil
}

// remove deletes a file, but for one that a batch reads.
func (t *store) remove(f *storedFile) (busy bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.job {
		if b.Input == f.ID && !b.over() {
			return true, nil
		}
	}
	delete(t.file, f.ID)
	if err := t.root.Remove(f.ID + ".json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return false, t.root.Remove(f.ID + ".data")
}

// files are those of a caller, the newest first.
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

// Package hub has models by name: it pulls their files from Hugging Face, from registries of containers and by https,
// and keeps them in a store.
//
// The store is a folder:
//
//	names/KEY.json        the manifest of a model: its name, its source, and its files' digests
//	blobs/HEX             a file, by its SHA-256: whole and verified
//	files/KEY/VIEW/...    a model's files under their own names, as hard links to blobs: models are opened here
//	unfinished/KEY.json   a pull without an end so far: left alone by collect
//	partial/ID            a file being downloaded, with ID.json, the progress, and ID.lock
//	lock                  held for moments, by a writer of any of the first four
//
// A model exists from the moment of its manifest, renamed into place after everything else. An interruption before
// leaves the model as it was, and leaves a pull for the next to go on with.
//
// A server's answer is a stranger's text: each number is bounded, each path checked (checkPath), each digest parsed
// (Digest), and files are reached through os.Root alone.
//
// Files in reading order: pull.go (a pull from end to end), oci.go and huggingface.go (the files of a reference),
// download.go (a file in parts), client.go (requests), store.go (the folder), reference.go (names and references),
// manifest.go (manifests and digests).
package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/filelock"
	"github.com/karat-run/karat/internal/hub/local"
)

// Store is a folder of models, safe for several processes at once.
type Store struct {
	dir  string
	root *os.Root // nil where the folder is not there yet
}

// Open opens the store in dir. A missing folder is an empty store, made by the first pull.
func Open(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &Store{dir: dir, root: root}, nil
}

// Close frees the store.
func (s *Store) Close() error {
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

// Dir returns the store's folder.
func (s *Store) Dir() string { return s.dir }

var folders = []string{"names", "blobs", "files", "unfinished", "partial"}

// make makes the store's folders.
func (s *Store) make() error {
	if s.root == nil {
		err := os.MkdirAll(s.dir, 0o777)
		if err == nil {
			s.root, err = os.OpenRoot(s.dir)
		}
		if err != nil {
			return err
		}
	}
	for _, dir := range folders {
		if err := s.root.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("%s: %w", s.dir, err)
		}
	}
	return nil
}

// look is the pause between two looks at a lock held by another process.
const look = 50 * time.Millisecond

// lock waits for the lock of a file's name, or for the end of ctx.
func (s *Store) lock(ctx context.Context, name string) (*os.File, error) {
	for {
		f, err := s.tryLock(name)
		if f != nil || err != nil {
			return f, err
		}
		if err := sleep(ctx, look); err != nil {
			return nil, err
		}
	}
}

// tryLock takes a lock at once, nil if another process has it.
func (s *Store) tryLock(name string) (*os.File, error) {
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir, err)
	}
	ok, err := filelock.Try(f)
	if ok { // a file removed meanwhile locks nothing
		var a, b fs.FileInfo
		if a, err = f.Stat(); err == nil {
			b, err = s.root.Stat(name)
		}
		ok = err == nil && os.SameFile(a, b)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if !ok || err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// change runs f with the lock of the store.
func (s *Store) change(ctx context.Context, f func() error) error {
	if err := s.make(); err != nil {
		return err
	}
	l, err := s.lock(ctx, "lock")
	if err != nil {
		return err
	}
	defer l.Close()
	return f()
}

// write puts a value into the store, as JSON.
func (s *Store) write(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return s.writeBytes(name, append(data, '\n'))
}

// writeBytes puts a file into the store.
func (s *Store) writeBytes(name string, data []byte) error {
	err := atomicfile.WriteIn(s.root, name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s.dir, err)
	}
	return nil
}

// read returns a small file of the store.
func (s *Store) read(name string) ([]byte, error) {
	if s.root == nil {
		return nil, fs.ErrNotExist
	}
	st, err := s.root.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s: not a regular file", filepath.Join(s.dir, name))
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = fmt.Errorf("%s: more than %d bytes", filepath.Join(s.dir, name), maxManifest)
	}
	return data, err
}

// list returns the names of a folder of the store.
func (s *Store) list(dir string) (names []string, err error) {
	if s.root == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func nameFile(key string) string       { return path.Join("names", key+".json") }
func unfinishedFile(key string) string { return path.Join("unfinished", key+".json") }
func blobFile(d Digest) string         { return path.Join("blobs", d.hex()) }

// Get returns the manifest of a model.
func (s *Store) Get(name string) (*Manifest, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	data, err := s.read(nameFile(local.Key(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w in %s", name, local.ErrNoModel, s.dir)
	}
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(data)
	if err == nil && local.Key(m.Name) != local.Key(name) {
		err = fmt.Errorf("the manifest of %s is that of %s", name, m.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, filepath.Join(s.dir, filepath.FromSlash(nameFile(local.Key(name)))))
	}
	return m, nil
}

// List lists the models by name. The error has the unreadable manifests, beside a list of the others.
func (s *Store) List() (all []*Manifest, err error) {
	names, err := s.list("names")
	errs := []error{err}
	for _, file := range names {
		key, ok := strings.CutSuffix(file, ".json")
		if !ok {
			continue
		}
		m, err := s.Get(strings.ReplaceAll(key, "+", ":"))
		if err == nil {
			all = append(all, m)
		} else if !errors.Is(err, local.ErrNoModel) { // removed meanwhile
			errs = append(errs, err)
		}
	}
	slices.SortFunc(all, func(a, b *Manifest) int { return cmp.Compare(local.Key(a.Name), local.Key(b.Name)) })
	return all, errors.Join(errs...)
}

// Path returns the path for opening the model: the file, the first part of a split file, or the folder.
func (s *Store) Path(m *Manifest) (string, error) {
	return m.light().Place(s.root, s.dir)
}

// Remove removes a model or an unfinished pull, and all files needed by no other model. Remove returns the bytes freed.
func (s *Store) Remove(ctx context.Context, name string) (free int64, err error) {
	if err := CheckName(name); err != nil {
		return 0, err
	}
	if s.root == nil {
		return 0, fmt.Errorf("%s: %w in %s", name, local.ErrNoModel, s.dir)
	}
	err = s.change(ctx, func() error {
		found := false
		for _, file := range []string{nameFile(local.Key(name)), unfinishedFile(local.Key(name))} {
			err := s.root.Remove(file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: %w", name, err)
			}
			found = found || err == nil
		}
		if !found {
			return fmt.Errorf("%s: %w in %s", name, local.ErrNoModel, s.dir)
		}
		free, err = collect(s)
		return err
	})
	return free, err
}

// Sharing returns the names of other models with files of m.
func (s *Store) Sharing(m *Manifest) (names []string) {
	all, _ := s.List() // of broken ones nothing is known
	for _, other := range all {
		if local.Key(other.Name) != local.Key(m.Name) && slices.ContainsFunc(other.Files, func(f File) bool {
			return slices.ContainsFunc(m.Files, func(g File) bool { return f.SHA256 == g.SHA256 })
		}) {
			names = append(names, other.Name)
		}
	}
	return names
}

// Copy gives a model a second name.
func (s *Store) Copy(ctx context.Context, from, to string) error {
	if err := CheckName(to); err != nil {
		return err
	}
	if _, err := s.Get(from); err != nil {
		return err
	}
	return s.change(ctx, func() error {
		m, err := s.Get(from)
		if err != nil {
			return err
		}
		if _, err := s.Get(to); !errors.Is(err, local.ErrNoModel) {
			return cmp.Or(err, fmt.Errorf("%s: there is a model of this name; karat rm %s removes it", to, to))
		}
		m.Name = to
		return putModel(s, m)
	})
}

// SetType notes the type of a model, for people.
func (s *Store) SetType(ctx context.Context, name, kind string) error {
	return s.change(ctx, func() error {
		m, err := s.Get(name)
		if err != nil || m.Type == clip(kind) {
			return err
		}
		m.Type = clip(kind)
		return s.write(nameFile(local.Key(name)), m)
	})
}

// putModel makes a model visible, all of whose blobs are there. The caller has the lock.
func putModel(s *Store, m *Manifest) error {
	if err := m.validate(); err != nil {
		return err
	}
	if err := makeView(s, m); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	return s.write(nameFile(local.Key(m.Name)), m)
}

// temporaryView is the name of a folder in the making by the lock's holder.
const temporaryView = "files/.new"

// makeView makes the folder of a model's files.
func makeView(s *Store, m *Manifest) error {
	if _, err := s.Path(m); err == nil {
		return nil
	}
	if err := s.root.RemoveAll(temporaryView); err != nil {
		return err
	}
	for _, f := range m.Files {
		if !s.hasBlob(f.SHA256, f.Size) {
			return fmt.Errorf("its file %s was removed meanwhile: karat pull %s", f.Path, m.Source)
		}
		to := path.Join(temporaryView, f.Path)
		if err := s.root.MkdirAll(path.Dir(to), 0o777); err != nil {
			return err
		}
		if err := s.root.Link(blobFile(f.SHA256), to); err == nil {
			continue
		}
		if err := copyFile(s, blobFile(f.SHA256), to); err != nil { // a disk without links
			return err
		}
	}
	dir := m.light().View()
	if err := s.root.RemoveAll(dir); err != nil { // incomplete
		return err
	}
	if err := s.root.MkdirAll(path.Dir(dir), 0o777); err != nil {
		return err
	}
	return s.root.Rename(temporaryView, dir)
}

// copyFile copies a file of the store.
func copyFile(s *Store, from, to string) error {
	r, err := s.root.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	return atomicfile.WriteIn(s.root, to, func(w io.Writer) error {
		_, err := io.Copy(w, r)
		return err
	})
}

// hasBlob reports whether a file is there, of so many bytes; -1 is any number.
func (s *Store) hasBlob(d Digest, size int64) bool {
	st, err := s.root.Lstat(blobFile(d))
	return err == nil && st.Mode().IsRegular() && (size < 0 || st.Size() == size)
}

// Unfinished is a pull under way or cut off.
type Unfinished struct {
	Name   string    `json:"name"`
	Source string    `json:"source"`
	Began  time.Time `json:"began"`
	Keys   []string  `json:"keys"` // of blobs and of partial files
}

// parseUnfinished reads a file of unfinished.
func parseUnfinished(data []byte) (*Unfinished, error) {
	var u Unfinished
	if err := strictJSON(data, &u); err != nil {
		return nil, fmt.Errorf("unfinished pull: %w", err)
	}
	for _, k := range u.Keys {
		if _, err := ParseDigest(algorithm + k); err != nil {
			return nil, err
		}
	}
	return &u, CheckName(u.Name)
}

// Unfinished lists the pulls under way or cut off.
func (s *Store) Unfinished() (all []*Unfinished, err error) {
	names, err := s.list("unfinished")
	errs := []error{err}
	for _, file := range names {
		if path.Ext(file) != ".json" {
			continue
		}
		data, err := s.read(path.Join("unfinished", file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var u *Unfinished
		if err == nil {
			u, err = parseUnfinished(data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w (unfinished/%s)", err, file))
			continue
		}
		all = append(all, u)
	}
	return all, errors.Join(errs...)
}

// beginPull notes a pull, to keep collect away from its files.
func beginPull(s *Store, ctx context.Context, u *Unfinished) error {
	return s.change(ctx, func() error { return s.write(unfinishedFile(local.Key(u.Name)), u) })
}

// keepBlob makes a blob of a file downloaded and verified. A digest unknown before becomes a key of u.
func keepBlob(s *Store, ctx context.Context, u *Unfinished, partial string, d Digest) error {
	return s.change(ctx, func() error {
		if !slices.Contains(u.Keys, d.hex()) {
			u.Keys = append(u.Keys, d.hex())
			if err := s.write(unfinishedFile(local.Key(u.Name)), u); err != nil {
				return err
			}
		}
		if err := s.root.Chmod(partial, 0o444); err != nil {
			return err
		}
		if err := s.root.Rename(partial, blobFile(d)); err != nil {
			return err
		}
		return nil
	})
}

// finishPull makes the model of a pull visible.
func finishPull(s *Store, ctx context.Context, m *Manifest) error {
	return s.change(ctx, func() error {
		if err := putModel(s, m); err != nil {
			return err
		}
		if err := s.drop(unfinishedFile(local.Key(m.Name))); err != nil {
			return err
		}
		_, err := collect(s) // files of the model's former manifest
		return err
	})
}

// collect removes all files needed by no model and no pull, and returns their bytes. The caller has the lock. An
// unreadable manifest may need anything, so nothing is removed beside such a manifest.
func collect(s *Store) (free int64, err error) {
	models, err := s.List()
	if err != nil {
		return 0, fmt.Errorf("%w; nothing else was removed", err)
	}
	pulls, err := s.Unfinished()
	if err != nil {
		return 0, fmt.Errorf("%w; nothing else was removed", err)
	}
	blobs, pulled, views := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range models {
		views[m.light().View()] = true
		for _, f := range m.Files {
			blobs[f.SHA256.hex()] = true
		}
	}
	for _, u := range pulls {
		for _, k := range u.Keys {
			blobs[k], pulled[k] = true, true
		}
	}
	free, err = sweep(s, "blobs", func(name string) bool { return blobs[name] })
	return free, errors.Join(err, sweepPartial(s, pulled), sweepFiles(s, views), sweepTemporary(s, "names"),
		sweepTemporary(s, "unfinished"))
}

// sweep removes the files of a folder not wanted by kept.
func sweep(s *Store, dir string, kept func(name string) bool) (free int64, err error) {
	names, err := s.list(dir)
	errs := []error{err}
	for _, name := range names {
		if kept(name) {
			continue
		}
		st, err := s.root.Lstat(path.Join(dir, name))
		if err == nil {
			err = s.root.Remove(path.Join(dir, name))
		}
		if err == nil {
			free += st.Size()
		}
		errs = append(errs, err)
	}
	return free, errors.Join(errs...)
}

// sweepTemporary removes the remains of writes cut off: the lock's holder is the only writer.
func sweepTemporary(s *Store, dir string) error {
	_, err := sweep(s, dir, func(name string) bool { return path.Ext(name) != ".tmp" })
	return err
}

// sweepPartial removes partial files of no pull, except locked ones.
func sweepPartial(s *Store, pulled map[string]bool) error {
	names, err := s.list("partial")
	errs := []error{err}
	done := map[string]bool{}
	for _, name := range names {
		key, _, _ := strings.Cut(name, ".")
		if pulled[key] || done[key] {
			continue
		}
		done[key] = true
		l, err := s.tryLock(partialFile(key) + ".lock")
		if err == nil && l != nil {
			for _, other := range names { // also a write of KEY.json cut off
				if strings.HasPrefix(other, key+".") && path.Ext(other) == ".tmp" {
					errs = append(errs, s.drop(path.Join("partial", other)))
				}
			}
			err = dropPartial(s, key)
			l.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepFiles removes the folders of models removed or pulled anew with other files.
func sweepFiles(s *Store, views map[string]bool) error {
	keys, err := s.list("files")
	errs := []error{err}
	for _, key := range keys {
		dir := path.Join("files", key)
		ids, err := s.list(dir)
		errs = append(errs, err)
		left := 0
		for _, id := range ids {
			if views[path.Join(dir, id)] {
				left++
				continue
			}
			errs = append(errs, s.root.RemoveAll(path.Join(dir, id)))
		}
		if left == 0 {
			errs = append(errs, s.root.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/hub/local"
)

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

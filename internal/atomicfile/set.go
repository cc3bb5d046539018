package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
)

// set is files of one folder that belong together. An unfinished commit lies in the
// folder FIRST.commit/ID beside them, FIRST being the first one's name and ID a random
// name, so that who is late touches nothing of the next commit:
//
//	ready/NAME  may become NAME: nothing has changed. If old and none still say what NAME is,
//	            ready becomes new, and else stale.
//	stale/NAME  is to go back to its writer: the folder ID becomes FIRST.ID.tmp.
//	new/NAME    is to become NAME. While there is new, all is to be put in place.
//	back/NAME   instead of new, where that failed: all is to be as it was.
//	old/NAME    is what NAME was
//	none/NAME   stands for a NAME that was not there
//
// Without the first four nothing is to do but to tidy up.
type set struct {
	dir   string
	names []string
}

// maxTries is how often others may be in the way of a commit, or of who opens a set.
const maxTries = 64

// before is called before each operation of a commit; a test's fails, or stops the program.
var before = func(operation string) error { return nil }

// newSet is the set of paths, which lie in one folder under different names.
func newSet(paths []string) (*set, error) {
	s := &set{dir: filepath.Dir(paths[0])}
	seen := map[string]bool{}
	for _, p := range paths {
		name := filepath.Base(p)
		if filepath.Dir(p) != s.dir || seen[name] {
			return nil, &fs.PathError{Op: "write", Path: p, Err: errors.New("files that belong together have one folder and different names")}
		}
		seen[name] = true
		s.names = append(s.names, name)
	}
	return s, nil
}

func (s *set) path(name string) string { return filepath.Join(s.dir, name) }

// place is the folder of the commit that is under way.
func (s *set) place() string { return s.path(s.names[0] + ".commit") }

// away is where the folder of a commit lies that is not in its place.
func (s *set) away(id string) string {
	return fmt.Sprintf("%s.%s.tmp", s.path(s.names[0]), filepath.Base(id))
}

// commit puts the files at from in the places of the set's, all or none.
func (s *set) commit(from []string) error {
	for range maxTries {
		if err := s.settle(); err != nil {
			return err
		}
		id := filepath.Join(s.place(), fmt.Sprintf("%08x", rand.Uint32()))
		stage := filepath.Join(s.away(id), filepath.Base(id))
		err := s.stage(stage, from)
		if err != nil {
			return errors.Join(err, s.unstage(id, from))
		}
		err = rename(s.away(id), s.place()) // there is none, or an empty one
		if err == nil {
			syncFolder(s.dir)
			again, err := s.placed(id, from)
			if again {
				continue
			}
			return err
		}
		err = errors.Join(err, s.unstage(id, from))
		if !errors.Is(err, fs.ErrExist) && !isFolder(s.place()) { // as Windows calls it
			return err
		}
	}
	return &fs.PathError{Op: "write", Path: s.place(), Err: errors.New("other programs write the same files")}
}

// placed goes on when the folder id is in its place. It asks for a new one if another
// commit has ended between the look at the old files and that.
func (s *set) placed(id string, from []string) (again bool, err error) {
	err = s.decide(id)
	if err != nil {
		e := rename(filepath.Join(id, "ready"), filepath.Join(id, "stale"))
		if errors.Is(e, fs.ErrNotExist) {
			err = nil // another program has decided
		} else if e != nil {
			return false, s.waits(err, e)
		}
	}
	if !isFolder(filepath.Join(id, "stale")) && !isFolder(s.away(id)) {
		return false, s.finish(id)
	}
	e := s.unstage(id, from)
	return err == nil && e == nil, errors.Join(err, e)
}

// decide makes of ready what it is to be. Several may do so at the same time: nothing
// changes before all have found the same.
func (s *set) decide(id string) error {
	becomes := "stale"
	if s.current(id) {
		becomes = "new"
	}
	err := rename(filepath.Join(id, "ready"), filepath.Join(id, becomes))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another program has done so
	}
	syncFolder(id)
	return err
}

// current reports whether the files are what they were when id was staged.
func (s *set) current(id string) bool {
	for _, name := range s.names {
		if exists(filepath.Join(id, "none", name)) {
			if exists(s.path(name)) {
				return false
			}
		} else if !same(filepath.Join(id, "old", name), s.path(name)) {
			return false
		}
	}
	return true
}

// withdraw takes the folder id, which is stale, out of its place: its writer may want it.
func (s *set) withdraw(id string) error {
	err := rename(id, s.away(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = remove(s.place()) // unless another has put its own there
	return nil
}

// waits is the error of a commit that could be neither ended nor taken back.
func (s *set) waits(err, back error) error {
	return errors.Join(err, fmt.Errorf("what belongs there waits in %s: %w", s.place(), back))
}

// stage fills the folder id: nothing in its place changes.
func (s *set) stage(id string, from []string) error {
	for _, dir := range []string{filepath.Dir(id), id, filepath.Join(id, "ready"), filepath.Join(id, "old"), filepath.Join(id, "none")} {
		if err := try("mkdir", func() error { return os.Mkdir(dir, 0o777) }); err != nil {
			return err
		}
	}
	for i, name := range s.names {
		if err := s.keep(id, name); err != nil {
			return cannot(s.path(name), err)
		}
		if err := rename(from[i], filepath.Join(id, "ready", name)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"ready", "old", "none", ".", ".."} {
		syncFolder(filepath.Join(id, dir))
	}
	return nil
}

// keep notes what name is now.
func (s *set) keep(id, name string) error {
	switch st, err := os.Lstat(s.path(name)); {
	case errors.Is(err, fs.ErrNotExist):
		return try("write", func() error { return os.WriteFile(filepath.Join(id, "none", name), nil, 0o666) })
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return errors.New("not a regular file, and so not replaced")
	}
	old := filepath.Join(id, "old", name)
	if try("link", func() error { return os.Link(s.path(name), old) }) == nil {
		return nil
	}
	return try("copy", func() error { return copyFile(old, s.path(name)) }) // where there are no links
}

// unstage brings the files of a commit that changes nothing back to where stage took
// them from, and removes its folder. Meanwhile others may withdraw it.
func (s *set) unstage(id string, to []string) error {
	held := []string{filepath.Join(s.away(id), filepath.Base(id), "ready"), filepath.Join(id, "stale"), filepath.Join(s.away(id), "stale")}
	for i, name := range s.names {
		for _, dir := range held {
			if err := os.Rename(filepath.Join(dir, name), to[i]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	err := errors.Join(os.RemoveAll(id), os.RemoveAll(s.away(id)))
	_ = os.Remove(s.place()) // unless another has put its own there
	return err
}

// finish puts the new files in their places, or all back if one cannot be put there.
func (s *set) finish(id string) error {
	err := s.forward(id)
	if err == nil {
		return nil
	}
	back := rename(filepath.Join(id, "new"), filepath.Join(id, "back"))
	if errors.Is(back, fs.ErrNotExist) {
		return nil // another program has put the last one in its place meanwhile
	}
	if back == nil {
		back = s.back(id)
	}
	if back != nil {
		return s.waits(err, back)
	}
	return err
}

// settle ends what others have begun and not ended.
func (s *set) settle() error {
	for range maxTries {
		id, err := s.underWay()
		if err != nil || id == "" {
			return err
		}
		switch { // in the order in which these come and go
		case isFolder(filepath.Join(id, "ready")):
			err = s.decide(id)
		case isFolder(filepath.Join(id, "stale")):
			err = s.withdraw(id)
		case isFolder(filepath.Join(id, "new")):
			err = s.forward(id)
		case isFolder(filepath.Join(id, "back")):
			err = s.back(id)
		default:
			s.tidy(id)
			return nil
		}
		if err != nil {
			return fmt.Errorf("a write of these files was interrupted, and its end fails (%s): %w", s.place(), err)
		}
	}
	return &fs.PathError{Op: "settle", Path: s.place(), Err: errors.New("other programs write the same files")}
}

// underWay is the folder of a commit that has begun; "" is none.
func (s *set) underWay() (id string, err error) {
	if !isFolder(s.place()) {
		return "", nil
	}
	entries, err := os.ReadDir(s.place())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case len(entries) == 0:
		_ = os.Remove(s.place())
		return "", nil
	}
	if id = filepath.Join(s.place(), entries[0].Name()); len(entries) > 1 || !entries[0].IsDir() {
		return "", &fs.PathError{Op: "open", Path: s.place(), Err: errors.New("not a folder of an interrupted write")}
	}
	return id, nil
}

// forward moves the remaining new files into place. Several may do so at the same time.
func (s *set) forward(id string) error {
	for _, name := range s.names {
		if err := rename(filepath.Join(id, "new", name), s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	syncFolder(s.dir)
	if err := remove(filepath.Join(id, "new")); err != nil {
		return err
	}
	if isFolder(filepath.Join(id, "back")) { // new has become that meanwhile: back needs the old files
		return s.back(id)
	}
	s.tidy(id)
	return nil
}

// back makes all as it was. Several may do so at the same time.
func (s *set) back(id string) error {
	for _, name := range s.names {
		err := rename(filepath.Join(id, "old", name), s.path(name)) // nothing, if that is the same file still
		if errors.Is(err, fs.ErrNotExist) && exists(filepath.Join(id, "none", name)) {
			err = rename(s.path(name), filepath.Join(id, "none", name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	syncFolder(s.dir)
	for _, name := range s.names {
		if err := remove(filepath.Join(id, "back", name)); err != nil {
			return err
		}
	}
	if err := remove(filepath.Join(id, "back")); err != nil {
		return err
	}
	s.tidy(id)
	return nil
}

// tidy removes the leftovers; if it fails, the next caller does it.
func (s *set) tidy(id string) {
	for _, dir := range []string{"old", "none"} {
		for _, name := range s.names {
			_ = remove(filepath.Join(id, dir, name))
		}
		_ = remove(filepath.Join(id, dir))
	}
	_ = remove(id)
	_ = remove(s.place())
}

// Open opens the files at paths, one folder's, as one commit left them: what was
// interrupted is finished first, and a commit while open runs makes it run again.
// The order of paths is that of the files of CommitAll; some may be missing.
func Open[T io.Closer](paths []string, open func() (T, error)) (none T, err error) {
	s, err := newSet(paths)
	if err != nil {
		return none, err
	}
	for range maxTries {
		if err := s.settle(); err != nil && s.pending() { // while a commit is ready, all files are old
			return none, err
		}
		files := s.files()
		if s.pending() {
			continue
		}
		x, err := open()
		if s.are(files) { // from before pending said no until now
			return x, err
		}
		if err == nil {
			x.Close()
		}
	}
	return none, &fs.PathError{Op: "open", Path: paths[0], Err: errors.New("it is replaced again and again")}
}

// pending reports whether the files may be those of two commits.
func (s *set) pending() bool {
	id, err := s.underWay()
	return err != nil || id != "" && (isFolder(filepath.Join(id, "new")) || isFolder(filepath.Join(id, "back")))
}

// files is what the set's files are; nil is none.
func (s *set) files() (all []fs.FileInfo) {
	for _, name := range s.names {
		st, err := os.Stat(s.path(name))
		if err != nil {
			st = nil
		}
		all = append(all, st)
	}
	return all
}

// are reports whether the set's files are still the given ones.
func (s *set) are(files []fs.FileInfo) bool {
	for i, now := range s.files() {
		was := files[i]
		if (was == nil) != (now == nil) || was != nil && !(os.SameFile(was, now) && was.ModTime().Equal(now.ModTime()) && was.Size() == now.Size()) {
			return false
		}
	}
	return true
}

// try runs an operation, which errors name so.
func try(operation string, do func() error) error {
	if err := before(operation); err != nil {
		return err
	}
	return do()
}

func rename(from, to string) error { return try("rename", func() error { return os.Rename(from, to) }) }

// remove removes a file or an empty folder, which may be gone already.
func remove(path string) error {
	err := try("remove", func() error { return os.Remove(path) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// isFolder: a link to one is none.
func isFolder(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.IsDir()
}

// same reports whether two paths are one file, or files of the same bytes.
func same(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b)
	if err != nil || x.Size() != y.Size() || !y.Mode().IsRegular() {
		return false
	}
	return os.SameFile(x, y) || sameBytes(a, b)
}

func sameBytes(a, b string) bool {
	f, err := os.Open(a)
	if err != nil {
		return false
	}
	defer f.Close()
	g, err := os.Open(b)
	if err != nil {
		return false
	}
	defer g.Close()
	p, q := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, err := io.ReadFull(f, p)
		m, _ := io.ReadFull(g, q)
		if !bytes.Equal(p[:n], q[:m]) {
			return false
		}
		if err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// copyFile makes the file at to, which is on the disk then, of the one at from.
func copyFile(to, from string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Sync(), w.Close())
}

// syncFolder brings a folder's names to the disk, where a system can; a test of thousands of commits does without.
var syncFolder = func(dir string) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		return
	}
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

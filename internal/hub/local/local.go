// Package local finds pulled models by their names. It reads the store of package hub without HTTP, and so fits into
// each program that loads a model.
package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
)

// Variable may name the store's folder.
const Variable = "KARAT_MODELS"

// ErrNoModel is wrapped by the errors of names without a model in the store.
var ErrNoModel = errors.New("no such model")

// DefaultDir returns the store's folder: the variable KARAT_MODELS, else .karat/models in the user's folder.
func DefaultDir() (string, error) {
	if dir := os.Getenv(Variable); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no folder for models: %w (%s may name one)", err, Variable)
	}
	return filepath.Join(home, ".karat", "models"), nil
}

// Key returns the name of a model's files in the store. Names differing only in case have the same key, for file
// systems without case.
func Key(name string) string { return strings.ReplaceAll(strings.ToLower(name), ":", "+") }

// IsName reports whether a text has the form of a name: letters, digits, and . _ - between them, in one part or two
// with a colon.
func IsName(name string) bool {
	head, tag, tagged := strings.Cut(name, ":")
	return isPart(head) && (!tagged || isPart(tag)) && len(name) <= 128
}

func isPart(s string) bool {
	isLetter := func(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' }
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && (i == 0 || !strings.Contains("._-", string(c))) {
			return false
		}
	}
	return s != "" && !strings.HasSuffix(s, ".")
}

// Manifest is the part of hub's manifest for finding a model.
type Manifest struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Format string `json:"format"`
	Files  []File `json:"files"`
}

// File is a file of a model.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// View returns the folder of a model's files in the store.
func (m *Manifest) View() string {
	h := sha256.New()
	for _, f := range m.Files {
		fmt.Fprintf(h, "%s %d %s\n", f.SHA256, f.Size, f.Path)
	}
	return path.Join("files", Key(m.Name), hex.EncodeToString(h.Sum(nil)[:8]))
}

// Place returns the path of a model in the store in dir: the file, the first part of a split file, or the folder.
func (m *Manifest) Place(root *os.Root, dir string) (string, error) {
	at := m.View()
	for _, f := range m.Files {
		st, err := root.Lstat(path.Join(at, f.Path))
		switch {
		case err != nil || !st.Mode().IsRegular():
			return "", fmt.Errorf("%s: its file %s is gone from %s: karat pull %s", m.Name, f.Path, dir, m.Source)
		case st.Size() != f.Size:
			return "", fmt.Errorf("%s: its file %s has %d bytes, and had %d when it was pulled: remove it, and "+
				"karat pull %s", m.Name, f.Path, st.Size(), f.Size, m.Source)
		}
	}
	if m.Format == "gguf" {
		at = path.Join(at, m.Files[0].Path)
	}
	return filepath.Join(dir, filepath.FromSlash(at)), nil
}

// Found is the place of a named model.
type Found struct {
	Path string // of its file or folder
	Name string // in the store; "" for a path
}

// Find returns the model of an existing path, else of a name in the default store, else of a pull's reference. A text
// with the form of a path is a path even if nothing exists there: opening it gives the right error.
func Find(name string) (Found, error) {
	if _, err := os.Stat(name); err == nil {
		return Found{Path: name}, nil
	}
	reference := source(name)
	if reference == "" && (!IsName(name) || IsFile(name)) {
		return Found{Path: name}, nil
	}
	dir, err := DefaultDir()
	if err != nil {
		return Found{}, fmt.Errorf(
			"%q: %w: it is no file or folder, and no folder of pulled models is known: set HOME, or %s",
			name, ErrNoModel,
			Variable)
	}
	return FindIn(dir, name, reference)
}

// FindIn returns the model of a name in the store in dir or, if reference is not "", the model pulled by reference.
func FindIn(dir, name, reference string) (Found, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Found{}, missing(nil, dir, name, reference)
	}
	if err != nil {
		return Found{}, err
	}
	defer root.Close()
	keys := []string{Key(name)}
	if reference != "" {
		entries, err := fs.ReadDir(root.FS(), "names")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Found{}, err
		}
		keys = nil
		for _, e := range entries {
			if key, ok := strings.CutSuffix(e.Name(), ".json"); ok {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		m, err := read(root, "names", key)
		switch {
		case errors.Is(err, fs.ErrNotExist), err != nil && reference != "":
			continue
		case err != nil:
			return Found{}, fmt.Errorf("%w (%s)", err, filepath.Join(dir, "names", key+".json"))
		case reference != "" && !strings.EqualFold(source(m.Source), reference):
			continue
		}
		p, err := m.Place(root, dir)
		return Found{p, m.Name}, err
	}
	return Found{}, missing(root, dir, name, reference)
}

// missing returns the error of a missing model, with a command to type.
func missing(root *os.Root, dir, name, reference string) error {
	if reference != "" {
		return fmt.Errorf("%s: %w: it is no file or folder, and was not pulled; \"karat pull %s\" gets it", name,
			ErrNoModel, reference)
	}
	unfinished := ""
	if m, err := read(root, "unfinished", Key(name)); err == nil {
		unfinished = fmt.Sprintf(" (its pull has not ended: \"karat pull %s\" goes on)", m.Source)
	}
	reference = "hf:ORG/NAME"
	// as Ollama names models
	if base, tag, ok := strings.Cut(name, ":"); ok && base != "" && tag != "" && !strings.ContainsAny(name, `/\`) {
		reference = "oci://registry.ollama.ai/library/" + name
	}
	return fmt.Errorf("%q: %w: it is no file or folder, and no name in %s%s; \"karat list\" shows the names there, "+
		"and \"karat pull %s\" adds one", name, ErrNoModel, dir, unfinished, reference)
}

// maxManifest bounds the bytes of a manifest.
const maxManifest = 4 << 20

func read(root *os.Root, folder, key string) (*Manifest, error) {
	if root == nil {
		return nil, fs.ErrNotExist
	}
	f, err := root.Open(path.Join(folder, key+".json"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	broken := func(f File) bool { return !fs.ValidPath(f.Path) }
	if folder == "names" && (Key(m.Name) != key || len(m.Files) == 0 || slices.ContainsFunc(m.Files, broken)) {
		return nil, fmt.Errorf("the manifest of %s is not one", key)
	}
	return &m, nil
}

// IsFile reports whether a text ends as names of files do, and no name of a model.
func IsFile(name string) bool { return slices.Contains(endings, strings.ToLower(path.Ext(name))) }

var endings = []string{".gguf", ".safetensors", ".json", ".jsonl", ".model", ".bin", ".pt", ".pth", ".txt"}

// CutHost cuts the address of Hugging Face from hf.co/ORG/NAME, the form of other programs, and from the address of a
// repository's page.
func CutHost(s string) (repo string, ok bool) {
	rest := strings.TrimPrefix(s, "https://")
	for _, host := range []string{"hf.co/", "huggingface.co/"} {
		if repo, ok := strings.CutPrefix(rest, host); ok && strings.Count(strings.TrimSuffix(repo, "/"), "/") <= 1 {
			return strings.TrimSuffix(repo, "/"), true
		}
	}
	return s, false
}

// source returns a reference in the form of manifests, "" for other texts: hf:ORG/NAME for hf.co/ORG/NAME.
func source(s string) string {
	if repo, ok := CutHost(s); ok {
		return "hf:" + repo
	}
	org, repo, ok := strings.Cut(s, "/")
	switch {
	case strings.HasPrefix(s, "hf:") || strings.Contains(s, "://"):
		return s
	case ok && isPart(org) && repo != "" && !strings.ContainsAny(repo, `/\ `) && !IsFile(repo):
		return "hf:" + s
	}
	return ""
}

// Puller pulls a model into the default store; nil in programs without package pull.
var Puller func(ctx context.Context, reference string, o PullOptions) (*Pulled, error)

// PullOptions are karat.PullOptions.
type PullOptions struct {
	Name, Token, Endpoint string
	RateLimit             int64
	Connections           int
	Progress              func(done, total int64)
	Note                  func(text string)
}

// Pulled is the result of Puller.
type Pulled struct {
	Name, Path, Source, Revision, License string
	Bytes                                 int64
}

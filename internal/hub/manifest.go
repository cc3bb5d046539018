package hub

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/hub/local"
)

// Format is the format of a model's files.
type Format string

// The formats.
const (
	GGUF   Format = "gguf"   // a file, or the parts of a split file
	Folder Format = "folder" // of Hugging Face
)

// Manifest describes a model in the store.
type Manifest struct {
	Name     string    `json:"name"`
	Source   string    `json:"source"`             // the reference of the pull
	Revision string    `json:"revision,omitempty"` // the commit or the manifest's digest there
	Pulled   time.Time `json:"pulled"`
	Format   Format    `json:"format"`
	Type     string    `json:"type,omitempty"`    // for people: family and type of weights
	License  string    `json:"license,omitempty"` // in the publisher's words
	Files    []File    `json:"files"`             // of a split GGUF file, in order
}

// File is a file of a model.
type File struct {
	Path   string `json:"path"` // in the model, with slashes
	Size   int64  `json:"size"`
	SHA256 Digest `json:"sha256"`
	ETag   string `json:"etag,omitempty"` // from the server, for a digest unknown before
}

// Bounds of a model, far above published models.
const (
	maxManifest = 4 << 20 // bytes: the size accepted by registries under the OCI distribution specification
	maxFiles    = 4096
	maxFile     = 4 << 40 // bytes
	maxText     = 1024    // bytes of a text for people
)

// ParseManifest reads a manifest of the store.
func ParseManifest(data []byte) (*Manifest, error) {
	var m Manifest
	if err := strictJSON(data, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.validate(); err != nil {
		return nil, err
	}
	return &m, nil
}

// strictJSON decodes a single JSON value without unknown fields.
func strictJSON(data []byte, to any) error {
	if len(data) > maxManifest {
		return fmt.Errorf("%d bytes, at most %d", len(data), maxManifest)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("something follows it")
	}
	return nil
}

// validate returns an error if no model can have the manifest.
func (m *Manifest) validate() error {
	if err := CheckName(m.Name); err != nil {
		return err
	}
	for what, text := range map[string]string{"source": m.Source, "revision": m.Revision, "type": m.Type,
		"license": m.License} {
		if len(text) > maxText && what != "source" || len(text) > maxReference {
			return fmt.Errorf("model %s: %s of %d bytes", m.Name, what, len(text))
		}
	}
	if m.Format != GGUF && m.Format != Folder {
		return fmt.Errorf("model %s: format %q: want gguf or folder", m.Name, clip(string(m.Format)))
	}
	if len(m.Files) == 0 || len(m.Files) > maxFiles {
		return fmt.Errorf("model %s: %d files, want 1 to %d", m.Name, len(m.Files), maxFiles)
	}
	if err := checkFiles(m.Files); err != nil {
		return err
	}
	if i := slices.IndexFunc(m.Files, func(f File) bool { return f.SHA256.IsZero() }); i >= 0 {
		return fmt.Errorf("file %q: no digest", m.Files[i].Path)
	}
	return nil
}

// checkFiles returns an error if files cannot lie in one folder.
func checkFiles(files []File) error {
	seen := map[string]bool{}
	for _, f := range files {
		if err := checkPath(f.Path); err != nil {
			return err
		}
		if f.Size < -1 || f.Size > maxFile {
			return fmt.Errorf("file %q: %d bytes, want 0 to %d", f.Path, f.Size, int64(maxFile))
		}
		key := strings.ToLower(f.Path)
		if seen[key] {
			return fmt.Errorf("file %q: two files have this name", f.Path)
		}
		seen[key] = true
	}
	for key := range seen { // a file where another's folder is to be
		for i, c := range key {
			if c == '/' && seen[key[:i]] {
				return fmt.Errorf("file %q: another file has the name of its folder", clip(key))
			}
		}
	}
	return nil
}

// Bytes returns the size of all files.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// light returns the part of the manifest for finding the model.
func (m *Manifest) light() *local.Manifest {
	l := &local.Manifest{Name: m.Name, Source: m.Source, Format: string(m.Format)}
	for _, f := range m.Files {
		l.Files = append(l.Files, local.File{Path: f.Path, Size: f.Size, SHA256: f.SHA256.String()})
	}
	return l
}

// Digest is the SHA-256 of a file, and the only way from a stranger's text to a blob's path. The zero value is no
// digest.
type Digest struct {
	sum [sha256.Size]byte
	ok  bool
}

const algorithm = "sha256:"

// ParseDigest reads sha256:HEX, with 64 digits in lower case, as in the OCI image specification.
func ParseDigest(s string) (d Digest, err error) {
	digits, ok := strings.CutPrefix(s, algorithm)
	if !ok || len(digits) != 2*sha256.Size || strings.ToLower(digits) != digits {
		return Digest{}, fmt.Errorf("digest %q: want sha256: and 64 hexadecimal digits in lower case", clip(s))
	}
	if _, err := hex.Decode(d.sum[:], []byte(digits)); err != nil {
		return Digest{}, fmt.Errorf("digest %q: want sha256: and 64 hexadecimal digits in lower case", clip(s))
	}
	d.ok = true
	return d, nil
}

// digestOf returns the digest of all bytes of r.
func digestOf(r io.Reader) (d Digest, err error) {
	h := sha256.New()
	_, err = io.Copy(h, r)
	h.Sum(d.sum[:0])
	d.ok = err == nil
	return d, err
}

// digestBytes returns the digest of b.
func digestBytes(b []byte) Digest { return Digest{sha256.Sum256(b), true} }

// IsZero reports whether there is none.
func (d Digest) IsZero() bool { return !d.ok }

// hex returns the digest's digits.
func (d Digest) hex() string { return hex.EncodeToString(d.sum[:]) }

// String returns sha256:HEX, or "" for none.
func (d Digest) String() string {
	if !d.ok {
		return ""
	}
	return algorithm + d.hex()
}

// MarshalText writes the form of UnmarshalText.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads sha256:HEX.
func (d *Digest) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDigest(string(b))
	return err
}

// clip returns the beginning of a text of unknown length and origin, for an error.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

package hub

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/hub/local"
)

// hostileDigests are what has led out of stores (incident C1: CVE-2024-37032 and what came after it).
var hostileDigests = []string{"", "sha256:", "sha256:../../x", "sha256-" + strings.Repeat("a", 64), "sha256:" + strings.Repeat("a", 63), "sha256:" + strings.Repeat("a", 65), "sha256:" + strings.Repeat("A", 64),
	"sha256:" + strings.Repeat("a", 63) + "g", "sha256:/" + strings.Repeat("a", 63), "sha256:" + strings.Repeat("a", 63) + "\x00", strings.Repeat("a", 64), "sha512:" + strings.Repeat("a", 64), "sha256:sha256:" + strings.Repeat("a", 64),
	"sha256:" + strings.Repeat("../", 21) + "a", " sha256:" + strings.Repeat("a", 64), "sha256:" + strings.Repeat("a", 64) + "\n"}

// TestC1Digest: only 64 digits in lower case are a digest, and only a digest is a blob's path.
func TestC1Digest(t *testing.T) {
	for _, s := range hostileDigests {
		if d, err := ParseDigest(s); err == nil || !d.IsZero() || d.String() != "" {
			t.Errorf("%q is the digest %v", s, d)
		}
	}
	d, err := ParseDigest("sha256:" + strings.Repeat("0123456789abcdef", 4))
	if err != nil || d.String() != "sha256:"+strings.Repeat("0123456789abcdef", 4) || blobFile(d) != "blobs/"+strings.Repeat("0123456789abcdef", 4) {
		t.Errorf("%v, %v", d, err)
	}
}

// TestReference: references are read and written alike, and make names.
func TestReference(t *testing.T) {
	hex := strings.Repeat("0123456789abcdef", 4)
	for s, name := range map[string]string{
		"hf:Qwen/Qwen3-0.6B-GGUF:Q4_K_M": "Qwen3-0.6B:Q4_K_M", "hf:Qwen/Qwen3-0.6B": "Qwen3-0.6B", "hf:gpt2": "gpt2", "hf:a/b@refs/pr/1": "b", "hf:a/b-gguf:UD-Q4_K_XL@main": "b:UD-Q4_K_XL",
		"hf:a/b:folder/c-Q8_0.gguf": "c-Q8_0", "hf:a/b:BF16/c": "b:BF16-c", "oci://registry.ollama.ai/library/qwen3:0.6b": "qwen3:0.6b", "oci://localhost:5000/a": "a", "oci://docker.io/ai/smollm2:360M-Q4_K_M": "smollm2:360M-Q4_K_M",
		"Qwen/Qwen3-0.6B-GGUF:Q4_K_M": "Qwen3-0.6B:Q4_K_M", "a/b@main": "b", "hf.co/Qwen/Qwen3-0.6B-GGUF:Q8_0": "Qwen3-0.6B:Q8_0", "huggingface.co/a/b": "b", "https://huggingface.co/a/b": "b", "https://hf.co/a/b/": "b",
		"https://huggingface.co/a/b/resolve/main/c.gguf": "c",
		"oci://ghcr.io/a/b/c@sha256:" + hex:              "c", "https://host/dir/m.Q4_0.gguf": "m.Q4_0", "https://host/m.gguf?x=y#sha256=" + hex: "m", "https://host/get": "model", "http://localhost:8080/m.gguf": "m",
	} {
		r, err := ParseReference(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		again, err := ParseReference(r.String())
		if err != nil || again.String() != r.String() || r.Name() != name {
			t.Errorf("%s: %s, %s, %v", s, r, r.Name(), err)
		}
	}
	for _, s := range []string{"", "hf:", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b:", "hf:a/b:../x", "hf:a/b:/x", "hf:a/b@", "hf:a/b@../x", "hf:a/b@x//y", "hf:a b/c", "a/b/c", "a/b:", "a/b.gguf", "../b", "./b", "a/", "/b", "a b/c", "hf.co/a/b/c", "hf:a/b\x00", "oci://", "oci://host", "oci://host/x", "oci://a.b/", "oci://a.b/X",
		"oci://a.b/../x", "oci://a.b/x:", "oci://a.b/x:a/b", "oci://a.b/x@sha256:../x", "oci://a.b/x:t@sha256:" + hex, "oci://u:p@a.b/x", "https://", "https:///x", "https://u:p@h/x", "http://host/m.gguf", "http://127.0.0.1.evil.com/m.gguf",
		"https://h/m#sha256=x", "https://h/m#x", "https://h/m.bin", "https://h/m.zip", "https://h/m.safetensors", "file:///etc/passwd", "ftp://h/x", "qwen", "hf:" + strings.Repeat("a", maxReference)} {
		if r, err := ParseReference(s); err == nil {
			t.Errorf("%q is the reference %s", s, r)
		}
	}
}

// TestNames: names are words and tags, and no paths.
func TestNames(t *testing.T) {
	for _, s := range []string{"qwen", "Qwen3-0.6B:Q4_K_M", "a.b_c-d"} {
		if err := CheckName(s); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{"", "a/b", `a\b`, "..", ".a", "a.", "a.:b", "a:b:c", "a:", ":b", "hf:x", "https:x", "m.gguf", "m.safetensors", "a b", "a\x00", "ä", "a+b", strings.Repeat("a", maxName+1), "-a"} {
		if CheckName(s) == nil {
			t.Errorf("%q is a name", s)
		}
	}
}

// TestRemove: a file stays for as long as a model has it, and goes with the last.
func TestRemove(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		for _, tag := range []string{"Q4_K_M", "Q8_0"} {
			if _, err := w.pull("hf:org/tiny-GGUF:" + tag); err != nil {
				t.Fatal(err)
			}
		}
		s := w.store()
		for _, err := range []error{s.Copy(t.Context(), "tiny:q8_0", "small"), s.SetType(t.Context(), "small", "GGUF llama")} {
			if err != nil {
				t.Fatal(err)
			}
		}
		refused(t, s.Copy(t.Context(), "tiny:Q8_0", "SMALL"), "there is a model of this name")
		refused(t, s.Copy(t.Context(), "none", "x"), "no such model")
		refused(t, s.Copy(t.Context(), "small", "../x"), "want letters")
		all, err := s.List()
		if err != nil || len(all) != 3 || all[0].Name != "small" || all[0].Type != "GGUF llama" || all[1].Name != "tiny:Q4_K_M" {
			t.Fatalf("%+v, %v", all, err)
		}
		if free, err := s.Remove(t.Context(), "tiny:q8_0"); err != nil || free != 0 {
			t.Errorf("%d, %v", free, err)
		}
		f, err := findIn(s, "small")
		if err != nil {
			t.Fatal(err)
		}
		has(t, f.Path, h.files["tiny-Q8_0.gguf"].data)
		killed := partialFile(digestBytes(nil).hex()) + ".json.0123abcd.tmp" // who wrote it was
		if err := s.writeBytes(killed, nil); err != nil {
			t.Fatal(err)
		}
		if free, err := s.Remove(t.Context(), "small"); err != nil || free != 900 {
			t.Errorf("%d, %v", free, err)
		}
		if partial, _ := s.list("partial"); len(partial) != 0 {
			t.Errorf("partial: %v", partial)
		}
		if _, err := s.Remove(t.Context(), "small"); !errors.Is(err, local.ErrNoModel) {
			t.Error(err)
		}
		if blobs, _ := s.list("blobs"); len(blobs) != 1 {
			t.Errorf("blobs: %v", blobs)
		}
		if files, _ := s.list("files"); len(files) != 1 {
			t.Errorf("files: %v", files)
		}
		_, err = findIn(s, "small")
		refused(t, err, `"small"`, "no file or folder, and no name in", "karat pull hf:ORG/NAME")
		_, err = findIn(s, "hf:org/tiny-GGUF:Q8_0")
		refused(t, err, `"karat pull hf:org/tiny-GGUF:Q8_0" gets it`)
		o := w.options()
		o.Name = "tiny:Q4_K_M"
		_, err = s.Pull(t.Context(), "hf:org/tiny-GGUF:Q8_0", o)
		refused(t, err, "there is a model tiny:Q4_K_M, from hf:org/tiny-GGUF:Q4_K_M: give another name")
	})
}

// TestBrokenStore: where a manifest cannot be read it is told, the other models are found, and nothing is collected.
func TestBrokenStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tiny(w)
		m, err := w.pull(reference)
		if err != nil {
			t.Fatal(err)
		}
		s := w.store()
		if err := os.WriteFile(filepath.Join(s.Dir(), "names", "bad.json"), []byte(`{"name": "bad"`), 0o666); err != nil {
			t.Fatal(err)
		}
		if all, err := s.List(); len(all) != 1 || err == nil || !strings.Contains(err.Error(), "bad.json") {
			t.Errorf("%v, %v", all, err)
		}
		_, err = s.Remove(t.Context(), m.Name)
		refused(t, err, "nothing else was removed")
		if blobs, _ := s.list("blobs"); len(blobs) != 1 {
			t.Errorf("blobs: %v", blobs)
		}
		if _, err := s.Remove(t.Context(), "bad"); err != nil {
			t.Error(err)
		}
		if blobs, _ := s.list("blobs"); len(blobs) != 0 {
			t.Errorf("blobs: %v", blobs)
		}
		if m, err = w.pull(reference); err != nil {
			t.Fatal(err)
		}
		path, _ := s.Path(m)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		_, err = findIn(s, m.Name)
		refused(t, err, "its file tiny-Q4_K_M.gguf is gone", "karat pull "+reference)
		if _, err := w.pull(reference); err != nil {
			t.Error(err)
		}
		if _, err := findIn(s, m.Name); err != nil {
			t.Error(err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 5); err != nil {
			t.Fatal(err)
		}
		_, err = findIn(s, m.Name)
		refused(t, err, "has 5 bytes, and had 4500")
	})
}

// TestC2LinksInStore: a link in the store that leads out of it is not followed (incident C2).
func TestC2LinksInStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		tiny(w)
		dir, outside := filepath.Join(w.dir, "store"), t.TempDir()
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(dir, "blobs")); err != nil {
			golden.Lacking(t, err)
		}
		if _, err := w.pull(reference); err == nil {
			t.Error("a pull went through the link")
		}
		if left, _ := os.ReadDir(outside); len(left) > 0 {
			t.Errorf("outside there is %v", left)
		}
	})
}

// TestC6RegularFiles: what is no regular file is neither read nor followed, wherever the store or a token should be.
func TestC6RegularFiles(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := tiny(w)
		s := w.store()
		if err := s.make(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"names/dir.json", "unfinished/dir.json", blobFile(digestBytes(h.files["tiny-Q8_0.gguf"].data))} {
			if err := os.Mkdir(filepath.Join(s.Dir(), dir), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Get("dir")
		refused(t, err, "not a regular file")
		_, err = s.Unfinished()
		refused(t, err, "not a regular file")
		if _, err := w.pull("hf:org/tiny-GGUF:Q8_0"); err == nil {
			t.Error("a folder is a blob")
		}
		empty := func() {
			if all, _ := s.List(); len(all) > 0 {
				t.Errorf("there are %d models", len(all))
			}
		}
		empty()
		t.Setenv("HF_TOKEN_PATH", t.TempDir())
		_, err = w.pull(reference)
		refused(t, err, "no file of a token")
		t.Setenv("HF_TOKEN_PATH", os.DevNull)
		_, err = w.pull(reference)
		refused(t, err, "no file of a token")
		empty()
	})
}

// TestFind: a path that exists wins, and what looks like one is one.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(local.Variable, filepath.Join(dir, "none"))
	t.Chdir(dir)
	if err := os.WriteFile("qwen", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"qwen", "./none", "none.gguf", "./a/b", "a/b.gguf", "a/b/c", dir} {
		if f, err := Find(path); err != nil || f.Path != path || f.Name != "" {
			t.Errorf("%s: %+v, %v", path, f, err)
		}
	}
	for _, name := range []string{"none", "hf:a/b", "a/b", "a/b:Q4_K_M", "hf.co/a/b"} {
		if _, err := Find(name); !errors.Is(err, local.ErrNoModel) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("a search made a store")
	}
}

// TestManifest: what a manifest may not say.
func TestManifest(t *testing.T) {
	good := &Manifest{Name: "m", Source: "hf:a/b", Pulled: time.Unix(0, 0).UTC(), Format: GGUF, Files: []File{{Path: "m.gguf", Size: 1, SHA256: digestBytes(nil)}}}
	text := func() string {
		b, err := json.Marshal(good)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}()
	if m, err := ParseManifest([]byte(text)); err != nil || m.light().View() != good.light().View() {
		t.Errorf("%+v, %v", m, err)
	}
	for _, change := range [][2]string{{`"m"`, `"../m"`}, {`"gguf"`, `"zip"`}, {`m.gguf`, `../m.gguf`}, {`"size":1`, `"size":-2`}, {`sha256:`, `sha256:../`}, {`"files"`, `"more":1,"files"`}, {`}]`, `},{"path":"M.gguf"}]`}, {`]}`, `]}x`}, {`hf:a/b`, strings.Repeat("x", maxReference+1)}} {
		if _, err := ParseManifest([]byte(strings.Replace(text, change[0], change[1], 1))); err == nil {
			t.Errorf("%s instead of %s is a manifest", change[1], change[0])
		}
	}
}

// findIn returns Find in a store.
func findIn(s *Store, name string) (local.Found, error) {
	if !IsReference(name) {
		return local.FindIn(s.dir, name, "")
	}
	r, err := ParseReference(name)
	if err != nil {
		return local.Found{}, err
	}
	return local.FindIn(s.dir, name, r.String())
}

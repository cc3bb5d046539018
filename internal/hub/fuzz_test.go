package hub

import (
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/hub/local"
)

// FuzzReference: what is read is written, and read, alike, and its name is one.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"hf:Qwen/Qwen3-0.6B-GGUF:Q4_K_M@main", "hf:a/b:c/d.gguf", "oci://registry.ollama.ai/library/qwen3:0.6b", "oci://a.b:5/c@sha256:" + strings.Repeat("a", 64), "https://h/m.gguf?x#sha256=" + strings.Repeat("a", 64), "http://[::1]:5/%2e%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseReference(s)
		if err != nil {
			return
		}
		if len(r.String()) > maxReference {
			t.Fatalf("%q is written in %d bytes", s, len(r.String()))
		}
		again, err := ParseReference(r.String())
		if err != nil || again.String() != r.String() {
			t.Fatalf("%q: %s, then %v, %v", s, r, again, err)
		}
		if name := r.Name(); name != "" && CheckName(name) != nil {
			t.Errorf("%q makes the name %q", s, name)
		}
		if r.Kind == URL && checkPath(r.file()) != nil {
			t.Errorf("%q makes the file %q", s, r.file())
		}
	})
}

// inside checks paths that were let through.
func inside(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if !fs.ValidPath(p) || path.IsAbs(p) || strings.ContainsAny(p, "\\:\x00") {
			t.Errorf("the path %q", p)
		}
	}
}

// FuzzManifest: a manifest of the store, or of a registry, leads nowhere but into the model's folder.
func FuzzManifest(f *testing.F) {
	digest := "sha256:" + strings.Repeat("a", 64)
	f.Add([]byte(`{"name":"m","source":"hf:a/b","pulled":"2026-01-01T00:00:00Z","format":"gguf","files":[{"path":"m.gguf","size":1,"sha256":"` + digest + `"}]}`))
	f.Add([]byte(`{"schemaVersion":2,"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"` + digest + `","size":1},{"mediaType":"x","digest":"` + digest + `","annotations":{"org.cncf.model.filepath":"config.json"}}]}`))
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"digest":"` + digest + `"}]}`))
	f.Add([]byte(`{"name":"m","source":"hf:a/b","began":"2026-01-01T00:00:00Z","keys":["` + digest[7:] + `"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := ParseManifest(data); err == nil {
			inside(t, m.light().View(), nameFile(local.Key(m.Name)))
			for _, x := range m.Files {
				inside(t, x.Path, blobFile(x.SHA256))
			}
		}
		if u, err := parseUnfinished(data); err == nil {
			inside(t, unfinishedFile(local.Key(u.Name)))
			for _, k := range u.Keys {
				inside(t, partialFile(k))
			}
		}
		if m, err := parseOCIManifest(data); err == nil {
			if p, err := m.plan("https://h/"); err == nil {
				for _, x := range p.files {
					inside(t, x.path, partialFile(x.key()))
				}
			}
		}
	})
}

// FuzzListing: what is chosen of a listing, or of an index, is of it, and is no program and no pickle.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`[{"type":"file","path":"a-Q4_K_M.gguf","size":1,"oid":"x","lfs":{"oid":"y","size":5}},{"type":"file","path":"a-Q8_0-00001-of-00002.gguf"},{"type":"file","path":"a-Q8_0-00002-of-00002.gguf"}]`), "Q4_K_M")
	f.Add([]byte(`[{"type":"file","path":"config.json"},{"type":"file","path":"model.safetensors"},{"type":"file","path":"1_Pooling/config.json"},{"type":"file","path":"x.py"}]`), "")
	f.Add([]byte(`{"weight_map":{"a":"b.safetensors"}}`), "")
	f.Fuzz(func(t *testing.T, data []byte, tag string) {
		if files, err := parseIndex(data); err == nil {
			for p := range files {
				inside(t, p)
			}
		}
		files, err := parseListing(data)
		if err != nil {
			return
		}
		chosen, _, err := choose(tag, files, func() (map[string]bool, error) { return parseIndex(data) })
		if err != nil {
			return
		}
		for _, e := range chosen {
			inside(t, e.Path)
			switch path.Ext(e.Path) {
			case ".py", ".bin", ".pt", ".pth", ".pkl", ".sh":
				t.Errorf("%q was chosen", e.Path)
			}
		}
	})
}

// FuzzPartial: how far a download is, as a file on the disk says, is within the file.
func FuzzPartial(f *testing.F) {
	f.Add([]byte(`{"etag":"\"x\"","size":2500,"part":1000,"done":[1000,5,0]}`), "bytes 0-4/5", `Bearer realm="x",a=b`, `<https://a/b>; rel="next"`)
	f.Fuzz(func(t *testing.T, data []byte, header, challenge, link string) {
		if p, err := parsePartial(data); err == nil {
			if n := p.have(); n < 0 || n > p.Size {
				t.Errorf("%d bytes of %d", n, p.Size)
			}
		}
		if first, last, all, ok := contentRange(header); ok && (first < 0 || last < first || all <= last) {
			t.Errorf("%q is %d-%d/%d", header, first, last, all)
		}
		parseChallenge(challenge)
		nextPage([]string{link})
		retryAfter(header)
	})
}

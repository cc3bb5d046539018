package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// registry serves blobs and manifests as a registry does. Blobs are at another host.
type registry struct {
	blobs     map[string][]byte // by sha256:HEX
	manifests map[string][]byte // by tag or digest
	realm     string            // where it sends for tokens; "" if it wants none
	tokens    atomic.Int32      // how often one was shown
}

const registryHost = "registry.example.com"

func (g *registry) add(w *world) *registry {
	g.blobs, g.manifests = map[string][]byte{}, map[string][]byte{}
	w.hosts[registryHost] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		if g.realm != "" && r.Header.Get("Authorization") != "Bearer anonymous" {
			a.Header().Set("WWW-Authenticate", `Bearer realm="`+g.realm+`",service="registry, of tests",scope="repository:secret:pull,push"`)
			http.Error(a, "{}", http.StatusUnauthorized)
			return
		}
		if g.realm != "" {
			g.tokens.Add(1)
		}
		if tag, ok := strings.CutPrefix(r.URL.Path, "/v2/library/tiny/manifests/"); ok && g.manifests[tag] != nil {
			a.Write(g.manifests[tag])
		} else if digest, ok := strings.CutPrefix(r.URL.Path, "/v2/library/tiny/blobs/"); ok {
			http.Redirect(a, r, "https://cdn.example.com/"+digest, http.StatusTemporaryRedirect)
		} else {
			http.NotFound(a, r)
		}
	})
	w.hosts["cdn.example.com"] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			w.t.Errorf("the token of the registry was sent on")
		}
		if data, ok := g.blobs[strings.TrimPrefix(r.URL.Path, "/")]; ok {
			serveFile(a, r, file{data: data})
		} else {
			http.NotFound(a, r)
		}
	})
	w.hosts["auth.example.com"] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("scope") != "repository:library/tiny:pull" || q.Get("service") != "registry, of tests" || r.Header.Get("Authorization") != "" {
			w.t.Errorf("asked for a token: %s, %v", r.URL, r.Header)
		}
		fmt.Fprint(a, `{"token": "anonymous"}`)
	})
	return g
}

// layer adds a blob.
func (g *registry) layer(kind string, data []byte, name string) map[string]any {
	digest := algorithm + shaHex(data)
	g.blobs[digest] = data
	l := map[string]any{"mediaType": kind, "digest": digest, "size": len(data)}
	if name != "" {
		l["annotations"] = map[string]string{filePath: name}
	}
	return l
}

// manifest returns one of layers.
func (g *registry) manifest(layers ...map[string]any) []byte {
	b, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": g.layer("application/x", []byte("{}"), ""), "layers": layers})
	if err != nil {
		panic(err)
	}
	return b
}

// TestPullOCI: Ollama's and Docker's artifacts, with a token for everybody or without.
func TestPullOCI(t *testing.T) {
	weights, license := noise(2500, 1), []byte("\n  Apache License\nVersion 2.0")
	for name, c := range map[string]struct {
		layers func(g *registry) []map[string]any
		file   string
		notes  string
	}{
		"ollama": {func(g *registry) []map[string]any {
			return []map[string]any{g.layer("application/vnd.ollama.image.model", weights, ""), g.layer("application/vnd.ollama.image.license", license, ""),
				g.layer("application/vnd.ollama.image.license", []byte("more"), ""), g.layer("application/vnd.ollama.image.template", []byte("{{ .Prompt }}"), "")}
		}, "model.gguf", "the model comes with Ollama's template"},
		"docker": {func(g *registry) []map[string]any {
			return []map[string]any{g.layer("application/vnd.docker.ai.gguf.v3", weights, ""), g.layer("application/vnd.docker.ai.license", license, "")}
		}, "model.gguf", ""},
		"docker, parts": {func(g *registry) []map[string]any {
			return []map[string]any{g.layer("application/vnd.docker.ai.gguf.v3", weights, ""), g.layer("application/vnd.docker.ai.gguf.v3", noise(40, 2), ""), g.layer("application/vnd.docker.ai.license", license, "")}
		}, "model-00001-of-00002.gguf", ""},
		"docker, folder": {func(g *registry) []map[string]any {
			return []map[string]any{g.layer("application/vnd.docker.ai.safetensors", weights, "model.safetensors"), g.layer("application/vnd.docker.ai.license", license, ""),
				g.layer("application/vnd.docker.ai.model.file", []byte("{ }"), "config.json"), g.layer("application/x", []byte("import os"), "x.py"), g.layer("application/vnd.docker.ai.dir.tar", []byte("tar"), "x")}
		}, "", "is an archive, and none is unpacked"},
	} {
		for _, realm := range []string{"", "https://auth.example.com/token?x=y"} {
			t.Run(name+realm[:min(len(realm), 5)], func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					g := (&registry{realm: realm}).add(w)
					g.manifests["0.6b"] = g.manifest(c.layers(g)...)
					digest := algorithm + shaHex(g.manifests["0.6b"])
					g.manifests[digest] = g.manifests["0.6b"]
					index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []any{map[string]any{"mediaType": typeManifest, "digest": digest, "size": 1}}})
					if err != nil {
						t.Fatal(err)
					}
					g.manifests["latest"] = index
					var notes []string
					for _, reference := range []string{"oci://" + registryHost + "/library/tiny:0.6b", "oci://" + registryHost + "/library/tiny", "oci://" + registryHost + "/library/tiny@" + digest} {
						o := w.options()
						o.Name, o.Note = nameOf(reference), func(s string) { notes = append(notes, s) }
						m, err := w.store().Pull(t.Context(), reference, o)
						if err != nil {
							t.Fatalf("%s: %v", reference, err)
						}
						path, err := w.store().Path(m)
						if err != nil || !strings.HasSuffix(path, c.file) || m.License != "Apache License" || m.Revision != digest {
							t.Errorf("%s: %s, %+v, %v", reference, path, m, err)
						}
						if c.file == "" {
							path += "/model.safetensors"
						}
						has(t, path, weights)
						if strings.Contains(fmt.Sprint(m.Files), "x.py") {
							t.Errorf("a program was pulled: %v", m.Files)
						}
					}
					if all := strings.Join(notes, "\n"); !strings.Contains(all, c.notes) || c.notes == "" && all != "" {
						t.Errorf("notes: %s", all)
					}
					if (g.tokens.Load() > 0) != (realm != "") {
						t.Errorf("%d tokens", g.tokens.Load())
					}
				})
			})
		}
	}
}

// nameOf makes a name of anything.
func nameOf(s string) string { return "m" + shaHex([]byte(s))[:8] }

// TestOCIRefused: what a registry may say and a store may not follow (incidents C1, C4, C6).
func TestOCIRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		g := new(registry).add(w)
		pull := func() error {
			_, err := w.pull("oci://" + registryHost + "/library/tiny:0.6b")
			empty(t, w.store())
			return err
		}
		layer := func(digest string, size int) []byte {
			quoted, err := json.Marshal(digest)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Appendf(nil, `{"schemaVersion": 2, "layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": %s, "size": %d}]}`, quoted, size)
		}
		for _, digest := range hostileDigests {
			g.manifests["0.6b"] = layer(digest, 1)
			refused(t, pull(), "digest")
		}
		valid := algorithm + strings.Repeat("a", 64)
		for body, want := range map[string]string{
			`{}`: "version 0 with 0 layers", `{"schemaVersion": 2, "layers": []}`: "0 layers", `{"schemaVersion": 2, "layers": null}`: "0 layers", `{"schemaVersion": 2, "layers": [{}]}`: "a digest",
			`{"schemaVersion": 1, "layers": [{"digest": "` + valid + `"}]}`: "version 1", "[]": "manifest", "x": "manifest", string(layer(valid, -1)): "-1 bytes",
			`{"schemaVersion": 2, "layers": [{"mediaType": "a/b.tar", "digest": "` + valid + `"}]}`:         "no model that Karat reads: its layers are a/b.tar",
			`{"schemaVersion": 2, "manifests": [{"digest": "` + valid + `"}]}`:                              "404 Not Found: there is no such model or tag",
			`{"schemaVersion": 2, "manifests": [{"digest": "` + valid + `"}, {"digest": "` + valid + `"}]}`: "several models; name one",
			string(layer(valid, 100)): "404",
			`{"schemaVersion": 2, "layers": [` + strings.Repeat(`{"digest": "`+valid+`"},`, maxFiles) + `{"digest": "` + valid + `"}]}`: "4097 layers",
		} {
			g.manifests["0.6b"] = []byte(body)
			refused(t, pull(), want)
		}
		g.manifests["0.6b"] = g.manifest(g.layer("application/vnd.ollama.image.model", noise(10, 1), ""))
		for realm, want := range map[string]string{
			"http://auth.example.com/": "want an address of https", "http://169.254.169.254/latest": "want an address of https", "file:///etc/passwd": "want an address of https", "": "no such model",
			"https://none.example.com/": "there is no host", "::": "want an address",
		} {
			g.realm = realm
			if realm == "" {
				w.hosts[registryHost] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) { a.WriteHeader(http.StatusUnauthorized) })
				defer g.add(w)
			} else {
				old := g.manifests
				g.add(w)
				g.manifests = old
			}
			refused(t, pull(), want)
		}
		old := g.manifests
		g.add(w)
		g.manifests, g.realm = old, "https://auth.example.com/"
		for _, answer := range []string{`{}`, `{"token": "a b"}`, "{\"token\": \"a\\nb\"}", "x"} {
			w.hosts["auth.example.com"] = http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) { fmt.Fprint(a, answer) })
			refused(t, pull(), "https://auth.example.com/")
		}
		other := algorithm + shaHex([]byte("other"))
		g.realm, g.manifests[other] = "", g.manifests["0.6b"]
		_, err := w.pull("oci://" + registryHost + "/library/tiny@" + other)
		refused(t, err, "the manifest's SHA-256 is ")
	})
}

// TestChallenge reads what registries send.
func TestChallenge(t *testing.T) {
	for header, want := range map[string]string{
		`Bearer realm="https://a/t",service="b, c",scope="d"`: "Bearer map[realm:https://a/t scope:d service:b, c]",
		`bearer Realm=https://a/t , service=x`:                "bearer map[realm:https://a/t  service:x]",
		`Basic`:                                               "Basic map[]",
		`Bearer realm="open`:                                  "Bearer map[realm:open]",
		`Bearer ,,=,a`:                                        "Bearer map[:]",
	} {
		scheme, p := parseChallenge(header)
		if got := fmt.Sprint(scheme, " ", p); got != want {
			t.Errorf("%s: %s, want %s", header, got, want)
		}
	}
}

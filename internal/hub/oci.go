package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Media types of manifests, and of the layers of models.
const (
	typeIndex       = "application/vnd.oci.image.index.v1+json"
	typeDockerIndex = "application/vnd.docker.distribution.manifest.list.v2+json"
	typeManifest    = "application/vnd.oci.image.manifest.v1+json"
	typeDocker      = "application/vnd.docker.distribution.manifest.v2+json"

	maxAnswer  = 1 << 20 // bytes of the answer to a question for a token
	maxLicense = 1 << 20 // bytes of a license
)

// weightTypes are the types of layers with GGUF files: Docker's, from its first releases on, and Ollama's.
var weightTypes = []string{"application/vnd.docker.ai.gguf.v3", "application/vnd.docker.ai.model.file.v1+gguf",
	"application/vnd.ollama.image.model"}

// licenseTypes are layers with licenses, setAside the types without a use in Karat, and the reason.
var (
	licenseTypes = []string{"application/vnd.docker.ai.license", "application/vnd.ollama.image.license"}
	setAside     = map[string]string{
		"application/vnd.docker.ai.chat.template.jinja": "a chat template beside the model; that in the GGUF file " +
			"is used, and --chat-template takes another",
		"application/vnd.ollama.image.template": "Ollama's template, in a language of its own; that in the " +
			"GGUF file is used",
		"application/vnd.ollama.image.system":    "a system message; --system gives one",
		"application/vnd.ollama.image.params":    "settings of sampling; the flags of karat run give others",
		"application/vnd.ollama.image.messages":  "messages to begin with",
		"application/vnd.ollama.image.adapter":   "an adapter, without which the model may not be what is meant",
		"application/vnd.ollama.image.projector": "what it sees images with",
		"application/vnd.docker.ai.mmproj":       "what it sees images with",
	}
)

// filePath is the annotation of a layer with a file's name (CNCF's ModelPack, and Docker's of folders).
const filePath = "org.cncf.model.filepath"

// ociManifest has the used fields of a manifest, or of an index of manifests.
type ociManifest struct {
	SchemaVersion int        `json:"schemaVersion"`
	MediaType     string     `json:"mediaType"`
	Layers        []ociLayer `json:"layers"`
	Manifests     []ociLayer `json:"manifests"`
}

type ociLayer struct {
	MediaType   string            `json:"mediaType"`
	Digest      Digest            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
}

// parseOCIManifest reads a manifest or an index.
func parseOCIManifest(data []byte) (*ociManifest, error) {
	var m ociManifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, refusedf("manifest: %w", err)
	}
	all := slices.Concat(m.Layers, m.Manifests)
	if m.SchemaVersion != 2 || len(all) == 0 || len(all) > maxFiles {
		return nil, refusedf("manifest: version %d with %d layers, want version 2 with 1 to %d", m.SchemaVersion,
			len(all), maxFiles)
	}
	for i, l := range all {
		if l.Digest.IsZero() || l.Size < 0 || l.Size > maxFile {
			return nil, refusedf("manifest: layer %d: digest %q and %d bytes, want a digest and 0 to %d", i, l.Digest,
				l.Size, int64(maxFile))
		}
	}
	return &m, nil
}

// planOCI finds the files of a registry's model.
func (p *puller) planOCI(ctx context.Context, r *Reference) (*plan, error) {
	p.client.renew = func(ctx context.Context, challenge string) (string, error) {
		return p.getToken(ctx, r, challenge)
	}
	m, revision, err := p.manifest(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	out, err := m.plan(r.base() + "/v2/" + r.Repo + "/blobs/")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	out.revision = revision.String()
	if i := slices.IndexFunc(out.files, func(f *remote) bool { return f.path == licenseFile }); i >= 0 {
		out.license = p.firstLine(ctx, out.files[i].url)
	}
	return out, nil
}

// manifest returns the manifest of a reference. For an index with a single entry, manifest returns the entry's.
func (p *puller) manifest(ctx context.Context, r *Reference) (*ociManifest, Digest, error) {
	want, at := r.Digest, r.Tag
	accept := http.Header{"Accept": {strings.Join([]string{typeManifest, typeDocker, typeIndex, typeDockerIndex},
		", ")}}
	for range 2 {
		if !want.IsZero() {
			at = want.String()
		}
		data, _, err := p.client.getSmall(ctx, r.base()+"/v2/"+r.Repo+"/manifests/"+at, accept, maxManifest)
		if err != nil {
			return nil, want, hintOCI(err)
		}
		got := digestBytes(data)
		if !want.IsZero() && got != want {
			return nil, want, refusedf("the manifest's SHA-256 is %s, and %s was asked for", got.hex(), want.hex())
		}
		m, err := parseOCIManifest(data)
		if err != nil || len(m.Manifests) == 0 {
			return m, got, err
		}
		if len(m.Manifests) > 1 {
			var digests []string
			for _, e := range m.Manifests {
				digests = append(digests, "@"+e.Digest.String())
			}
			return nil, want, fmt.Errorf("an index of several models; name one in the tag's place: %s",
				clip(strings.Join(digests, ", ")))
		}
		want = m.Manifests[0].Digest
	}
	return nil, want, refusedf("an index of an index")
}

// hintOCI adds advice to a refusal.
func hintOCI(err error) error {
	if status, is := errors.AsType[*statusError](err); is {
		switch status.code {
		case http.StatusUnauthorized, http.StatusForbidden:
			status.hint = "there is no such model, or it is not public; Karat shows registries no password"
		case http.StatusNotFound:
			status.hint = "there is no such model or tag"
		}
	}
	return err
}

const licenseFile = "LICENSE"

// plan picks the layers needed by a model.
func (m *ociManifest) plan(blobs string) (*plan, error) {
	out := &plan{format: GGUF}
	var weights, named []*remote
	licensed := false
	for _, l := range m.Layers {
		f := &remote{url: blobs + l.Digest.String(), size: l.Size, digest: l.Digest}
		kind, _, _ := strings.Cut(l.MediaType, ";")
		name := l.Annotations[filePath]
		switch {
		case slices.Contains(weightTypes, kind):
			weights = append(weights, f)
		case slices.Contains(licenseTypes, kind):
			if f.path = licenseFile; !licensed {
				licensed = true
				named = append(named, f)
			}
		case setAside[kind] != "":
			out.notes = append(out.notes, "the model comes with "+setAside[kind])
		case packed(kind):
			out.notes = append(out.notes, fmt.Sprintf("a layer %q is an archive, and none is unpacked", clip(kind)))
		case name != "":
			if f.path = name; checkPath(name) != nil {
				return nil, refusal{checkPath(name)}
			}
			if isBesideWeights(name) || path.Ext(name) == ".safetensors" {
				named = append(named, f)
			} else if isGGUF(name) {
				weights = append(weights, f)
			}
		}
	}
	for i, f := range weights {
		f.path = "model.gguf"
		if len(weights) > 1 {
			f.path = fmt.Sprintf("model-%05d-of-%05d.gguf", i+1, len(weights))
		}
	}
	has := func(match func(string) bool) bool {
		return slices.ContainsFunc(named, func(f *remote) bool { return match(f.path) })
	}
	out.files = append(weights, named...)
	switch {
	case len(weights) > 0:
		// files beside a GGUF file are not read
		out.files = slices.DeleteFunc(out.files, func(f *remote) bool {
			return !isGGUF(f.path) && f.path != licenseFile
		})
	case has(func(s string) bool { return s == "config.json" }) && has(func(s string) bool {
		return path.Ext(s) == ".safetensors"
	}):
		out.format = Folder
	default:
		return nil, noModelLayers(m.Layers)
	}
	return out, nil
}

// packed reports whether a layer is an archive, or compressed.
func packed(kind string) bool {
	for _, ending := range []string{"tar", "+gzip", "+zstd", ".gzip", ".zip", "dduf"} {
		if strings.HasSuffix(kind, ending) {
			return true
		}
	}
	return false
}

// noModelLayers describes the layers of a manifest without a model.
func noModelLayers(layers []ociLayer) error {
	var kinds []string
	for _, l := range layers {
		kinds = append(kinds, clip(l.MediaType))
	}
	slices.Sort(kinds)
	return refusedf("no model that Karat reads: its layers are %s", clip(strings.Join(slices.Compact(kinds), ", ")))
}

// getToken gets the token required by a registry even for anonymous pulls (distribution/docs/spec/auth/token). The
// request holds no secret.
func (p *puller) getToken(ctx context.Context, r *Reference, challenge string) (string, error) {
	scheme, parameters := parseChallenge(challenge)
	if !strings.EqualFold(scheme, "Bearer") {
		return "", refusedf("the registry wants %q, and knows no tokens for everybody", clip(scheme))
	}
	realm, err := url.Parse(parameters["realm"])
	if err != nil || realm.Hostname() == "" || realm.Scheme != "https" && realm.Scheme != p.client.origin.Scheme {
		return "", refusedf("the registry sends to %q for a token: want an address of https", clip(parameters["realm"]))
	}
	q := realm.Query()
	if s := parameters["service"]; s != "" {
		q.Set("service", s)
	}
	q.Set("scope", "repository:"+r.Repo+":pull") // and no more, whatever the registry asks for
	realm.RawQuery, realm.Fragment = q.Encode(), ""
	asking := newClient(p.client.origin, p.o.adjust)
	defer asking.close()
	data, _, err := asking.getSmall(ctx, realm.String(), nil, maxAnswer)
	if err != nil {
		return "", hintOCI(err)
	}
	var answer struct {
		Token  string `json:"token"`
		Access string `json:"access_token"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return "", refusedf("%s: %w", show(realm), err)
	}
	token := cmp.Or(answer.Token, answer.Access)
	if token == "" || len(token) > maxHeader/2 || strings.ContainsFunc(token, func(r rune) bool {
		return r <= ' ' || r > '~'
	}) {
		return "", refusedf("%s: no token", show(realm))
	}
	return "Bearer " + token, nil
}

// parseChallenge reads a WWW-Authenticate header: a scheme and parameters, whose values may be quoted.
func parseChallenge(s string) (scheme string, parameters map[string]string) {
	scheme, s, _ = strings.Cut(strings.TrimSpace(s), " ")
	parameters = map[string]string{}
	for s = strings.TrimLeft(s, " ,"); s != ""; s = strings.TrimLeft(s, " ,") {
		name, rest, ok := strings.Cut(s, "=")
		if !ok {
			break
		}
		value := ""
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			value, s, _ = strings.Cut(quoted, `"`)
		} else if i := strings.IndexByte(rest, ','); i >= 0 {
			value, s = rest[:i], rest[i:]
		} else {
			value, s = rest, ""
		}
		parameters[strings.ToLower(strings.TrimSpace(name))] = value
	}
	return scheme, parameters
}

// firstLine returns the first line of a license with words, "" if unavailable now: the license is also pulled as a
// file.
func (p *puller) firstLine(ctx context.Context, address string) string {
	data, _, err := p.client.getSmall(ctx, address, nil, maxLicense)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
	return clip(strings.TrimSpace(line))
}

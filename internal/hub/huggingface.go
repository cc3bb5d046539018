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
	"regexp"
	"slices"
	"strings"
)

// HuggingFaceURL is where hf: references are asked for, if HF_ENDPOINT names no mirror.
const HuggingFaceURL = "https://huggingface.co"

// Bounds of Hugging Face's answers, far above the needs of published models.
const (
	maxInfo    = 8 << 20  // bytes of a repository's description
	maxListing = 16 << 20 // bytes of a page of its files
	maxPages   = 20
	maxIndex   = 16 << 20 // bytes of model.safetensors.index.json
)

// plan is the meaning of a reference: files at a revision.
type plan struct {
	revision string
	license  string
	format   Format
	files    []*remote
	notes    []string
}

// entry is a file of a repository, from the tree API.
type entry struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
	OID  string `json:"oid"` // the SHA-1 of the blob in git: for large files, of a pointer
	LFS  *struct {
		OID  string `json:"oid"` // the file's SHA-256
		Size int64  `json:"size"`
	} `json:"lfs"`
}

var gitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// planHF finds the files of a repository's model.
func (p *puller) planHF(ctx context.Context, r *Reference) (*plan, error) {
	base := strings.TrimSuffix(p.client.origin.String(), "/")
	revision := cmp.Or(r.Revision, "main")
	data, _, err := p.client.getSmall(ctx, base+"/api/models/"+r.Repo+"/revision/"+url.PathEscape(revision), nil,
		maxInfo)
	if err != nil {
		return nil, hintHF(err, r)
	}
	info, err := parseInfo(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	// Files are of a single commit, even if the branch moves on meanwhile.
	files, err := p.listHF(ctx, base+"/api/models/"+r.Repo+"/tree/"+info.SHA+"?recursive=true")
	if err != nil {
		return nil, hintHF(err, r)
	}
	at := base + "/" + r.Repo + "/resolve/" + info.SHA + "/"
	index := func() (map[string]bool, error) {
		data, _, err := p.client.getSmall(ctx, at+weightsIndex, nil, maxIndex)
		if err != nil {
			return nil, hintHF(err, r)
		}
		return parseIndex(data)
	}
	tag, note := r.Tag, ""
	if tag == "" {
		tag, note = usualTagOf(files)
	}
	chosen, format, err := choose(tag, files, index)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	out := &plan{revision: info.SHA, license: info.license(), format: format}
	if note != "" {
		out.notes = append(out.notes, note)
	}
	for _, e := range chosen {
		f, err := e.remote(at)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r, err)
		}
		if format == GGUF {
			f.path = path.Base(f.path)
		}
		out.files = append(out.files, f)
	}
	return out, nil
}

// hintHF adds advice to a refusal.
func hintHF(err error, r *Reference) error {
	if status, is := errors.AsType[*statusError](err); is {
		switch status.code {
		case http.StatusUnauthorized:
			status.hint = "there is no such repository, or it is private; a token in HF_TOKEN may open it"
		case http.StatusForbidden:
			status.hint = "the token may not read it; a gated model's conditions are agreed to on its page"
		case http.StatusNotFound:
			status.hint = "there is no such repository or revision"
		}
	}
	return fmt.Errorf("%s: %w", r, err)
}

// info has the used fields of a repository's description.
type info struct {
	SHA  string   `json:"sha"`
	Tags []string `json:"tags"`
}

func parseInfo(data []byte) (*info, error) {
	var i info
	if err := json.Unmarshal(data, &i); err != nil {
		return nil, fmt.Errorf("its description: %w", err)
	}
	if !gitHash.MatchString(i.SHA) {
		return nil, fmt.Errorf("its description: commit %q, want 40 hexadecimal digits", clip(i.SHA))
	}
	return &i, nil
}

// license returns the license on the model's card, "" if none.
func (i *info) license() string {
	for _, t := range i.Tags {
		if l, ok := strings.CutPrefix(t, "license:"); ok {
			return clip(l)
		}
	}
	return ""
}

// listHF lists a repository's files, page after page.
func (p *puller) listHF(ctx context.Context, address string) (all []entry, err error) {
	for range maxPages {
		data, h, err := p.client.getSmall(ctx, address, nil, maxListing)
		if err != nil {
			return nil, err
		}
		page, err := parseListing(data)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(all) > maxFiles*4 {
			return nil, refusedf("its listing has more than %d files", maxFiles*4)
		}
		next := nextPage(h.Values("Link"))
		if next == "" {
			return all, nil
		}
		u, err := p.client.origin.Parse(next)
		if err != nil || !sameOrigin(u, p.client.origin) {
			return nil, refusedf("its listing goes on at %q, another server", clip(next))
		}
		address = u.String()
	}
	return nil, refusedf("its listing has more than %d pages", maxPages)
}

// nextPage finds the address of rel="next" in headers by RFC 8288.
func nextPage(links []string) string {
	for _, l := range links {
		for part := range strings.SplitSeq(l, ",") {
			address, parameters, ok := strings.Cut(strings.TrimSpace(part), ">")
			if ok && strings.HasPrefix(address, "<") && strings.Contains(parameters, `rel="next"`) {
				return address[1:]
			}
		}
	}
	return ""
}

// parseListing reads a page of a listing. An impossible name or size is an error: its sender may send others.
func parseListing(data []byte) (files []entry, err error) {
	var page []entry
	if err := json.Unmarshal(data, &page); err != nil {
		return nil, refusedf("its listing: %w", err)
	}
	for _, e := range page {
		if e.Type != "file" {
			continue
		}
		if err := checkPath(e.Path); err != nil {
			return nil, refusal{err}
		}
		if e.LFS != nil {
			e.Size = e.LFS.Size
		}
		if e.Size < 0 || e.Size > maxFile {
			return nil, refusedf("file %q: %d bytes, want 0 to %d", e.Path, e.Size, int64(maxFile))
		}
		files = append(files, e)
	}
	return files, nil
}

// remote returns the file at the server.
func (e entry) remote(at string) (*remote, error) {
	var escaped []string
	for part := range strings.SplitSeq(e.Path, "/") {
		escaped = append(escaped, url.PathEscape(part))
	}
	r := &remote{path: e.Path, url: at + strings.Join(escaped, "/"), size: e.Size}
	if e.LFS != nil {
		var err error
		r.digest, err = ParseDigest(algorithm + e.LFS.OID)
		return r, err
	}
	if r.git = e.OID; !gitHash.MatchString(e.OID) {
		return nil, fmt.Errorf("file %q: hash %q, want 40 hexadecimal digits", e.Path, clip(e.OID))
	}
	return r, nil
}

const (
	weightsFile  = "model.safetensors"
	weightsIndex = weightsFile + ".index.json"
)

// parseIndex returns the files named by an index of weights.
func parseIndex(data []byte) (map[string]bool, error) {
	var x struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &x); err != nil {
		return nil, fmt.Errorf("%s: %w", weightsIndex, err)
	}
	files := map[string]bool{}
	for _, f := range x.Map {
		if err := checkPath(f); err != nil || strings.Contains(f, "/") || path.Ext(f) != ".safetensors" {
			return nil, fmt.Errorf("%s: weights in %q: want a .safetensors file beside it", weightsIndex, clip(f))
		}
		files[f] = true
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: names no files", weightsIndex)
	}
	return files, nil
}

// choose picks the files needed by a model: from a folder the weights, settings, tokenizer and template, no programs
// and no pickles; from GGUF files the file of a tag, with all of its parts.
func choose(tag string, files []entry, index func() (map[string]bool, error)) ([]entry, Format, error) {
	has := func(name string) bool {
		return slices.ContainsFunc(files, func(e entry) bool { return e.Path == name })
	}
	file := findWeights(files)
	if tag == "" && has("config.json") && file != "" {
		weights := map[string]bool{file: true}
		if file == weightsIndex {
			var err error
			if weights, err = index(); err != nil {
				return nil, "", err
			}
		}
		chosen := slices.DeleteFunc(slices.Clone(files), func(e entry) bool {
			return !weights[e.Path] && !isBesideWeights(e.Path)
		})
		for w := range weights {
			if !has(w) {
				return nil, "", fmt.Errorf("%s names %s, which is not there", weightsIndex, w)
			}
		}
		return chosen, Folder, nil
	}
	chosen, err := chooseGGUF(tag, files)
	return chosen, GGUF, err
}

// findWeights returns the file of a folder's weights or their index: under the usual name, or without GGUF files the
// only file of another name, as folders of GPTQ have it. The result is "" for none.
func findWeights(files []entry) (name string) {
	others := 0
	for _, e := range files {
		switch {
		case e.Path == weightsFile:
			return weightsFile
		case e.Path == weightsIndex, name == weightsIndex:
			name = weightsIndex
		case isGGUF(e.Path):
			others = 2
		case path.Ext(e.Path) == ".safetensors" && !strings.Contains(e.Path, "/") &&
			!strings.HasPrefix(e.Path, "adapter") && !strings.HasPrefix(e.Path, "consolidated"):
			name, others = e.Path, others+1
		}
	}
	if name != weightsIndex && others > 1 {
		return ""
	}
	return name
}

// isBesideWeights reports whether a folder's file is read with the weights. Modules of sentence-transformers, such as
// 1_Pooling, have folders of their own.
func isBesideWeights(p string) bool {
	dir, base := path.Split(p)
	if dir != "" && !aModule.MatchString(dir) {
		return false
	}
	switch ext := path.Ext(base); {
	case ext == ".jinja" || base == "tokenizer.model" || base == "tiktoken.model" || base == "vocab.txt" ||
		base == "merges.txt":
		return true
	case ext == ".safetensors":
		return dir != ""
	case ext == ".json":
		return !strings.HasSuffix(base, ".index.json") || base == weightsIndex
	}
	return strings.HasPrefix(strings.ToUpper(base), "LICENSE") && dir == ""
}

var aModule = regexp.MustCompile(`^[0-9]+_[A-Za-z]+/$`)

// aPart matches the end of the name of a part of a split file.
var aPart = regexp.MustCompile(`-([0-9]{5})-of-([0-9]{5})$`)

// models groups GGUF files by their path without .gguf and the number of a part.
func models(files []entry) map[string][]entry {
	models := map[string][]entry{}
	for _, e := range files {
		base := strings.ToLower(path.Base(e.Path))
		if !isGGUF(base) || strings.HasPrefix(base, "mmproj") || strings.Contains(base, "imatrix") {
			continue
		}
		stem := e.Path[:len(e.Path)-len(".gguf")]
		stem = aPart.ReplaceAllString(stem, "")
		models[stem] = append(models[stem], e)
	}
	return models
}

// chooseGGUF picks the file of a tag, a quantization or a path; without a tag the only file.
func chooseGGUF(tag string, files []entry) ([]entry, error) {
	models := models(files)
	var stems []string
	for stem := range models {
		if tag == "" || tagged(stem, tag) {
			stems = append(stems, stem)
		}
	}
	slices.Sort(stems)
	switch {
	case len(models) == 0 && tag != "" && slices.ContainsFunc(files, func(e entry) bool {
		return e.Path == "config.json"
	}):
		return nil, fmt.Errorf("it holds no GGUF file; without :%s it is a folder", tag)
	case len(models) == 0:
		return nil, noModel(files)
	case len(stems) == 0:
		return nil, fmt.Errorf("no GGUF file of %s; there are %s", tag, listNames(models))
	case len(stems) > 1 && tag == "":
		return nil, fmt.Errorf("several GGUF files; name one behind a colon: %s", listNames(models))
	case len(stems) > 1:
		return nil, fmt.Errorf("several GGUF files of %s; name one by its path: %s.gguf", tag,
			strings.Join(stems, ".gguf, "))
	}
	return parts(models[stems[0]])
}

// usualTag is the quantization of a reference without a tag, as in Ollama and llama.cpp.
const usualTag = "Q4_K_M"

// usualTagOf returns usualTag and a note for the user, for a repository of several GGUF files including usualTag.
func usualTagOf(files []entry) (tag, note string) {
	if slices.ContainsFunc(files, func(e entry) bool { return e.Path == "config.json" }) {
		return "", "" // a folder, perhaps
	}
	models := models(files)
	n := 0
	for stem := range models {
		if tagged(stem, usualTag) {
			n++
		}
	}
	if n != 1 || len(models) == 1 {
		return "", ""
	}
	return usualTag, fmt.Sprintf("%s of %d models is taken; a name behind a colon takes another: %s", usualTag,
		len(models), listNames(models))
}

// tagged reports whether a file is of a tag: its path, without .gguf, ends in the tag, behind a mark or a folder's
// name.
func tagged(stem, tag string) bool {
	stem, tag = strings.ToLower(stem), strings.ToLower(tag)
	if full, ok := strings.CutSuffix(tag, ".gguf"); ok {
		return stem == aPart.ReplaceAllString(full, "")
	}
	rest, ok := strings.CutSuffix(stem, tag)
	return ok && (rest == "" || strings.ContainsAny(rest[len(rest)-1:], "-._/"))
}

// parts orders the parts of a split file. A missing part is an error.
func parts(files []entry) ([]entry, error) {
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
	for i, e := range files {
		m := aPart.FindStringSubmatch(e.Path[:len(e.Path)-len(".gguf")])
		if m == nil && len(files) == 1 {
			return files, nil
		}
		if want := fmt.Sprintf("%05d", i+1); m == nil || m[1] != want || m[2] != fmt.Sprintf("%05d", len(files)) {
			return nil, fmt.Errorf("file %q: want part %d of %d of the model", e.Path, i+1, len(files))
		}
	}
	return files, nil
}

// listNames names the quantizations of files, or their paths where a name has none, at most twenty.
func listNames(models map[string][]entry) string {
	var names []string
	for stem := range models {
		if i := strings.LastIndexAny(stem, "-./"); i >= 0 && aType.MatchString(stem[i+1:]) {
			stem = stem[i+1:]
		} else {
			stem += ".gguf"
		}
		names = append(names, stem)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - 20; more > 0 {
		names = append(names[:20], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// aType matches the names of quantizations.
var aType = regexp.MustCompile(`(?i)^(i?q[0-9]\w*|tq[0-9]_[0-9]|mxfp4\w*|bf16|f16|f32)$`)

// noModel says why a repository has nothing to pull.
func noModel(files []entry) error {
	for _, e := range files {
		switch path.Ext(e.Path) {
		case ".bin", ".pt", ".pth", ".ckpt":
			return fmt.Errorf("it holds %s but neither GGUF nor safetensors; a pickle runs code when it is read, so "+
				"Karat never opens one", e.Path)
		}
	}
	return errors.New("it holds neither a GGUF file nor config.json with model.safetensors")
}

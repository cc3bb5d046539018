package hub

import (
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/hub/local"
)

// Kind is the kind of a reference's place.
type Kind string

// The kinds.
const (
	HuggingFace Kind = "hf"
	OCI         Kind = "oci"
	URL         Kind = "https"
)

// Reference names a model at a place to pull from.
type Reference struct {
	Kind     Kind
	Host     string // of a registry, with a port or without
	Repo     string // ORG/NAME
	Tag      string // of hf: a quantization, or a file's path; "" is none
	Revision string // of hf: a branch, tag or commit; "" is main
	Digest   Digest // of oci: the manifest's; of https: the file's
	URL      *url.URL
}

const maxReference = 2048

var (
	hfPart     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	hfTag      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/+-]*$`)
	hfRevision = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/-]*$`)
	ociRepo    = regexp.MustCompile(
		`^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$`)
	ociTag  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	ociHost = regexp.MustCompile(
		`^(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?$`)
)

// fits reports whether s matches, and has at most n bytes: a repetition of so many times takes milliseconds to compile.
func fits(pattern *regexp.Regexp, s string, n int) bool { return len(s) <= n && pattern.MatchString(s) }

// IsReference reports whether a text is meant as a reference, right or wrong.
func IsReference(s string) bool {
	_, web := local.CutHost(s)
	return strings.HasPrefix(s, "hf:") || !strings.ContainsAny(s, " \t\n") &&
		(strings.Contains(s, "://") || web || isBare(s))
}

// orgName is ORG/NAME, with a tag or a revision or without.
var orgName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*([:@]\S*)?$`)

// isBare reports whether s is ORG/NAME[:TAG][@REVISION], and no path of a file.
func isBare(s string) bool {
	repo, _, _ := strings.Cut(strings.ReplaceAll(s, "@", ":"), ":")
	return orgName.MatchString(s) && !local.IsFile(repo)
}

// ParseReference reads hf:ORG/NAME[:TAG][@REVISION], also without hf: or after hf.co/, oci://REGISTRY/NAME[:TAG] or
// [@sha256:HEX], or https://HOST/FILE[#sha256=HEX].
func ParseReference(s string) (*Reference, error) {
	if len(s) > maxReference {
		return nil, fmt.Errorf("reference of %d bytes, at most %d", len(s), maxReference)
	}
	var r *Reference
	var err error
	given := s
	if rest, ok := local.CutHost(s); ok {
		s = "hf:" + rest
	}
	switch {
	case isBare(s):
		r, err = parseHF(s)
	case strings.HasPrefix(s, "hf:"):
		r, err = parseHF(strings.TrimPrefix(s, "hf:"))
	case strings.HasPrefix(s, "oci://"):
		r, err = parseOCI(strings.TrimPrefix(s, "oci://"))
	case strings.HasPrefix(s, "https://"), strings.HasPrefix(s, "http://"):
		r, err = parseURL(s)
	case ociRepo.MatchString(strings.Split(s, ":")[0]) && !strings.Contains(s, "/") && strings.Contains(s, ":"):
		err = fmt.Errorf("of Ollama's library it is oci://registry.ollama.ai/library/%s", s)
	default:
		err = fmt.Errorf("want hf:ORG/NAME, hf:ORG/NAME-GGUF:Q4_K_M, oci://REGISTRY/NAME:TAG or https://HOST/FILE.gguf")
	}
	if err == nil && len(r.String()) > maxReference { // escapes make the text longer, and manifests are read again
		err = fmt.Errorf("it is written in %d bytes, at most %d", len(r.String()), maxReference)
	}
	if err != nil {
		return nil, fmt.Errorf("reference %q: %w", clip(given), err)
	}
	return r, nil
}

func parseHF(s string) (*Reference, error) {
	r := &Reference{Kind: HuggingFace}
	s, revision, ok := strings.Cut(s, "@")
	if r.Revision = revision; ok && (!fits(hfRevision, revision, 128) || !isClean(revision)) {
		return nil, fmt.Errorf("revision %q: want a branch, a tag or a commit", revision)
	}
	s, tag, ok := strings.Cut(s, ":")
	if r.Tag = tag; ok && (!fits(hfTag, tag, 256) || !isClean(tag)) {
		return nil, fmt.Errorf("tag %q: want a quantization such as Q4_K_M, or the path of a file", tag)
	}
	parts := strings.Split(s, "/")
	if len(parts) > 2 {
		return nil, fmt.Errorf("repository %q: want ORG/NAME", s)
	}
	for _, p := range parts {
		if !fits(hfPart, p, 96) || strings.Contains(p, "..") {
			return nil, fmt.Errorf("repository %q: want ORG/NAME", s)
		}
	}
	r.Repo = s
	return r, nil
}

// isClean reports whether a path with slashes has no parts empty, . or ..
func isClean(p string) bool { return path.Clean("/"+p) == "/"+p }

func parseOCI(s string) (*Reference, error) {
	host, rest, ok := strings.Cut(s, "/")
	if !ok || !ociHost.MatchString(host) || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return nil, fmt.Errorf("registry %q: want a host, such as registry.ollama.ai or docker.io", host)
	}
	r := &Reference{Kind: OCI, Host: strings.ToLower(host), Tag: "latest"}
	rest, digest, ok := strings.Cut(rest, "@")
	if ok {
		d, err := ParseDigest(digest)
		if err != nil {
			return nil, err
		}
		r.Digest, r.Tag = d, ""
	}
	rest, tag, ok := strings.Cut(rest, ":")
	if ok && (!fits(ociTag, tag, 128) || !r.Digest.IsZero()) {
		return nil, fmt.Errorf("tag %q: want letters, digits, and . _ -, or a digest in its place", tag)
	}
	if ok {
		r.Tag = tag
	}
	if !ociRepo.MatchString(rest) || len(rest) > 255 {
		return nil, fmt.Errorf("name %q: want words in lower case, with slashes between them", rest)
	}
	r.Repo = rest
	return r, nil
}

func parseURL(s string) (*Reference, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	r := &Reference{Kind: URL}
	if u.Fragment != "" {
		digits, ok := strings.CutPrefix(u.Fragment, "sha256=")
		if !ok {
			return nil, fmt.Errorf("want #sha256= and 64 hexadecimal digits behind the address, or nothing")
		}
		if r.Digest, err = ParseDigest(algorithm + digits); err != nil {
			return nil, err
		}
	}
	u.Fragment, u.RawFragment = "", ""
	switch {
	case u.Hostname() == "" || u.Opaque != "":
		return nil, fmt.Errorf("no host")
	case u.User != nil:
		return nil, fmt.Errorf("a password in an address would be kept with the model; none is used")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, fmt.Errorf("http can be read and changed on the way; want https")
	}
	r.URL = u
	switch strings.ToLower(path.Ext(u.Path)) {
	case ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle":
		return nil, fmt.Errorf("a pickle runs code when it is read, so Karat never opens one")
	case ".zip", ".tar", ".gz", ".tgz", ".zst", ".xz", ".7z":
		return nil, fmt.Errorf("an archive is never unpacked; want the file of a model")
	case ".safetensors", ".json":
		return nil, fmt.Errorf("one file of a Hugging Face model; want its repository, hf:ORG/NAME")
	}
	return r, nil
}

// loopback reports whether a host is this machine.
func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// String returns the reference in the form of ParseReference.
func (r *Reference) String() string {
	switch r.Kind {
	case HuggingFace:
		s := "hf:" + r.Repo
		if r.Tag != "" {
			s += ":" + r.Tag
		}
		if r.Revision != "" {
			s += "@" + r.Revision
		}
		return s
	case OCI:
		if !r.Digest.IsZero() {
			return "oci://" + r.Host + "/" + r.Repo + "@" + r.Digest.String()
		}
		return "oci://" + r.Host + "/" + r.Repo + ":" + r.Tag
	}
	s := r.URL.String()
	if !r.Digest.IsZero() {
		s += "#sha256=" + r.Digest.hex()
	}
	return s
}

// file returns the file name in an address.
func (r *Reference) file() string {
	base := path.Base(r.URL.Path)
	if !strings.HasSuffix(strings.ToLower(base), ".gguf") || checkPath(base) != nil {
		return "model.gguf"
	}
	return base
}

// Name returns the default name of the model: Qwen3-0.6B:Q4_K_M for hf:Qwen/Qwen3-0.6B-GGUF:Q4_K_M. Without a possible
// name in the reference, Name returns "".
func (r *Reference) Name() string {
	name, tag := path.Base(r.Repo), r.Tag
	switch r.Kind {
	case HuggingFace:
		if cut := len(name) - len("-GGUF"); cut > 0 && strings.EqualFold(name[cut:], "-GGUF") {
			name = name[:cut]
		}
		if isGGUF(tag) {
			name, tag = path.Base(tag[:len(tag)-len(".gguf")]), ""
		}
		tag = strings.ReplaceAll(tag, "/", "-")
	case OCI:
		if tag == "latest" {
			tag = ""
		}
	case URL:
		file := r.file()
		name = file[:len(file)-len(".gguf")]
	}
	if tag != "" {
		name += ":" + tag
	}
	if CheckName(name) != nil {
		return ""
	}
	return name
}

// isGGUF reports whether a name ends in .gguf.
func isGGUF(name string) bool { return strings.HasSuffix(strings.ToLower(name), ".gguf") }

// base returns the address of a registry's API. Docker Hub's is not docker.io itself. Only on this machine plain http
// will do.
func (r *Reference) base() string {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	switch {
	case r.Host == "docker.io" || r.Host == "index.docker.io":
		return "https://registry-1.docker.io"
	case loopback(strings.Trim(host, "[]")):
		return "http://" + r.Host
	}
	return "https://" + r.Host
}

const maxName = 128

// CheckName returns an error if a model cannot have the name.
func CheckName(name string) error {
	first, _, _ := strings.Cut(name, ":")
	switch {
	case len(name) > maxName:
		return fmt.Errorf("name %q: %d characters, at most %d", clip(name), len(name), maxName)
	case !local.IsName(name):
		return fmt.Errorf("name %q: want letters, digits, and . _ - between them, and a tag behind a colon if there "+
			"is to be one, such as small:Q4_K_M", clip(name))
	case slices.Contains([]string{"hf", "oci", "http", "https", "file"}, strings.ToLower(first)):
		return fmt.Errorf("name %q: it would be read as a place to pull from", name)
	case local.IsFile(name):
		return fmt.Errorf("name %q: it would be read as a file's", name)
	}
	return nil
}

// maxPath bounds the path of a file in a model, and maxPart a part of the path.
const maxPath, maxPart = 512, 200

// checkPath returns an error for the path of a model's file, written by a stranger, unless the path is relative, with
// slashes, and has the same meaning on every system.
func checkPath(p string) error {
	bad := func(why string) error { return fmt.Errorf("file %q: %s", clip(p), why) }
	switch {
	case len(p) > maxPath:
		return bad("the name is too long")
	case !fs.ValidPath(p) || p == ".":
		return bad("want a path within the model, without ..")
	case strings.ContainsFunc(p, func(r rune) bool {
		return r < ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|`, r)
	}):
		return bad("the name holds a character that no file's should")
	}
	for part := range strings.SplitSeq(p, "/") {
		if len(part) > maxPart || strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ") {
			return bad("the name is too long, or ends in a point or a space")
		}
	}
	return nil
}

// Find finds a model like local.Find, with an error for a wrong reference.
func Find(name string) (local.Found, error) {
	if _, err := os.Stat(name); err != nil && IsReference(name) {
		r, err := ParseReference(name)
		if err != nil {
			return local.Found{}, err
		}
		return local.Find(r.String())
	}
	return local.Find(name)
}

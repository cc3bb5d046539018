package server

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
)

// Bounds of what the header says, whose names strangers write.
const (
	hintHeader = "Karat-Ignored"
	maxHint    = 100  // bytes of a path
	maxHints   = 1000 // bytes of all paths
)

// hints are the paths of fields that a request has and that changed nothing: messages[0].name, tools[4]. The header of
// the answer and the log have them. A field that is in many elements of an array is named once.
type hints struct {
	header http.Header // of the answer
	seen   map[string]bool
	text   string
	full   bool // text names no more paths
}

var place = regexp.MustCompile(`\[\d+\]`)

// add notes a path.
func (h *hints) add(path string) {
	kind := path
	if !strings.HasSuffix(path, "]") { // an element is a thing of its own
		kind = place.ReplaceAllString(path, "[]")
	}
	if h.seen[kind] || h.full {
		return
	}
	if h.seen == nil {
		h.seen = map[string]bool{}
	}
	h.seen[kind] = true
	path = strings.Map(headerSafe, path[:min(len(path), maxHint)])
	switch {
	case h.text == "":
		h.text = path
	case len(h.text)+len(path) > maxHints:
		h.text, h.full = h.text+", ...", true
	default:
		h.text += ", " + path
	}
	if h.header != nil {
		h.header.Set(hintHeader, h.text)
	}
}

// headerSafe replaces what a header or a list with commas cannot hold.
func headerSafe(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-[]$/:@", r) {
		return r
	}
	return '?'
}

// isNeutral reports whether a value asks for nothing: null, false, "", [] or {}.
func isNeutral(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	switch string(raw) {
	case "null", "false", `""`:
		return true
	}
	return len(raw) > 1 && (raw[0] == '[' || raw[0] == '{') && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
}

// hint takes fields that ask for nothing which could change an answer. What they say is ignored, and their paths are
// noted.
func (f *fields) hint(names ...string) {
	for _, name := range names {
		if raw, there := f.values[name]; there && !isNeutral(raw) {
			f.hints.add(f.path + name)
		}
		delete(f.values, name)
	}
}

// hintRest takes the fields that nobody read as hints.
func (f *fields) hintRest() { f.hint(f.order...) }

// lacks refuses fields that ask for what this server does not do. A neutral value asks for nothing.
func (f *fields) lacks(names ...string) {
	for _, name := range names {
		if raw := f.take(name); raw != nil && !isNeutral(raw) {
			throw(refused(f.path+name, name))
		}
	}
}

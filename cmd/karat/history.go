package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

// stateFile returns a file in the user's folder for state between runs, "" if there is no such folder.
func stateFile(names ...string) string {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
		if runtime.GOOS == "windows" {
			dir = filepath.Join(home, "AppData", "Local")
		}
	}
	return filepath.Join(append([]string{dir, "karat"}, names...)...)
}

// Limits of the history: entries kept, bytes of an entry, and bytes of the file before a cut.
const (
	maxLines   = 1000
	maxEntry   = 16 << 10
	maxHistory = 4 << 20
)

// history is the messages typed, the oldest first: a file of JSON strings, a line each, shared by sessions at the same
// time. Without a file the history is the session's alone.
type history struct {
	path  string
	lines []string
	shown func(line string) string // for the editor: a form fit for display
}

// openHistory reads the history in a file. An unreadable history is empty: a chat goes on without it.
func openHistory(path string) *history {
	h := &history{path: path}
	if path == "" {
		return h
	}
	f, err := os.Open(path)
	if err != nil {
		return h
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		h.path = ""
		return h
	}
	if st.Size() > maxHistory {
		_, _ = f.Seek(-maxHistory, io.SeekEnd) // a cut line is no JSON
	}
	s := bufio.NewScanner(io.LimitReader(f, maxHistory))
	s.Buffer(nil, maxHistory)
	for s.Scan() {
		var line string
		if json.Unmarshal(s.Bytes(), &line) == nil {
			h.lines = append(h.lines, line)
		}
	}
	if n := len(h.lines); n > maxLines || st.Size() > maxHistory {
		h.lines = h.lines[max(0, n-maxLines/2):]
		h.rewrite()
	}
	return h
}

// rewrite replaces the file by the lines kept.
func (h *history) rewrite() {
	var b bytes.Buffer
	for _, line := range h.lines {
		b.Write(encodeLine(line))
	}
	_ = writePrivate(h.path, b.Bytes())
}

func encodeLine(line string) []byte {
	var b bytes.Buffer
	_ = newEncoder(&b).Encode(line) // a string
	return b.Bytes()
}

// Add does nothing with a line of the editor: a message may have several lines, and is kept whole.
func (h *history) Add(string) {}

// keep keeps a message, unless empty or equal to the message before.
func (h *history) keep(line string) {
	if n := len(h.lines); line == "" || n > 0 && h.lines[n-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if len(h.lines) > 2*maxLines {
		h.lines = append([]string(nil), h.lines[maxLines:]...)
	}
	if h.path == "" || len(line) > maxEntry || os.MkdirAll(filepath.Dir(h.path), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = f.Chmod(0o600)
	_, _ = f.Write(encodeLine(line))
	_ = f.Close()
}

// Len returns the number of lines.
func (h *history) Len() int { return len(h.lines) }

// At returns a line for the editor, the newest first.
func (h *history) At(i int) string {
	line := h.lines[len(h.lines)-1-i]
	if h.shown != nil {
		line = h.shown(line)
	}
	return line
}

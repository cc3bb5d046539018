package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
)

// savedChat is a conversation in a file.
type savedChat struct {
	Version  int            `json:"karat_chat"` // 1
	Model    string         `json:"model"`
	System   string         `json:"system,omitempty"`
	Messages []savedMessage `json:"messages"`
}

type savedMessage struct {
	Role      karat.Role `json:"role"`
	Reasoning string     `json:"reasoning,omitempty"`
	Content   string     `json:"content"`
	Images    [][]byte   `json:"images,omitempty"`
}

// maxChat bounds a conversation's file, in bytes. Pictures are in the file.
const maxChat = 1 << 30

// chatName matches a name of a conversation in the user's folder.
var chatName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// homePath returns a path with the user's folder in place of ~.
func homePath(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// chatFile returns the file of a FILE or NAME. A name has neither a folder nor .json.
func chatFile(command, name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("/%s needs a FILE.json or a NAME", command)
	case strings.HasSuffix(name, ".json") || strings.ContainsAny(name, `/\`):
		return homePath(name), nil
	case command == "save" && name == "last":
		return "", errors.New("last is the conversation before this one, and is saved by itself: choose another name")
	case !chatName.MatchString(name):
		return "", fmt.Errorf("%q is no name: want letters, digits, and . _ -; or a path, such as ./chat.json", name)
	}
	path := stateFile("chats", name+".json")
	if path == "" {
		return "", errors.New("there is no folder for names: set HOME, or give a file, such as ./chat.json")
	}
	return path, nil
}

// readChat reads a conversation.
func readChat(path string) (*savedChat, error) {
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", path)
	}
	text, err := readWhole(path, maxChat)
	if err != nil {
		return nil, err
	}
	var c savedChat
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil || c.Version != 1 || d.More() {
		return nil, fmt.Errorf("%s is no saved conversation", path)
	}
	for i, m := range c.Messages {
		want := []karat.Role{karat.RoleUser, karat.RoleAssistant}[i%2]
		if m.Role != want {
			return nil, fmt.Errorf("%s: message %d is of %q, want %q: the user and the assistant speak in turn", path,
				i, m.Role, want)
		}
	}
	return &c, nil
}

// file returns the chat in its saved form.
func (p *conversation) file() *savedChat {
	c := &savedChat{Version: 1, Model: p.modelName(), System: p.system, Messages: []savedMessage{}}
	for _, m := range p.messages {
		s := savedMessage{Role: m.Role, Content: textOf(m)}
		for _, part := range m.Parts {
			switch x := part.(type) {
			case karat.Reasoning:
				s.Reasoning += string(x)
			case karat.Image:
				s.Images = append(s.Images, x.Data)
			}
		}
		c.Messages = append(c.Messages, s)
	}
	return c
}

// write writes the chat to a file, whole or not at all, unreadable for others.
func (p *conversation) write(path string) error {
	var b bytes.Buffer
	if err := writeJSON(&b, p.file()); err != nil {
		return err
	}
	if path == "" {
		return nil
	}
	if filepath.Dir(path) == filepath.Dir(stateFile("chats", "x")) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
	}
	return writePrivate(path, b.Bytes())
}

// writePrivate writes a file, whole or not at all, unreadable for others.
func writePrivate(path string, data []byte) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	_ = f.Chmod(0o600) // some file systems have no modes
	if _, err := io.Copy(f, bytes.NewReader(data)); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Commit()
}

// save saves the chat. A file of another kind, and a conversation not continued by this chat, stay.
func (p *conversation) save(name string) error {
	path, err := chatFile("save", name)
	if err != nil {
		return err
	}
	old, err := readChat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("%w; it is left as it is", err)
	case !isContinuation(p.file().Messages, old.Messages):
		return fmt.Errorf("%s has another conversation: choose another name, or remove it first", path)
	}
	if err := p.write(path); err != nil {
		return err
	}
	return p.tell("saved %s in %s", count(len(p.messages), "message"), oneLine(path))
}

// isContinuation reports whether a conversation begins with another.
func isContinuation(all, first []savedMessage) bool {
	return len(all) >= len(first) && reflect.DeepEqual(all[:len(first)], first)
}

// load goes on with a saved chat.
func (p *conversation) load(name string) error {
	path, err := chatFile("load", name)
	if err != nil {
		return err
	}
	c, err := readChat(path)
	if err != nil {
		return err
	}
	p.undo.keep(p.said)
	p.said = said{system: c.System}
	for _, m := range c.Messages {
		var parts []karat.Part
		if m.Reasoning != "" {
			parts = append(parts, karat.Reasoning(m.Reasoning))
		}
		for _, data := range m.Images {
			parts = append(parts, karat.Image{Data: data})
		}
		p.messages = append(p.messages, karat.Message{Role: m.Role, Parts: append(parts, karat.Text(m.Content))})
	}
	from := ""
	if c.Model != p.modelName() {
		from = ", which was with " + oneLine(c.Model)
	}
	return p.tell("loaded %s%s", count(len(p.messages), "message"), from)
}

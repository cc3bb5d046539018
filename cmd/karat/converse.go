package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
)

// conversation is a chat at a terminal.
type conversation struct {
	*talk
	said
	log      io.Writer
	undo     undo
	prompter *prompter
}

// said is the state of a chat. Its messages are the user's and the model's in turn; the system message is apart.
type said struct {
	system   string
	messages []karat.Message
	from     int          // the first message still sent, for lack of room in the context
	files    []string     // texts for the next message
	images   []karat.Part // pictures for the next message
}

// maxUndo bounds the changes within reach of /undo.
const maxUndo = 1000

// undo is the chat before each change.
type undo []said

// keep keeps the chat for /undo before a change.
func (u *undo) keep(s said) {
	if len(*u) == maxUndo {
		*u = slices.Delete(*u, 0, 1)
	}
	*u = append(*u, s)
}

// takeBack returns the chat before the last change.
func (u *undo) takeBack() (s said) {
	last := len(*u) - 1
	s, *u = (*u)[last], (*u)[:last]
	return s
}

// converse chats until the user leaves.
func (t *talk) converse() error {
	x := t.call
	p := &conversation{talk: t, log: x.log, said: said{system: t.flags.chat.system}}
	fmt.Fprintf(p.log, "karat: chat with %s; /help lists the commands\n", oneLine(p.modelName()))
	p.hintSampling("/set temp 0.8")
	p.prompter = openPrompter(x.in, p.log, t.flags.noHistory)
	defer p.prompter.close()
	for {
		line, err := p.prompter.read()
		if err == nil {
			p.prompter.lines.keep(line)
			err = p.obey(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil && p.prompter.interrupts > 1:
			return failure{status: statusInterrupted}
		case err != nil:
			return err
		}
	}
}

// obey carries out a line. The error is io.EOF at the end.
func (p *conversation) obey(line string) error {
	if p.model.Sees() {
		var paths []string
		paths, line = cutImages(line)
		for _, path := range paths {
			if err := addImage(p, path); err != nil {
				fmt.Fprintln(p.log, "karat:", oneLine(err.Error()))
				return nil
			}
		}
	}
	switch {
	case strings.TrimSpace(line) == "":
		return nil
	case strings.HasPrefix(line, "//"):
		line = line[1:]
	case strings.HasPrefix(line, "/"):
		err := catch(func() error { return p.run(line) })
		var f failure
		if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &f) {
			fmt.Fprintln(p.log, "karat:", oneLine(err.Error()))
			err = nil
		}
		return err
	}
	return p.say(line)
}

// modelName returns the name of the model, in the user's form.
func (t *talk) modelName() string {
	if name := t.call.model.name; name != "" {
		return name
	}
	return t.model.Info().Path
}

// say asks for an answer. A message without an answer leaves the conversation; an answer broken off stays. The error
// is of the output.
func (p *conversation) say(text string) error {
	p.undo.keep(p.said)
	text, p.files = strings.Join(append([]string{text}, p.files...), "\n\n"), nil
	before := p.messages[:len(p.messages):len(p.messages)]
	said := karat.Message{Role: karat.RoleUser, Parts: append(p.images[:len(p.images):len(p.images)], karat.Text(text))}
	p.messages, p.images = append(before, said), nil
	a, err := answerOnce(p)
	for turn := 1; err == nil && a.calls != nil; turn++ {
		var said []karat.Message
		if said, err = callInChat(p, a, turn); err != nil {
			p.said = p.undo.takeBack()
			if f := (failure{}); !errors.As(err, &f) && !errors.Is(err, context.Canceled) {
				fmt.Fprintln(p.log, "karat:", err)
			}
			return p.tell("the message is forgotten")
		}
		p.messages = append(p.messages, said...)
		a, err = answerOnce(p)
	}
	var f failure
	var full contextFull
	switch {
	case err != nil && errors.As(err, &f):
	case err != nil && a.stop == "" && a.tokens > 0:
		return err // of the output
	case err != nil:
		fmt.Fprintln(a.log, "karat:", oneLine(p.flags.chat.addName(err).Error()))
		if errors.As(err, &full) {
			hint := "/set ctx sets the length of the context"
			if errors.Is(err, karat.ErrBudget) {
				hint = "--kv-budget sets the memory of the KV cache"
			}
			if p.flags.keepAll { // else the oldest messages are gone already
				hint = "/clear makes room; " + hint
			}
			fmt.Fprintln(a.log, "karat:", hint)
		}
	}
	if a.tokens == 0 {
		p.said = p.undo.takeBack()
		// A picture that cannot be shown would fail all messages after it.
		if len(p.images) > 0 && err != nil && !errors.As(err, &f) {
			p.images = nil
			return p.tell("the message and its pictures are forgotten")
		}
		return nil
	}
	a.calls = nil // of an answer that was broken off
	p.messages = append(p.messages, a.message())
	return p.keep()
}

// answerOnce asks for an answer. Ctrl-C breaks the answer off.
func answerOnce(p *conversation) (*answer, error) {
	a := &answer{output: p.output()}
	ctx, stop := p.prompter.interruptible()
	defer stop()
	r, err := request{}, p.offerTools(ctx)
	if err == nil {
		r, err = p.fit(ctx)
	}
	if err == nil {
		a.parser, a.ids = r.parser, r.ids
		err = a.write(ctx, r.tokens(ctx, a.session))
	} else if err = a.explain(err); ctx.Err() != nil {
		err = failure{status: statusInterrupted}
	}
	return a, err
}

// keep saves the chat for /load last, so nothing is lost.
func (p *conversation) keep() error {
	if p.flags.noHistory {
		return nil
	}
	if err := p.write(stateFile("chats", "last.json")); err != nil && p.flags.verbose {
		fmt.Fprintln(p.log, "karat:", oneLine(err.Error()))
	}
	return nil
}

// sent returns the messages sent to the model.
func (p *conversation) sent() []karat.Message {
	p.flags.chat.system = p.system
	return append(p.flags.chat.opening(), p.messages[p.from:]...)
}

// fit makes the request of the chat. Without room in the context for the chat and an answer, the oldest messages go.
func (p *conversation) fit(ctx context.Context) (request, error) {
	size := p.model.Info().Context
	most, first := size-min(size/8, 1024), p.from
	for {
		r, err := p.flags.chat.request(ctx, p.model, p.sent(), p.g, p.flags.grammar.turn)
		fits := err == nil && len(r.ids) <= most || err != nil && !errors.Is(err, karat.ErrFull)
		next := slices.IndexFunc(p.messages[p.from+1:], func(m karat.Message) bool { return m.Role == karat.RoleUser })
		if fits || p.flags.keepAll || next < 0 {
			if errors.Is(err, karat.ErrFull) || len(r.ids) > size { // the new message alone does not fit
				p.from = first
			}
			if p.from > first {
				fmt.Fprintf(p.log, "karat: the context of %s is full: the %s oldest messages are no longer sent\n",
					count(size, "token"), fmt.Sprint(p.from))
			}
			return r, err
		}
		p.from += 1 + next
		most = size - size/4 // room for the next messages
	}
}

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

	Calls []savedCall `json:"tool_calls,omitempty"`   // of the assistant
	ID    string      `json:"tool_call_id,omitempty"` // of the call with this result
	Name  string      `json:"name,omitempty"`         // of its tool
}

type savedCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
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
	want, open := karat.RoleUser, []savedCall(nil)
	for i, m := range c.Messages {
		if m.Role != want || want == karat.RoleTool && m.ID != open[0].ID {
			return nil, fmt.Errorf("%s: message %d is of %q, want %q: the user and the assistant speak in turn, and "+
				"each call has its result", path, i, m.Role, want)
		}
		switch want = karat.RoleAssistant; m.Role {
		case karat.RoleAssistant:
			open, want = m.Calls, karat.RoleUser
		case karat.RoleTool:
			open = open[1:]
		}
		if len(open) > 0 {
			want = karat.RoleTool
		}
	}
	if want == karat.RoleTool {
		return nil, fmt.Errorf("%s: the result of the call %q is missing", path, open[0].ID)
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
			case karat.ToolCall:
				s.Calls = append(s.Calls, savedCall{x.ID, x.Name, x.Arguments})
			case karat.ToolResult:
				r := savedMessage{Role: m.Role, ID: x.ID, Name: x.Name, Content: x.Content}
				for _, i := range x.Images {
					r.Images = append(r.Images, i.Data)
				}
				c.Messages = append(c.Messages, r)
			}
		}
		if m.Role != karat.RoleTool {
			c.Messages = append(c.Messages, s)
		}
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
	path := must(chatFile("save", name))
	old, err := readChat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("%w; it is left as it is", err)
	case !isContinuation(p.file().Messages, old.Messages):
		return fmt.Errorf("%s has another conversation: choose another name, or remove it first", path)
	}
	throw(p.write(path))
	return p.tell("saved %s in %s", count(len(p.messages), "message"), oneLine(path))
}

// isContinuation reports whether a conversation begins with another.
func isContinuation(all, first []savedMessage) bool {
	return len(all) >= len(first) && reflect.DeepEqual(all[:len(first)], first)
}

// load goes on with a saved chat.
func (p *conversation) load(name string) error {
	path := must(chatFile("load", name))
	c := must(readChat(path))
	p.undo.keep(p.said)
	p.said = said{system: c.System}
	for _, m := range c.Messages {
		var parts []karat.Part
		if m.Reasoning != "" {
			parts = append(parts, karat.Reasoning(m.Reasoning))
		}
		var images []karat.Image
		for _, data := range m.Images {
			images = append(images, karat.Image{Data: data})
		}
		if m.Role == karat.RoleTool {
			parts = append(parts, karat.ToolResult{ID: m.ID, Name: m.Name, Content: m.Content, Images: images})
			p.messages = append(p.messages, karat.Message{Role: m.Role, Parts: parts})
			continue
		}
		for _, i := range images {
			parts = append(parts, i)
		}
		if parts = append(parts, karat.Text(m.Content)); m.Calls != nil && m.Content == "" {
			parts = parts[:len(parts)-1]
		}
		for _, k := range m.Calls {
			if n, err := strconv.Atoi(strings.TrimPrefix(k.ID, "call")); err == nil {
				p.calls = max(p.calls, n) // later calls have other ids
			}
			parts = append(parts, karat.ToolCall{ID: k.ID, Name: k.Name, Arguments: k.Arguments})
		}
		p.messages = append(p.messages, karat.Message{Role: m.Role, Parts: parts})
	}
	from := ""
	if c.Model != p.modelName() {
		from = ", which was with " + oneLine(c.Model)
	}
	return p.tell("loaded %s%s", count(len(p.messages), "message"), from)
}

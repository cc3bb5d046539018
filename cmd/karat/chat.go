package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/karat-run/karat"
	"github.com/spf13/pflag"
)

// chatFlags say how a prompt becomes a conversation.
type chatFlags struct {
	chat         bool
	system, file string
	args         []string
}

func (f *chatFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.chat, "chat", false, "the prompt is what a user says: apply the chat template")
	fs.StringVar(&f.system, "system", "", "`text` of the system message of a chat")
	fs.StringVar(&f.file, "chat-template", "", "apply the chat template in this `file` instead of the model's")
	fs.StringArrayVar(&f.args, "template-arg", nil, "`NAME=VALUE` for the template, VALUE as JSON or else as text; may be given again")
}

// given reports whether a flag was given that has no sense without a chat.
func (f *chatFlags) given() bool { return f.system != "" || f.file != "" || len(f.args) > 0 }

// template is the text of --chat-template, "" without it, and the variables for it.
func (f *chatFlags) template() (text string, args map[string]any, err error) {
	for _, a := range f.args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return "", nil, usagef("--template-arg %q: want NAME=VALUE", a)
		}
		if args == nil {
			args = map[string]any{}
		}
		args[name] = templateValue(value)
	}
	if f.file == "" {
		return "", args, nil
	}
	b, err := os.ReadFile(f.file)
	if err == nil && len(b) == 0 {
		err = fmt.Errorf("%s: an empty chat template", f.file)
	}
	return string(b), args, err
}

// templateValue is a JSON value as it is spelled, or else the text itself.
func templateValue(s string) any {
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	return s
}

// messages is a conversation that begins with a user's text.
func (f *chatFlags) messages(user string) []karat.Message {
	return append(f.opening(), karat.Message{Role: "user", Content: user})
}

// opening is what comes before the user's first message.
func (f *chatFlags) opening() []karat.Message {
	if f.system == "" {
		return nil
	}
	return []karat.Message{{Role: "system", Content: f.system}}
}

// source is where the template is from: the model or a file.
func (f *chatFlags) source() string {
	if f.file == "" {
		return "model"
	}
	return f.file
}

// describe says which template is applied.
func (f *chatFlags) describe(m *karat.Model) (string, error) {
	if f.file != "" {
		return fmt.Sprintf("the chat template of %s is applied", f.file), nil
	}
	info := m.Info()
	if info.Template == "" {
		return "", fmt.Errorf("%s has no chat template: --chat-template FILE gives one, and a PROMPT without --chat needs none", info.Path)
	}
	sum := sha256.Sum256([]byte(info.Template))
	return fmt.Sprintf("the model's chat template is applied (sha256 %x…)", sum[:6]), nil
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/jinja"
)

// maxTemplate bounds a template's size, in bytes, like the interpreter.
const maxTemplate = 1 << 20

// chatFlags say how a prompt becomes a conversation.
type chatFlags struct {
	chat         bool
	system, file string
	args         []string
	images       []karat.Part   // of run alone
	reasoning    reasoningFlags // of run alone
	budget       bool           // the chat template has no switch for reasoning
}

func (f *chatFlags) add(c *command) {
	c.flags("chat", &f.chat, "system", &f.system, "chat-template", file(&f.file), "template-arg", &f.args)
}

// isGiven reports whether a flag was given without use outside a chat.
func (f *chatFlags) isGiven() bool { return f.system != "" || f.file != "" || len(f.args) > 0 }

// imply makes a chat of a command with a flag of chats.
func (f *chatFlags) imply() {
	f.chat = f.chat || f.isGiven() || len(f.images) > 0 || f.reasoning != reasoningFlags{}
}

// options returns the options of a request with the template of --chat-template and its variables.
func (f *chatFlags) options() (g karat.GenerateOptions, err error) {
	for _, a := range f.args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return g, usagef("--template-arg %q: want NAME=VALUE", a)
		}
		if g.TemplateArgs == nil {
			g.TemplateArgs = map[string]any{}
		}
		if g.TemplateArgs[name] = value; json.Valid([]byte(value)) {
			g.TemplateArgs[name] = json.RawMessage(value)
		}
	}
	if f.file != "" {
		g.Template, err = f.read()
	}
	return g, err
}

// read reads the template and checks its syntax.
func (f *chatFlags) read() (string, error) {
	text, err := readWhole(f.file, maxTemplate)
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", fmt.Errorf("%s: an empty chat template", f.file)
	}
	_, err = chat.Parse(text, chat.Limits{})
	return text, f.addName(err)
}

// addName adds the template's file name to an error.
func (f *chatFlags) addName(err error) error {
	if e := (*jinja.Error)(nil); f.file != "" && errors.As(err, &e) {
		return fmt.Errorf("%s: %s", f.file, e.Error())
	}
	return err
}

// messages returns a conversation beginning with a user's text.
func (f *chatFlags) messages(user string) []karat.Message {
	return append(f.opening(), karat.Message{Role: karat.RoleUser, Parts: append(f.images, karat.Text(user))})
}

// opening returns the messages before the user's first.
func (f *chatFlags) opening() []karat.Message {
	if f.system == "" {
		return nil
	}
	return []karat.Message{karat.TextMessage(karat.RoleSystem, f.system)}
}

// source returns the source of the template: the model or a file.
func (f *chatFlags) source() string {
	if f.file == "" {
		return "model"
	}
	return f.file
}

// ids returns the ids of a prompt, or, with --chat, of a conversation with the text as its message. template is the
// template's source: none, model, or a file.
func (f *chatFlags) ids(ctx context.Context, m *karat.Model, text string, g karat.GenerateOptions) (ids []int,
	template string, err error) {
	if f.chat {
		template = f.source()
		if _, err = f.describe(ctx, m, text, g); err == nil {
			ids, err = m.TokenizeChat(ctx, f.messages(text), g)
		}
	} else {
		template = "none"
		ids, err = m.Tokenize(ctx, text, karat.TokenizeOptions{})
	}
	if err == nil && len(ids) == 0 {
		err = errEmpty
	}
	return ids, template, err
}

// describe names the template applied, after a check with the user's first message.
func (f *chatFlags) describe(ctx context.Context, m *karat.Model, user string, g karat.GenerateOptions) (string,
	error) {
	info := m.Info()
	if f.file == "" && info.Template == "" {
		return "", fmt.Errorf("%s has no chat template: --chat-template FILE gives one, and a PROMPT without --chat "+
			"needs none", info.Path)
	}
	if _, err := m.Render(ctx, f.messages(user), g); err != nil {
		return "", f.addName(err)
	}
	if f.file != "" {
		return fmt.Sprintf("the chat template of %s is applied", oneLine(f.file)), nil
	}
	sum := sha256.Sum256([]byte(info.Template))
	return fmt.Sprintf("the model's chat template is applied (sha256 %x…)", sum[:6]), nil
}

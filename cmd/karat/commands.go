package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/spf13/pflag"
)

// chatCommand is the command of a line with a slash in front.
type chatCommand struct {
	name, arguments, help string
	run                   func(p *conversation, argument string) error // io.EOF ends the chat
}

// chatCommands lists the commands of a chat.
func chatCommands() []chatCommand {
	return []chatCommand{
		{"set", "[NAME [VALUE]]", "show the settings, or change one: " + strings.Join(chatSettings, ", "),
			(*conversation).set},
		{"system", "[TEXT]", "set the system message; without TEXT there is none", (*conversation).setSystem},
		{"think", "on|off", "have the model reason before its answer, or not", (*conversation).setThinking},
		{"reasoning", "", "show the reasoning before the last answer", (*conversation).showReasoning},
		{"file", "PATH", "add the text of a file to the next message", (*conversation).addFile},
		{"image", "PATH", "show a picture with the next message", addImage},
		{"retry", "", "ask for another answer", (*conversation).retry},
		{"undo", "", "take back the last change of the conversation", (*conversation).takeBack},
		{"clear", "", "forget the conversation", (*conversation).clear},
		{"save", "FILE|NAME", "save the conversation, as a .json file or under a name", (*conversation).save},
		{"load", "FILE|NAME", "go on with a saved conversation; last is the one before", (*conversation).load},
		{"model", "[MODEL]", "go on with another model", (*conversation).switchModel},
		{"tokens", "", "show how much of the context is used", (*conversation).tokensUsed},
		{"help", "", "show this text", (*conversation).help},
		{"bye", "", "leave (or press Ctrl-D)", func(*conversation, string) error { return io.EOF }},
	}
}

// sameCommands are other names of commands.
var sameCommands = map[string]string{"exit": "bye", "quit": "bye", "?": "help", "regenerate": "retry",
	"reset": "clear", "read": "file"}

// run obeys a command.
func (p *conversation) run(line string) error {
	name, argument, _ := strings.Cut(strings.TrimPrefix(line, "/"), " ")
	if at := strings.IndexAny(name, "\t\n"); at >= 0 {
		name, argument = name[:at], name[at:]+" "+argument
	}
	if same, ok := sameCommands[name]; ok {
		name = same
	}
	for _, c := range chatCommands() {
		switch argument = strings.TrimSpace(argument); {
		case c.name != name:
		case c.arguments == "" && argument != "":
			return fmt.Errorf("/%s takes no argument", name)
		default:
			return c.run(p, argument)
		}
	}
	return fmt.Errorf("there is no command /%s; /help lists them, and // begins a message with a slash", name)
}

func (p *conversation) help(string) error {
	var b strings.Builder
	b.WriteString(`Type a message and press Enter. Alt-Enter, or a \ at the end, continues the
line; """ begins and ends a message of several lines. The arrow keys edit the
line and bring back earlier ones, also of earlier sessions. A pasted text may
have several lines. // begins a message with a slash.
`)
	t := newTable(&b)
	for _, c := range chatCommands() {
		fmt.Fprintf(t, "  /%s\t%s\n", strings.TrimSpace(c.name+" "+c.arguments), c.help)
	}
	t.Flush()
	b.WriteString("Ctrl-C stops an answer, a second Ctrl-C leaves.\n")
	_, err := io.WriteString(p.log, b.String())
	return err
}

func (p *conversation) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(p.log, "karat: "+format+"\n", args...)
	return err
}

// chatSettings are the names known to /set: flags of karat run, and settings with commands of their own.
var chatSettings = []string{"temp", "top-k", "top-p", "min-p", "repeat-penalty", "seed", "n", "ctx", "system", "think"}

// sameSettings are other names of chatSettings.
var sameSettings = map[string]string{"n": "tokens", "num-predict": "tokens", "num-ctx": "ctx", "nothink": "no-think"}

// set shows the settings, or changes a setting.
func (p *conversation) set(argument string) error {
	argument = strings.TrimPrefix(argument, "parameter ") // ollama's form
	name, value, given := strings.Cut(argument, " ")
	name = strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")
	value = strings.TrimSpace(value)
	if same, ok := sameSettings[name]; ok {
		name = same
	}
	switch name {
	case "":
		return p.showSettings()
	case "system":
		return p.setSystem(value)
	case "think":
		if !given {
			value = "on"
		}
		return p.setThinking(value)
	case "no-think":
		return p.setThinking("off")
	case "verbose", "quiet":
		p.flags.verbose = name == "verbose"
		return nil
	}
	f := p.call.Flags().Lookup(name)
	if f != nil {
		if alias, ok := f.Value.(sameFlag); ok {
			f = alias.Flag
		}
	}
	switch {
	case f == nil || f.Name != "tokens" && !slices.Contains(chatSettings, f.Name):
		return fmt.Errorf("there is no setting %s; want %s", oneLine(name), strings.Join(chatSettings, ", "))
	case !given:
		return fmt.Errorf("/set %s needs a value, or default", name)
	}
	return p.setFlag(f, value)
}

// setFlag gives a flag a value, or its default. A wrong value changes nothing.
func (p *conversation) setFlag(f *pflag.Flag, value string) error {
	old, changed := f.Value.String(), f.Changed
	restore := func(err error) error {
		_ = f.Value.Set(old)
		f.Changed = changed
		if n, is := errors.AsType[*strconv.NumError](err); is {
			return errors.New(numberText(n))
		}
		return err
	}
	if f.Changed = value != "default"; !f.Changed {
		value = f.DefValue
	}
	if err := f.Value.Set(value); err != nil {
		return restore(err)
	}
	var o karat.Options
	err := catch(func() (err error) { o, _, err = p.flags.options(p.call.changed); return err })
	if err != nil {
		return restore(err)
	}
	if f.Name == "ctx" {
		if err := catch(func() error { return p.reload(*p.call.model, o) }); err != nil {
			return restore(err)
		}
	}
	return nil
}

// showSettings shows the settings of the next answer.
func (p *conversation) showSettings() error {
	o := p.output()
	s := o.sampling
	seed, n := "drawn for each answer", "no limit"
	if p.call.Flags().Changed("seed") {
		seed = strconv.FormatUint(*s.Seed, 10)
	}
	if p.g.MaxTokens > 0 {
		n = strconv.Itoa(p.g.MaxTokens)
	}
	think := "as the template has it"
	if r := p.flags.chat.reasoning; r.think || r.no {
		think = map[bool]string{true: "on", false: "off"}[r.think]
	}
	var b strings.Builder
	t := newTable(&b)
	for _, x := range [][2]any{{"temp", s.Temperature}, {"top-k", s.TopK}, {"top-p", s.TopP}, {"min-p", s.MinP},
		{"repeat-penalty", s.RepeatPenalty}, {"seed", seed}, {"n", n}, {"ctx", o.context},
		{"system", oneLine(p.system)}, {"think", think}} {
		fmt.Fprintf(t, "  %v\t%v\n", x[0], x[1])
	}
	t.Flush()
	_, err := io.WriteString(p.log, b.String())
	return err
}

func (p *conversation) setSystem(text string) error {
	p.undo.keep(p.said)
	p.system = unquoted(text)
	if p.system == "" {
		return p.tell("there is no system message")
	}
	return nil
}

func (p *conversation) setThinking(value string) error {
	r := &p.flags.chat.reasoning
	switch value {
	case "on", "true":
		r.think, r.no = true, false
	case "off", "false":
		r.think, r.no = false, true
	case "default":
		r.think, r.no = false, false
	default:
		return fmt.Errorf("think %q: want on, off or default", value)
	}
	return nil
}

// showReasoning shows the folded reasoning.
func (p *conversation) showReasoning(string) error {
	for _, m := range slices.Backward(p.messages) {
		for _, part := range m.Parts {
			if r, ok := part.(karat.Reasoning); ok {
				_, err := fmt.Fprintln(p.log, answerText(strings.TrimSpace(string(r))))
				return err
			}
		}
		if m.Role == karat.RoleAssistant {
			break
		}
	}
	return errors.New("there is no reasoning before the last answer")
}

// addFile keeps the text of a file for the next message.
func (p *conversation) addFile(path string) error {
	if path == "" {
		return errors.New("/file needs a path")
	}
	ctx, stop := p.prompter.interruptible()
	defer stop()
	text := must(awaitRead(ctx, func() (string, error) { return readFile(homePath(path)) }))
	if strings.IndexByte(text, 0) >= 0 {
		return fmt.Errorf("%s is no text: it has zero bytes", path)
	}
	p.undo.keep(p.said)
	p.files = append(p.files[:len(p.files):len(p.files)], text)
	return p.tell("%s, %s, comes with the next message", oneLine(path), bytesText(int64(len(text))))
}

// retry asks for another answer to the last message.
func (p *conversation) retry(string) error {
	for i := len(p.messages) - 1; i >= 0; i-- {
		if m := p.messages[i]; m.Role == karat.RoleUser {
			was, undo := p.said, p.undo
			p.messages, p.from = p.messages[:i:i], min(p.from, i)
			p.images = imagesOf(m)
			err := p.say(textOf(m))
			if len(p.messages) == i { // there is no other answer
				p.said = was
				return err
			}
			p.undo = append(undo[:len(undo):len(undo)], was)
			return err
		}
	}
	return errors.New("nothing was asked yet")
}

// textOf returns the text of a message.
func textOf(m karat.Message) (text string) {
	for _, part := range m.Parts {
		if t, ok := part.(karat.Text); ok {
			text += string(t)
		}
	}
	return text
}

func (p *conversation) takeBack(string) error {
	if len(p.undo) == 0 {
		return errors.New("there is nothing to take back")
	}
	p.said = p.undo.takeBack()
	return p.tell("the conversation has %s", count(len(p.messages), "message"))
}

func (p *conversation) clear(string) error {
	p.undo.keep(p.said)
	p.messages, p.from, p.files, p.images = nil, 0, nil, nil
	return p.tell("the conversation is forgotten; /undo brings it back")
}

// switchModel goes on with another model.
func (p *conversation) switchModel(name string) error {
	if name == "" {
		return p.tell("the model is %s", oneLine(p.modelName()))
	}
	a := *p.call.model
	a.name = name
	return p.reload(a, p.options)
}

// reload opens a model in place of the current model. An error leaves the current model.
func (p *conversation) reload(a modelArg, o karat.Options) error {
	ctx, stop := p.prompter.interruptible()
	defer stop()
	path := must(p.call.findNamed(&a))
	m := must(loadModel(ctx, path, o, p.log))
	if _, err := p.flags.chat.describe(ctx, m, "Hello", p.g); err != nil {
		m.Close()
		return err
	}
	p.use(m)
	p.options, *p.call.model, p.from = o, a, 0
	return p.tell("chat with %s", oneLine(p.modelName()))
}

// tokensUsed shows how much of the context the chat takes.
func (p *conversation) tokensUsed(string) error {
	used := 0
	if messages := p.sent(); len(messages) > 0 {
		ctx, stop := p.prompter.interruptible()
		defer stop()
		used = must(p.model.CountChat(ctx, messages, p.g))
	}
	text := fmt.Sprintf("%d of %s", used, count(p.model.Info().Context, "token"))
	if p.from > 0 {
		text += fmt.Sprintf("; the %d oldest messages are not sent", p.from)
	}
	return p.tell("%s", text)
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/mcp"
)

// toolFlags give the model tools of servers of the Model Context Protocol.
type toolFlags struct {
	config string
	allow  commaList
	yes    bool
}

func (f *toolFlags) add(c *command) {
	c.flags("mcp", file(&f.config), "mcp-allow", &f.allow, "yes", &f.yes)
}

// check checks the flags beside others.
func (f *toolFlags) check(json, receipt bool) error {
	switch {
	case f.config == "" && (f.allow != nil || f.yes):
		return usagef("--mcp-allow, --yes: they allow calls of tools, and need --mcp")
	case f.config != "" && json:
		return usagef("--mcp, --json: give one of them")
	case f.config != "" && receipt:
		return usagef("--mcp, --receipt: give one of them")
	}
	return nil
}

// read reads the configuration; nil without one.
func (f *toolFlags) read() ([]mcp.Server, error) {
	if f.config == "" {
		return nil, nil
	}
	text, err := readWhole(f.config, 1<<20)
	if err != nil {
		return nil, err
	}
	servers, err := mcp.ReadConfig(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.config, err)
	}
	return servers, nil
}

// start starts the servers of the tools.
func (t *talk) start(servers []mcp.Server) (err error) {
	f := &t.flags.tools
	o := mcp.Options{Allow: f.allow, Consent: t.consent, Pictures: func() bool { return t.model.Sees() }}
	if f.yes {
		o.Allow = append(o.Allow, "*")
	}
	if t.tools, err = mcp.Start(t.call.ctx, servers, o); err != nil {
		return shown{err}
	}
	t.ask = func(ctx context.Context) (string, error) {
		fmt.Fprint(t.call.log, consentQuestion)
		return awaitRead(ctx, func() (string, error) { return bufio.NewReaderSize(t.call.in, 16).ReadString('\n') })
	}
	if t.flags.verbose {
		t.call.say("%s: %s", count(len(t.tools.List()), "tool"), oneLine(strings.Join(t.tools.Paths(), ", ")))
	}
	return nil
}

// offerTools offers the model the tools that the servers have now.
func (t *talk) offerTools(ctx context.Context) error {
	if t.tools == nil {
		return nil
	}
	err := t.tools.Refresh(ctx)
	t.g.Tools = t.tools.List()
	return err
}

// shown is an error with a text of another program.
type shown struct{ error }

func (s shown) Error() string { return oneLine(s.error.Error()) }
func (s shown) Unwrap() error { return s.error }

const consentQuestion = "karat: may it? [y]es, [a]lways, [N]o: "

// begin returns a text, or the beginning of a long text.
func begin(s string) string {
	if len(s) <= 2000 {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:2000], ""), len(s))
}

// consent asks the user.
func (t *talk) consent(ctx context.Context, c mcp.Call) (mcp.Consent, error) {
	x := t.call
	path := oneLine(c.Server + "/" + c.Tool)
	if !isTerminal(x.in) || !isTerminal(x.log) {
		x.say("%s is refused, since nobody can be asked: --mcp-allow %s allows it", path, path)
		return mcp.Refuse, nil
	}
	x.say("the model calls %s with %s", path, oneLine(begin(string(c.Arguments))))
	line, err := t.ask(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return mcp.Refuse, failure{status: statusInterrupted}
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return mcp.Once, nil
	case "a", "always":
		return mcp.Always, nil
	}
	return mcp.Refuse, nil
}

// callTools calls the tools of an answer, and returns the answer's message and the results.
func (t *talk) callTools(ctx context.Context, a *answer, turn int) ([]karat.Message, error) {
	said := a.message()
	var calls []karat.ToolCall
	for _, c := range a.calls {
		t.calls++
		calls = append(calls, karat.ToolCall{ID: fmt.Sprintf("call%05d", t.calls), Name: c.Name,
			Arguments: json.RawMessage(c.Arguments)})
		said.Parts = append(said.Parts, calls[len(calls)-1])
	}
	results, err := t.tools.CallAll(ctx, turn, calls, func(c karat.ToolCall, r karat.ToolResult) bool {
		if t.flags.verbose {
			t.call.say("%s %s: %s", oneLine(c.Name), oneLine(string(c.Arguments)), oneLine(begin(r.Content)))
		}
		return true
	})
	if f := (failure{}); err != nil && !errors.As(err, &f) {
		err = shown{err}
	}
	return []karat.Message{said, results}, err
}

// callInChat calls the tools of an answer. Ctrl-C breaks them off.
func callInChat(p *conversation, a *answer, turn int) ([]karat.Message, error) {
	p.ask = func(context.Context) (string, error) { return p.prompter.next(consentQuestion) }
	ctx, stop := p.prompter.interruptible()
	defer stop()
	return p.callTools(ctx, a, turn)
}

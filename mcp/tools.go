package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/karat-run/karat"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of a server's tools: the number, and the bytes of a tool and of a result's text.
const (
	maxTools  = 256
	maxTool   = 64 << 10
	maxResult = 256 << 10
)

// Options say how calls get consent.
type Options struct {
	Allow []string // calls with consent: SERVER for all tools of a server, SERVER/TOOL, or * for all

	// Consent is asked before each other call, in sequence. Nil refuses.
	Consent func(ctx context.Context, c Call) (Consent, error)

	Pictures func() bool // reports whether results may have pictures, since the model sees; nil is no
}

// Call is a call in need of consent. All fields are texts of the server or of the model: show them with care.
type Call struct {
	Server, Tool string
	Description  string
	Arguments    json.RawMessage
}

// Consent is the answer to a call.
type Consent int

// The answers.
const (
	Refuse Consent = iota
	Once
	Always // also for later calls of the tool
)

// Tools are the tools of running servers. Several goroutines may call tools.
type Tools struct {
	o       Options
	servers []*server
	tools   atomic.Pointer[[]tool]

	asking  lock // for a single question at a time
	allowed map[string]bool
	always  map[string]string // what a tool that is allowed by an answer says of itself
}

// Start runs the servers, at the same time, and lists the tools. After an error no server runs.
func Start(ctx context.Context, servers []Server, o Options) (*Tools, error) {
	t := &Tools{o: o, asking: make(lock, 1), allowed: map[string]bool{}, always: map[string]string{}}
	for i := range servers {
		s := &server{Server: servers[i], turn: make(lock, 1)}
		if err := s.check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(t.servers, func(other *server) bool { return other.Name == s.Name }) {
			return nil, fmt.Errorf("two servers are named %q", s.Name)
		}
		s.Timeout = cmp.Or(s.Timeout, DefaultTimeout)
		t.servers = append(t.servers, s)
	}
	failed := make([]error, len(servers))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i, s := range t.servers {
		all.Go(func() {
			if failed[i] = s.list(ctx); failed[i] != nil {
				cancel() // the others need not start
			}
		})
	}
	all.Wait()
	err := first(failed)
	t.rename()
	for _, a := range o.Allow {
		if err == nil && !t.knows(a) {
			err = fmt.Errorf("%q is allowed, and is neither a server nor a tool: there are %s", a,
				strings.Join(t.Paths(), ", "))
		}
		t.allowed[a] = true
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Refresh lists the tools of servers that may have changed theirs. ChatParts does so before each turn. A server without
// an answer keeps the tools: a call will tell. The error is that of ctx.
func (t *Tools) Refresh(ctx context.Context) error {
	for _, s := range t.servers {
		if (s.stale.Swap(false) || s.polled.Load()) && s.list(ctx) != nil {
			s.stale.Store(true)
		}
	}
	t.rename()
	return ctx.Err()
}

// first returns the cause of the other errors.
func first(all []error) (err error) {
	for _, e := range all {
		if e != nil && (err == nil || errors.Is(err, context.Canceled)) {
			err = e
		}
	}
	return err
}

// list asks for a server's tools.
func (s *server) list(ctx context.Context) error {
	err := s.within(ctx, "list of tools", func(ctx context.Context, session *sdk.ClientSession) error {
		var all []tool
		seen := map[string]bool{}
		for cursor := ""; ; {
			page, err := session.ListTools(ctx, &sdk.ListToolsParams{Cursor: cursor})
			if err != nil {
				return err
			}
			if len(all)+len(page.Tools) > maxTools {
				return fmt.Errorf("it has more than %d tools", maxTools)
			}
			for _, l := range page.Tools {
				if all, err = s.add(all, l); err != nil {
					return err
				}
			}
			switch cursor = page.NextCursor; {
			case cursor == "":
				s.tools.Store(&all)
				return nil
			case seen[cursor]:
				return errors.New("its list of tools has no end")
			}
			seen[cursor] = true
		}
	})
	if refusal := (*jsonrpc.Error)(nil); errors.As(err, &refusal) {
		err = fmt.Errorf("MCP server %s: %s", s.Name, s.hide(err.Error()))
	}
	return err
}

// add adds a tool of a server.
func (s *server) add(all []tool, l *sdk.Tool) ([]tool, error) {
	schema, err := json.Marshal(l.InputSchema)
	var object struct{ Type string }
	switch {
	case err != nil || json.Unmarshal(schema, &object) != nil || object.Type != "object":
		return nil, fmt.Errorf("the arguments of tool %.64q are no object", l.Name)
	case l.Name == "" || len(l.Name) > 128 || strings.ContainsAny(l.Name, ","):
		return nil, fmt.Errorf("a tool is named %.200q", l.Name)
	case len(schema)+len(l.Description) > maxTool:
		return nil, fmt.Errorf("the description of tool %s has more than %d bytes", l.Name, maxTool)
	case slices.ContainsFunc(all, func(other tool) bool { return other.name == l.Name }):
		return nil, fmt.Errorf("it has two tools named %s", l.Name)
	}
	return append(all, tool{karat.Tool{Name: l.Name, Description: l.Description, Parameters: schema}, s, l.Name}), nil
}

// rename gives each tool a unique name for chat templates: with the server's name where several servers have a tool of
// the same name.
func (t *Tools) rename() {
	var all []tool
	for _, s := range t.servers {
		all = append(all, *cmp.Or(s.tools.Load(), &[]tool{})...)
	}
	count, taken := map[string]int{}, map[string]bool{}
	for i := range all {
		count[plain(all[i].name)]++
	}
	for i := range all {
		k := &all[i]
		name := plain(k.name)
		if count[name] > 1 {
			name = plain(k.of.Name) + "__" + name
		}
		for base, n := name, 2; taken[name]; n++ {
			name = fmt.Sprintf("%s_%d", base, n)
		}
		taken[name] = true
		k.Name = name
	}
	t.tools.Store(&all)
}

// plain returns a name of letters, digits, _ and -.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// knows reports whether an entry of Options.Allow is of a server or a tool.
func (t *Tools) knows(entry string) bool {
	return entry == "*" || slices.ContainsFunc(t.servers, func(s *server) bool { return s.Name == entry }) ||
		slices.ContainsFunc(*t.tools.Load(), func(k tool) bool { return k.path() == entry })
}

// Paths returns the names of the tools for Options.Allow, in List's order.
func (t *Tools) Paths() (all []string) {
	for _, k := range *t.tools.Load() {
		all = append(all, k.path())
	}
	return all
}

// Close ends the servers and all programs started by servers. Calls on the way become errors.
func (t *Tools) Close() {
	var all sync.WaitGroup
	for _, s := range t.servers {
		all.Go(func() {
			s.turn <- struct{}{}
			defer s.turn.free()
			if s.closed.Store(true); s.p != nil {
				s.p.close()
			}
		})
	}
	all.Wait()
}

// List returns the tools for GenerateOptions.Tools, by server and in the servers' order.
func (t *Tools) List() (all []karat.Tool) {
	for _, k := range *t.tools.Load() {
		all = append(all, k.Tool)
	}
	return all
}

// refused is the result of a call without consent.
const refused = "error: the user has refused this call"

// Call asks for consent, calls a tool and returns the result. A failure within the tool, or a refusal, is a result for
// the model to read. An error is a call without an answer: the server failed, or ctx has ended.
func (t *Tools) Call(ctx context.Context, c karat.ToolCall) (karat.ToolResult, error) {
	r := karat.ToolResult{ID: c.ID, Name: c.Name}
	tools := *t.tools.Load()
	i := slices.IndexFunc(tools, func(k tool) bool { return k.Name == c.Name })
	if i < 0 {
		r.Content = "error: there is no such tool"
		return r, nil
	}
	k := &tools[i]
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	if !bytes.HasPrefix(bytes.TrimLeft(arguments, " \t\r\n"), []byte("{")) || !json.Valid(arguments) {
		r.Content = "error: the arguments are no JSON object"
		return r, nil
	}
	switch ok, err := t.consent(ctx, k, arguments); {
	case err != nil:
		return r, err
	case !ok:
		r.Content = refused
		return r, nil
	}
	var result *sdk.CallToolResult
	err := k.of.within(ctx, k.name, func(ctx context.Context, s *sdk.ClientSession) (err error) {
		result, err = s.CallTool(ctx, &sdk.CallToolParams{Name: k.name, Arguments: arguments})
		return err
	})
	if refusal := (*jsonrpc.Error)(nil); errors.As(err, &refusal) {
		r.Content = cut("error: " + k.of.hide(refusal.Message))
		return r, nil
	}
	if err != nil {
		return r, err
	}
	t.read(&r, result)
	return r, nil
}

// consent reports whether a call is allowed.
func (t *Tools) consent(ctx context.Context, k *tool, arguments json.RawMessage) (bool, error) {
	if err := t.asking.take(ctx); err != nil {
		return false, err
	}
	defer t.asking.free()
	said := k.Description + string(k.Parameters)
	before, ok := t.always[k.path()]
	if ok && before == said || t.allowed["*"] || t.allowed[k.of.Name] || t.allowed[k.path()] {
		return true, nil
	}
	if t.o.Consent == nil {
		return false, nil
	}
	answer, err := t.o.Consent(ctx, Call{k.of.Name, k.name, k.Description, arguments})
	if answer == Always && err == nil {
		t.always[k.path()] = said
	}
	return answer != Refuse, err
}

// read makes a server's result a result for the model.
func (t *Tools) read(r *karat.ToolResult, from *sdk.CallToolResult) {
	var parts []string
	for _, c := range from.Content {
		switch c := c.(type) {
		case *sdk.TextContent:
			parts = append(parts, c.Text)
		case *sdk.ImageContent:
			if t.o.Pictures != nil && t.o.Pictures() {
				r.Images = append(r.Images, karat.Image{Data: c.Data})
				continue
			}
			parts = append(parts, "[a picture, which this model cannot see]")
		case *sdk.EmbeddedResource:
			if c.Resource != nil && c.Resource.Text != "" {
				parts = append(parts, c.Resource.Text)
				continue
			}
			parts = append(parts, "[a resource that is no text]")
		case *sdk.ResourceLink:
			parts = append(parts, c.URI)
		default:
			parts = append(parts, "[a result that is no text]")
		}
	}
	if len(parts)+len(r.Images) == 0 && from.StructuredContent != nil {
		if b, err := json.Marshal(from.StructuredContent); err == nil {
			parts = append(parts, string(b))
		}
	}
	r.Content = strings.Join(parts, "\n")
	if from.IsError {
		r.Content = "error: " + r.Content
	}
	r.Content = cut(r.Content)
}

// cut bounds a result, and says so.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= maxResult {
		return s
	}
	n := maxResult
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s\n[cut: the first %d of %d bytes]", s[:n], n, len(s))
}

package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	servers []*process
	tools   []tool

	asking  sync.Mutex // for a single question at a time
	allowed map[string]bool
}

// tool is a tool with a name for the model.
type tool struct {
	karat.Tool
	of   *process
	name string // by the server
}

func (t *tool) path() string { return t.of.Name + "/" + t.name }

// Start runs the servers, at the same time, and lists the tools. After an error no server runs.
func Start(ctx context.Context, servers []Server, o Options) (*Tools, error) {
	t := &Tools{o: o, servers: make([]*process, len(servers)), allowed: map[string]bool{}}
	failed, listed := make([]error, len(servers)), make([][]*sdk.Tool, len(servers))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			p, err := start(ctx, s)
			if err == nil {
				t.servers[i] = p
				listed[i], err = p.list(ctx)
			}
			if failed[i] = err; err != nil {
				cancel() // the others need not start
			}
		})
	}
	all.Wait()
	err := first(failed)
	for i := range servers {
		for _, l := range listed[i] {
			if err == nil {
				err = t.add(t.servers[i], l)
			}
		}
	}
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
	t.rename()
	return t, nil
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
func (p *process) list(ctx context.Context) (all []*sdk.Tool, err error) {
	err = p.within(ctx, "list of tools", func(ctx context.Context) error {
		seen := map[string]bool{}
		for cursor := ""; ; {
			page, err := p.session.ListTools(ctx, &sdk.ListToolsParams{Cursor: cursor})
			if err != nil {
				return err
			}
			all, cursor = append(all, page.Tools...), page.NextCursor
			switch {
			case len(all) > maxTools:
				return fmt.Errorf("it has more than %d tools", maxTools)
			case cursor == "":
				return nil
			case seen[cursor]:
				return errors.New("its list of tools has no end")
			}
			seen[cursor] = true
		}
	})
	if refusal := (*jsonrpc.Error)(nil); errors.As(err, &refusal) {
		err = p.error(err)
	}
	return all, err
}

// add adds a tool of a server.
func (t *Tools) add(p *process, l *sdk.Tool) error {
	schema, err := json.Marshal(l.InputSchema)
	k := tool{karat.Tool{Name: l.Name, Description: l.Description, Parameters: schema}, p, l.Name}
	var object struct{ Type string }
	switch {
	case err != nil || json.Unmarshal(schema, &object) != nil || object.Type != "object":
		err = fmt.Errorf("the arguments of tool %.64q are no object", l.Name)
	case l.Name == "" || len(l.Name) > 128 || strings.ContainsAny(l.Name, ","):
		err = fmt.Errorf("a tool is named %.200q", l.Name)
	case len(schema)+len(l.Description) > maxTool:
		err = fmt.Errorf("the description of tool %s has more than %d bytes", l.Name, maxTool)
	case slices.ContainsFunc(t.tools, func(other tool) bool { return other.of == p && other.name == l.Name }):
		err = fmt.Errorf("it has two tools named %s", l.Name)
	default:
		t.tools = append(t.tools, k)
		return nil
	}
	return p.error(err)
}

// rename gives each tool a unique name for chat templates: with the server's name where several servers have a tool of
// the same name.
func (t *Tools) rename() {
	count, taken := map[string]int{}, map[string]bool{}
	for i := range t.tools {
		count[plain(t.tools[i].name)]++
	}
	for i := range t.tools {
		k := &t.tools[i]
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
	return entry == "*" || slices.ContainsFunc(t.servers, func(p *process) bool { return p.Name == entry }) ||
		slices.ContainsFunc(t.tools, func(k tool) bool { return k.path() == entry })
}

// Paths returns the names of the tools for Options.Allow, in List's order.
func (t *Tools) Paths() (all []string) {
	for i := range t.tools {
		all = append(all, t.tools[i].path())
	}
	return all
}

// Close ends the servers and all programs started by servers. Calls on the way become errors.
func (t *Tools) Close() {
	var all sync.WaitGroup
	for _, p := range t.servers {
		if p != nil {
			all.Go(p.close)
		}
	}
	all.Wait()
}

// List returns the tools for GenerateOptions.Tools, by server and in the servers' order.
func (t *Tools) List() (all []karat.Tool) {
	for i := range t.tools {
		all = append(all, t.tools[i].Tool)
	}
	return all
}

// refused is the result of a call without consent.
const refused = "error: the user has refused this call"

// Call asks for consent, calls a tool and returns the result. A failure within the tool, or a refusal, is a result for
// the model to read. An error is a call without an answer: the server failed, or ctx has ended.
func (t *Tools) Call(ctx context.Context, c karat.ToolCall) (karat.ToolResult, error) {
	r := karat.ToolResult{ID: c.ID, Name: c.Name}
	i := slices.IndexFunc(t.tools, func(k tool) bool { return k.Name == c.Name })
	if i < 0 {
		r.Content = "error: there is no such tool"
		return r, nil
	}
	k := &t.tools[i]
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
	err := k.of.within(ctx, k.name, func(ctx context.Context) (err error) {
		result, err = k.of.session.CallTool(ctx, &sdk.CallToolParams{Name: k.name, Arguments: arguments})
		return err
	})
	if refusal := (*jsonrpc.Error)(nil); errors.As(err, &refusal) {
		r.Content = cut("error: " + refusal.Message)
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
	t.asking.Lock()
	defer t.asking.Unlock()
	if t.allowed["*"] || t.allowed[k.of.Name] || t.allowed[k.path()] {
		return true, nil
	}
	if t.o.Consent == nil {
		return false, nil
	}
	answer, err := t.o.Consent(ctx, Call{k.of.Name, k.name, k.Description, arguments})
	if answer == Always && err == nil {
		t.allowed[k.path()] = true
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

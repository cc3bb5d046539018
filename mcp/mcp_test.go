package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// As is the variable by which this test's program is a server, and of which kind.
const as = "KARAT_MCP_AS"

func TestMain(m *testing.M) {
	if kind, is := os.LookupEnv(as); is {
		serve(kind)
		return
	}
	os.Exit(m.Run())
}

// like returns a server of a kind.
func like(t testing.TB, kind string, env ...string) Server {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Name: "one", Command: self, Env: map[string]string{as: kind}}
	for i := 0; i < len(env); i += 2 {
		s.Env[env[i]] = env[i+1]
	}
	return s
}

// serve is a server. Kinds that are not good speak the protocol by hand.
func serve(kind string) {
	switch kind {
	case "good":
		s := sdk.NewServer(&sdk.Implementation{Name: "good", Version: "1"}, nil)
		type in struct {
			Text string `json:"text"`
		}
		tool := func(name string, do func(ctx context.Context, text string) (*sdk.CallToolResult, error)) {
			sdk.AddTool(s, &sdk.Tool{Name: name, Description: "Does " + name}, func(ctx context.Context, _ *sdk.CallToolRequest, in in) (*sdk.CallToolResult, any, error) {
				r, err := do(ctx, in.Text)
				return r, nil, err
			})
		}
		text := func(s string) *sdk.CallToolResult {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
		}
		tool("echo", func(_ context.Context, s string) (*sdk.CallToolResult, error) { return text(s), nil })
		tool("fail", func(_ context.Context, s string) (*sdk.CallToolResult, error) { return nil, errors.New("no " + s) })
		tool("large", func(context.Context, string) (*sdk.CallToolResult, error) {
			return text(strings.Repeat("é", maxResult)), nil
		})
		tool("env", func(_ context.Context, s string) (*sdk.CallToolResult, error) { return text(os.Getenv(s)), nil })
		tool("die", func(context.Context, string) (*sdk.CallToolResult, error) {
			fmt.Fprintln(os.Stderr, "I \x1b[1mam\n gone")
			os.Exit(3)
			return nil, nil
		})
		tool("hang", func(context.Context, string) (*sdk.CallToolResult, error) { time.Sleep(time.Hour); return nil, nil })
		tool("wait", func(ctx context.Context, _ string) (*sdk.CallToolResult, error) { <-ctx.Done(); return nil, ctx.Err() })
		tool("see", func(context.Context, string) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{MIMEType: "image/png", Data: []byte("png")}, &sdk.ResourceLink{URI: "file:///a"},
				&sdk.AudioContent{MIMEType: "audio/wav"}}}, nil
		})
		tool("child", func(_ context.Context, s string) (*sdk.CallToolResult, error) {
			c := exec.Command(os.Args[0])
			c.Env, c.Stdout, c.Stderr = []string{as + "=sleep"}, os.Stdout, os.Stderr
			return text(""), errors.Join(c.Start(), os.WriteFile(s, []byte(strconv.Itoa(c.Process.Pid)), 0o600))
		})
		_ = s.Run(context.Background(), &sdk.StdioTransport{})
		return
	case "strict", "modern": // as servers before and after the protocol's change of 2026: the one ends at another first request
		in := bufio.NewScanner(os.Stdin)
		if in.Scan(); strings.Contains(in.Text(), `"initialize"`) != (kind == "strict") {
			if kind == "strict" {
				os.Exit(5)
			}
			fmt.Println(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`)
			return
		}
		fmt.Println(map[string]string{"strict": `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`,
			"modern": `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`}[kind])
		for in.Scan() {
			if strings.Contains(in.Text(), `"tools/list"`) {
				fmt.Println(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[{"name":"a","inputSchema":{"type":"object"}}]}}`)
			}
		}
		return
	case "sleep", "silent":
		time.Sleep(time.Hour)
	case "dead":
		fmt.Fprintln(os.Stderr, "no key")
		os.Exit(4)
	case "noise":
		fmt.Println("Welcome to my server!")
		time.Sleep(time.Hour)
	case "leaving":
		fmt.Println("Bye")
		os.Exit(1)
	case "line":
		for {
			fmt.Print(strings.Repeat(" ", 1<<20))
		}
	case "flood":
		for {
			fmt.Println(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("a", 1<<16) + `"}}`)
		}
	}
	tools := map[string]string{"endless": `{"tools":[],"nextCursor":"%d"}`, "circle": `{"tools":[],"nextCursor":"a"}`,
		"many":  `{"tools":[` + strings.TrimSuffix(strings.Repeat(`{"name":"a","inputSchema":{"type":"object"}},`, maxTools+1), ",") + `]}`,
		"twice": `{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"name":"a","inputSchema":{"type":"object"}}]}`,
		"list":  `{"tools":[{"name":"a","inputSchema":{"type":"array"}}]}`, "unnamed": `{"tools":[{"name":"","inputSchema":{"type":"object"}}]}`,
		"wide":  `{"tools":[{"name":"a","description":"` + strings.Repeat("a", maxTool) + `","inputSchema":{"type":"object"}}]}`,
		"wrong": `{"tools":7}`, "other": `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`, "deaf": `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`}[kind]
	pages := 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(in.Bytes(), &r) != nil || r.ID == nil {
			continue
		}
		switch r.Method {
		case "initialize":
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`+"\n", r.ID)
		case "tools/list":
			if pages++; kind == "endless" {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":`+tools+"}\n", r.ID, pages)
				continue
			}
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, tools)
			if kind == "deaf" { // it reads no more
				time.Sleep(time.Hour)
			}
		case "tools/call": // an answer to another call, and then to none
			fmt.Println(`{"jsonrpc":"2.0","id":"of another","result":{"content":[{"type":"text","text":"mine"}]}}`)
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"content":7}}`+"\n", r.ID)
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", r.ID)
		}
	}
}

func begin(t *testing.T, s []Server, o Options) *Tools {
	all, err := Start(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Close)
	return all
}

func call(t *testing.T, all *Tools, name, text string) (karat.ToolResult, error) {
	b, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	return all.Call(t.Context(), karat.ToolCall{ID: "7", Name: name, Arguments: b})
}

func TestResults(t *testing.T) {
	t.Setenv("KARAT_SECRET", "of mine")
	all := begin(t, []Server{like(t, "good", "GIVEN", "yes")}, Options{Allow: []string{"one"}})
	names := []string{}
	for _, k := range all.List() {
		names = append(names, k.Name)
		if k.Description != "Does "+k.Name || !json.Valid(k.Parameters) {
			t.Errorf("tool %+v", k)
		}
	}
	if !slices.Contains(names, "echo") || len(names) != 9 {
		t.Errorf("the tools are %v", names)
	}
	for _, c := range [][3]string{{"echo", "hi\n", "hi\n"}, {"fail", "luck", "error: no luck"}, {"env", "GIVEN", "yes"}, {"env", "KARAT_SECRET", ""},
		{"see", "", "[a picture, which this model cannot see]\nfile:///a\n[a result that is no text]"}, {"none", "", "error: there is no such tool"}} {
		if r, err := call(t, all, c[0], c[1]); err != nil || r.Content != c[2] || r.ID != "7" || r.Name != c[0] {
			t.Errorf("%v: %+v, %v", c, r, err)
		}
	}
	if r, err := call(t, all, "large", ""); err != nil || !strings.HasSuffix(r.Content, fmt.Sprintf("é\n[cut: the first %d of %d bytes]", maxResult, 2*maxResult)) {
		t.Errorf("large: %.40q, %v", r.Content, err)
	}
	for arguments, want := range map[string]string{`{"text": 7}`: "error: ", `[1]`: "error: the arguments are no JSON object", `{`: "error: the arguments are no JSON object"} {
		r, err := all.Call(t.Context(), karat.ToolCall{Name: "echo", Arguments: json.RawMessage(arguments)})
		if err != nil || !strings.HasPrefix(r.Content, want) {
			t.Errorf("%s: %+v, %v", arguments, r, err)
		}
	}
	seeing := begin(t, []Server{like(t, "good")}, Options{Allow: []string{"*"}, Pictures: func() bool { return true }})
	if r, err := call(t, seeing, "see", ""); err != nil || len(r.Images) != 1 || string(r.Images[0].Data) != "png" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestConsent: each call is asked for, until an answer holds for later ones; nobody to ask is a refusal.
func TestConsent(t *testing.T) {
	answer, asked := Refuse, []string{}
	ask := func(_ context.Context, c Call) (Consent, error) {
		asked = append(asked, fmt.Sprintf("%s/%s %s (%s)", c.Server, c.Tool, c.Arguments, c.Description))
		return answer, nil
	}
	all := begin(t, []Server{like(t, "good")}, Options{Consent: ask, Allow: []string{"one/env"}})
	for i, step := range []struct {
		tool    string
		answer  Consent
		want    string
		silence bool
	}{{"echo", Refuse, refused, false}, {"echo", Once, "a", false}, {"echo", Refuse, refused, false}, {"echo", Always, "a", false}, {"echo", Refuse, "a", true},
		{"fail", Refuse, refused, false}, {"env", Refuse, "", true}} {
		answer, asked = step.answer, nil
		r, err := call(t, all, step.tool, "a")
		if err != nil || r.Content != step.want || (asked == nil) != step.silence {
			t.Errorf("step %d: %+v, %v, asked %q", i, r, err, asked)
		}
		if asked != nil && asked[0] != fmt.Sprintf(`one/%s {"text":"a"} (Does %s)`, step.tool, step.tool) {
			t.Errorf("step %d: asked %q", i, asked)
		}
	}
	if r, err := call(t, begin(t, []Server{like(t, "good")}, Options{}), "echo", "a"); err != nil || r.Content != refused {
		t.Errorf("nobody is asked: %+v, %v", r, err)
	}
	if _, err := Start(t.Context(), []Server{like(t, "good")}, Options{Allow: []string{"one/ehco"}}); err == nil || !strings.Contains(err.Error(), `"one/ehco" is allowed`) {
		t.Errorf("an unknown tool is allowed: %v", err)
	}
}

// TestNames: a name that two servers have goes with the server's, and each name is one that templates take.
func TestNames(t *testing.T) {
	a, b, c := like(t, "good"), like(t, "good"), like(t, "other")
	b.Name, c.Name = "the.two", "three"
	all := begin(t, []Server{a, b, c}, Options{Allow: []string{"the.two"}})
	names := []string{}
	for _, k := range all.List() {
		names = append(names, k.Name)
	}
	for _, want := range []string{"one__echo", "the_two__echo", "a"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	if r, err := call(t, all, "the_two__echo", "hi"); err != nil || r.Content != "hi" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := call(t, all, "one__echo", "hi"); err != nil || r.Content != refused {
		t.Errorf("another server's consent counts: %+v, %v", r, err)
	}
}

// TestStart: a server that is no server is an error with its name, and nothing is left.
func TestStart(t *testing.T) {
	for kind, want := range map[string]string{"dead": "MCP server one: the program ended: exit status 4; its last words: no key",
		"noise": `MCP server one: it printed "Welcome to my server!" where only`, "leaving": `MCP server one: it printed "Bye" where`, "line": "MCP server one: it sent a message of more than 16 MiB", "flood": "MCP server one: it sent more than 64 MiB without being asked",
		"endless": "no answer in", "circle": "has no end", "many": "more than 256 tools", "twice": "two tools named a", "list": "are no object",
		"unnamed": "a tool is named", "wide": "has more than 65536 bytes", "wrong": "MCP server one: calling \"tools/list\": json: ", "silent": "start: no answer in"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := like(t, kind)
			if strings.HasPrefix(want, "no answer") || strings.HasPrefix(want, "start: no") {
				s.Timeout = time.Second
			}
			two := like(t, "good")
			two.Name = "two"
			all, err := Start(t.Context(), []Server{s, two}, Options{})
			if err == nil {
				all.Close()
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		})
	}
	lost := like(t, "good")
	lost.Dir = "/nowhere/at all"
	if _, err := Start(t.Context(), []Server{lost}, Options{}); err == nil || !strings.HasPrefix(err.Error(), "MCP server one: the working folder /nowhere/at all: ") {
		t.Errorf("no folder: %v", err)
	}
	for name, arg := range map[string]string{"true": "", "cat": "-"} { // no reader of requests; an echo
		if path, err := exec.LookPath(name); err == nil {
			for range 20 { // a broken pipe depends on who is faster
				_, err := Start(t.Context(), []Server{{Name: "one", Command: path, Args: []string{arg}}}, Options{})
				if want := map[string]string{"true": "the program ended", "cat": `calling "initialize"`}[name]; err == nil ||
					errors.Unwrap(err) != nil || !strings.HasPrefix(err.Error(), "MCP server one: "+want) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if _, err := Start(t.Context(), []Server{{Name: "one", Command: "/nowhere/at all"}}, Options{}); err == nil || !strings.HasPrefix(err.Error(), "MCP server one: ") {
		t.Errorf("no program: %v", err)
	}
}

// TestAges: a server of the protocol before its change of 2026 is greeted as it knows, and so is one behind it.
func TestAges(t *testing.T) {
	for _, kind := range []string{"strict", "modern"} {
		if all := begin(t, []Server{like(t, kind)}, Options{}); len(all.List()) != 1 {
			t.Errorf("%s: the tools are %v", kind, all.List())
		}
	}
}

// TestEnds: a server that fails in a call is an error of this call and of later ones, and another server goes on.
func TestEnds(t *testing.T) {
	for tool, want := range map[string]string{"die": "MCP server one: the program ended: exit status 3; its last words: I \x1b[1mam gone", "hang": "MCP server one: hang: no answer in 1s"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			b := like(t, "good")
			b.Name = "two"
			all := begin(t, []Server{like(t, "good"), b}, Options{Allow: []string{"*"}})
			if tool == "hang" {
				all.servers[0].Timeout = time.Second
			}
			if _, err := call(t, all, "one__"+tool, ""); err == nil || err.Error() != want {
				t.Errorf("want %q, got %v", want, err)
			}
			if _, err := call(t, all, "one__echo", ""); err == nil || !strings.HasPrefix(err.Error(), "MCP server one: ") {
				t.Errorf("afterwards: %v", err)
			}
			if r, err := call(t, all, "two__echo", "hi"); err != nil || r.Content != "hi" {
				t.Errorf("the other: %+v, %v", r, err)
			}
		})
	}
	deaf := begin(t, []Server{like(t, "deaf")}, Options{Allow: []string{"*"}})
	deaf.servers[0].Timeout = time.Second
	if _, err := call(t, deaf, "a", strings.Repeat("a", 1<<20)); err == nil || err.Error() != "MCP server one: a: no answer in 1s" {
		t.Errorf("deaf: %v", err)
	}
	lies := begin(t, []Server{like(t, "other")}, Options{Allow: []string{"*"}})
	if r, err := call(t, lies, "a", ""); err == nil || !strings.HasPrefix(err.Error(), "MCP server one: ") {
		t.Errorf("a lie: %+v, %v", r, err)
	}
}

// TestCancel: a context ends a call, and the server answers the next one.
func TestCancel(t *testing.T) {
	all := begin(t, []Server{like(t, "good")}, Options{Allow: []string{"*"}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := all.Call(ctx, karat.ToolCall{Name: "wait", Arguments: json.RawMessage(`{"text": ""}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if r, err := call(t, all, "echo", "hi"); err != nil || r.Content != "hi" {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

func TestReadConfig(t *testing.T) {
	got, err := ReadConfig(strings.NewReader(`{"theme": "dark", "mcpServers": {"b": {"command": "npx", "args": ["-y", "x"], "env": {"K": "v"}, "timeout": 2.5, "cwd": "/", "alwaysAllow": ["x"]},
		"a": {"type": "stdio", "command": "a"}, "c": {"command": "", "disabled": true}}}`))
	want := []Server{{Name: "a", Command: "a"}, {Name: "b", Command: "npx", Args: []string{"-y", "x"}, Env: map[string]string{"K": "v"}, Dir: "/", Timeout: 2500 * time.Millisecond}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	t.Setenv("KARAT_A", "a")
	t.Setenv("KARAT_EMPTY", "")
	for text, want := range map[string]Server{`{"servers": {"a": {"command": "${env:KARAT_A}"}}, "inputs": []}`: {Command: "a"},
		`{"mcpServers": {"a": {"type": "http", "url": "https://${KARAT_A}.test/mcp", "headers": {"Authorization": "Bearer ${KARAT_A}"}}}}`:                                                                   {URL: "https://a.test/mcp", Type: "http", Headers: map[string]string{"Authorization": "Bearer a"}},
		`{"mcpServers": {"a": {"url": "http://${KARAT_B:-b:1}/${KARAT_EMPTY:-b}", "type": "streamable-http"}}}`:                                                                                              {URL: "http://b:1/", Type: "http"},
		`{"servers": {"a": {"type": "sse", "url": "http://x", "headers": {"k": "${input:karat-a}"}}}}`:                                                                                                       {URL: "http://x", Type: "sse", Headers: map[string]string{"k": "a"}},
		"{// \"Zed\"\n\"context_servers\": {\"a\": {\"source\": \"custom\", \"command\": \"//a,\", \"args\": [\"}$1 ${2}\",],}, /* ext */ \"b\": {\"source\": \"extension\"}, \"c\": {\"enabled\": false}}}": {Command: "//a,", Args: []string{"}$1 ${2}"}},
		"\ufeff" + `{"servers": {"a": {"command": "a", "args": ["${x%y}"]}}}`:                                                                                                                                {Command: "a", Args: []string{"${x%y}"}},
		`{"mcpServers": {"a": {"command": "a", "env": {"K": "${KARAT_A}${KARAT_A}"}, "args": ["--k=${KARAT_A}"]}}}`:                                                                                          {Command: "a", Args: []string{"--k=a"}, Env: map[string]string{"K": "aa"}}} {
		want.Name = "a"
		if got, err := ReadConfig(strings.NewReader(text)); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{``: "JSON", `{}`: "mcpServers", `{"mcpServers": {"a": {"url": "x"}}}`: "begins with https://", `{"mcpServers": {"a": {"type": "sse", "command": "a"}}}`: "has no url", `{"mcpServers": {"a": {"type": "ws", "url": "ws://x"}}}`: "want stdio, http or sse",
		`{"mcpServers": {"a": {"url": "http://x", "headers": {"k": "${KARAT_NONE}"}}}}`: `server "a": ${KARAT_NONE}: the environment has no variable KARAT_NONE`, `{"mcpServers": {"a": {"command": "a", "envFile": ".env"}}}`: "envFile",
		`{"mcpServers": {"a": {"command": "a", "cwd": "${workspaceFolder}"}}}`: "workspaceFolder", `{"mcpServers": {"a": {"command": "a", "url": "http://x"}}}`: "one of them",
		`{"servers": {"a": {"url": "http://x/${KARAT_A"}}}`: "want ${NAME}", `{"servers": {"a": {"url": "http://x", "headers": {"k": "${config:k}"}}}}`: "want ${NAME}",
		`{"servers": {"a": {"command": "a", "args": ["${KARAT_NONE:-${KARAT_A}}"]}}}`: "a variable within a variable",
		`{"mcpServers": {"a": {}}}`: `"a" has no command`, `{"mcpServers": {"a/b": {"command": "a"}}}`: "the name", `{"mcpServers": {"a": {"command": "a", "timeout": -1}}}`: "timeout",
		`{"mcpServers": {"a": {"command": ["a"]}}}`: `mcpServers.a.command: ["a"] is no string`, strings.Repeat(" ", maxConfig+1): "more than", `[]`: "no object", `{"mcpServers": {"*": {"command": "a"}}}`: "the name",
		`{"mcpServers": {"a": {"command": "a"}}, "servers": {}}`: "one of them", `{"servers": {"a": {"command": "a", "env": {"K": "${input:key}"}}}}`: "${input:key}: the environment has no variable KEY"} {
		if _, err := ReadConfig(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: want %q, got %v", text, want, err)
		}
	}
}

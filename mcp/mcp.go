// Package mcp lets a model call the tools of servers of the Model Context Protocol. Start runs the servers' programs,
// and Close ends the programs. Each call needs consent.
//
//	servers, err := mcp.ReadConfig(file)
//	t, err := mcp.Start(ctx, servers, mcp.Options{Allow: []string{"files/read"}})
//	defer t.Close()
//	for part, err := range t.ChatParts(ctx, session, &talk, karat.GenerateOptions{}) { ... }
//
// No server is trusted. A server without an answer in time, a server that ends, sends too much or breaks the protocol
// is an error with the server's name, and no longer runs.
//
// Files: chat.go (the loop), tools.go (names, consent, calls), process.go (a server's program), mcp.go (configuration).
package mcp

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/jsonerr"
)

// Server is a program to run.
type Server struct {
	Name    string // for Options.Allow and errors
	Command string // looked up in PATH
	Args    []string
	Env     map[string]string // beside PATH, HOME and the like: other variables are not handed on
	Dir     string            // working folder; "" is the caller's
	Timeout time.Duration     // for the start and for each call; 0 is DefaultTimeout
}

// DefaultTimeout is the time for a server's start, and for each call.
const DefaultTimeout = time.Minute

// maxConfig bounds a configuration, in bytes.
const maxConfig = 1 << 20

// editors matches the variables by which VS Code and editors like it write places and secrets.
var editors = regexp.MustCompile(`\$\{(input:|env:|workspaceFolder|userHome)[^}]*\}`)

// ReadConfig reads servers in the form of Claude Desktop, Cursor and Cline, {"mcpServers": {NAME: {"command", "args",
// "env"}}}, or of VS Code, with "servers". The result is sorted by name. "disabled" leaves a server out, "timeout" is
// in seconds, and "cwd" is the working folder. Consent within the file, as by "alwaysAllow", has no effect.
func ReadConfig(r io.Reader) ([]Server, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxConfig {
		return nil, fmt.Errorf("more than %d bytes", maxConfig)
	}
	type entry struct {
		Type, Command, URL, ServerURL, Cwd string
		Args                               []string
		Env                                map[string]string
		Timeout                            float64
		Disabled                           bool
	}
	var file struct {
		MCPServers map[string]entry `json:"mcpServers"`
		Servers    map[string]entry `json:"servers"`
	}
	if err := jsonerr.Unmarshal(b, &file, ""); err != nil {
		return nil, jsonerr.Plain(err, "")
	}
	all := file.MCPServers
	if all != nil && file.Servers != nil {
		return nil, errors.New("it has mcpServers and servers: want one of them")
	}
	if all == nil {
		all = file.Servers
	}
	if all == nil {
		return nil, errors.New(`want {"mcpServers": {NAME: {"command": ..., "args": [...]}}}`)
	}
	servers := []Server{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		switch {
		case e.Disabled:
			continue
		case name == "" || strings.ContainsAny(name, "/,*"): // they mean more in Options.Allow
			return nil, fmt.Errorf("the name %q of a server: want one without /, * and comma", name)
		case e.URL != "" || e.ServerURL != "" || e.Type != "" && e.Type != "stdio":
			return nil, fmt.Errorf("server %q is reached over HTTP: want one with a command", name)
		case e.Command == "":
			return nil, fmt.Errorf("server %q has no command", name)
		case e.Timeout < 0 || e.Timeout > 1e6:
			return nil, fmt.Errorf("server %q: timeout %v: want seconds, 0 to 1000000", name, e.Timeout)
		}
		for _, text := range slices.Concat([]string{e.Command, e.Cwd}, e.Args, slices.Collect(maps.Values(e.Env))) {
			if v := editors.FindString(text); v != "" {
				return nil, fmt.Errorf("server %q: %s is a variable of an editor: want its value", name, v)
			}
		}
		servers = append(servers, Server{Name: name, Command: e.Command, Args: e.Args, Env: e.Env, Dir: e.Cwd,
			Timeout: time.Duration(e.Timeout * float64(time.Second))})
	}
	return servers, nil
}

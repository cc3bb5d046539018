// Package mcp lets a model call the tools of servers of the Model Context Protocol. Start runs the servers' programs,
// or connects to the servers' addresses, and Close ends both. Each call needs consent.
//
//	servers, err := mcp.ReadConfig(file)
//	t, err := mcp.Start(ctx, servers, mcp.Options{Allow: []string{"files/read"}})
//	defer t.Close()
//	for part, err := range t.ChatParts(ctx, session, &talk, karat.GenerateOptions{}) { ... }
//
// No server is trusted. A server without an answer in time, a server that ends, sends too much or breaks the protocol
// is an error with the server's name. Its program no longer runs. A server at an address may answer a later call.
//
// Files: chat.go (the loop), tools.go (names, consent, calls), process.go (connections, and a server's program),
// remote.go (requests to a server's address), mcp.go (configuration).
package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/jsonerr"
)

// Server is a program to run, or the address of a server.
type Server struct {
	Name    string // for Options.Allow and errors
	Command string // looked up in PATH
	Args    []string
	Env     map[string]string // beside PATH, HOME and the like: other variables are not handed on
	Dir     string            // working folder; "" is the caller's

	URL     string            // in place of Command
	Type    string            // how URL is spoken to: "http", "sse" as in 2024, or "" for the one that answers
	Headers map[string]string // sent to URL's host alone

	Timeout time.Duration // for the start and for each call; 0 is DefaultTimeout
}

// check returns an error about what no server can have.
func (s *Server) check() error {
	at, err := url.Parse(s.URL)
	switch {
	case s.Name == "" || strings.ContainsAny(s.Name, "/,*"): // they mean more in Options.Allow
		return fmt.Errorf("the name %q of a server: want one without /, * and comma", s.Name)
	case s.Type != "" && s.Type != "http" && s.Type != "sse":
		return fmt.Errorf("server %q: type %q: want stdio, http or sse", s.Name, s.Type)
	case s.Type != "" && s.URL == "":
		return fmt.Errorf("server %q of type %s has no url", s.Name, s.Type)
	case s.Command == "" && s.URL == "":
		return fmt.Errorf("server %q has no command and no url", s.Name)
	case s.Command != "" && s.URL != "":
		return fmt.Errorf("server %q has a command and a url: want one of them", s.Name)
	case s.URL != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https"):
		return fmt.Errorf("server %q: its url: want one that begins with https:// or http://", s.Name) // untold: a key
	}
	return nil
}

// DefaultTimeout is the time for a server's start, and for each call.
const DefaultTimeout = time.Minute

// maxConfig bounds a configuration, in bytes.
const maxConfig = 1 << 20

// variable matches a variable of the environment as Claude Code writes it, and as VS Code and Cursor do.
var variable = regexp.MustCompile(`\$\{(env:|input:)?([A-Za-z_][\w-]*)(:-[^}]*)?\}`)

// expand replaces the variables of a text. An input, for which an editor asks, is a variable in capitals. A variable
// that is not there is in err, and so is a variable within a variable.
func expand(text *string, err *error) {
	*text = variable.ReplaceAllStringFunc(*text, func(v string) string {
		m := variable.FindStringSubmatch(v)
		if m[1] == "input:" {
			m[2] = strings.ToUpper(strings.ReplaceAll(m[2], "-", "_"))
		}
		value, ok := os.LookupEnv(m[2])
		if strings.Contains(m[3], "${") {
			*err = fmt.Errorf("%s: a variable within a variable is not read", v)
		} else if !ok && m[3] == "" {
			*err = fmt.Errorf("%s: the environment has no variable %s", v, m[2])
		} else if !ok {
			return m[3][len(":-"):]
		}
		return value
	})
}

// remark matches a string and, outside of strings, what editors' files have beside JSON: a comment, a comma at an end.
var remark = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|//[^\n]*|(?s:/\*.*?\*/)|,\s*[}\]]`)

// blank makes spaces of remarks, so that places in errors hold.
func blank(text []byte) []byte {
	return remark.ReplaceAllFunc(text, func(b []byte) []byte {
		switch b[0] {
		case '/':
			return bytes.Repeat([]byte(" "), len(b))
		case ',':
			return append([]byte(" "), b[1:]...)
		}
		return b
	})
}

// ways are the names that configurations have for ways to a server; "" is a program.
var ways = map[string]string{"": "", "stdio": "", "http": "http", "streamablehttp": "http", "sse": "sse"}

// ReadConfig reads servers in the form of Claude, Cursor and Cline, {"mcpServers": {NAME: {"command", "args", "env"}}}
// or {NAME: {"type", "url", "headers"}}, of VS Code, with "servers", or of Zed, with "context_servers". The result is
// sorted by name. "disabled" leaves a server out, "timeout" is in seconds, and "cwd" is the working folder. ${NAME} and
// ${NAME:-DEFAULT} are variables of the environment. Consent within the file, as by "alwaysAllow", has no effect.
func ReadConfig(r io.Reader) ([]Server, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxConfig {
		return nil, fmt.Errorf("more than %d bytes", maxConfig)
	}
	type entry struct {
		Server
		ServerURL, HTTPURL, Cwd, EnvFile, Source string
		Timeout                                  float64
		Disabled                                 bool
		Enabled                                  *bool
	}
	var file struct {
		MCPServers     map[string]entry `json:"mcpServers"`
		Servers        map[string]entry `json:"servers"`
		ContextServers map[string]entry `json:"context_servers"`
	}
	if err := jsonerr.Unmarshal(blank(blank(bytes.TrimPrefix(b, []byte("\ufeff")))), &file, ""); err != nil {
		return nil, jsonerr.Plain(err, "")
	}
	all := map[string]entry(nil)
	for _, of := range []map[string]entry{file.MCPServers, file.Servers, file.ContextServers} {
		if all != nil && of != nil {
			return nil, errors.New("it has two of mcpServers, servers and context_servers: want one of them")
		} else if of != nil {
			all = of
		}
	}
	if all == nil {
		return nil, errors.New(`want {"mcpServers": {NAME: {"command": ..., "args": [...]}}}`)
	}
	servers := []Server{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e := all[name]
		kind, known := ways[strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(e.Type))]
		s := e.Server
		s.Name, s.Dir, s.Type, s.URL = name, e.Cwd, kind, cmp.Or(e.HTTPURL, e.URL, e.ServerURL)
		switch {
		case e.Disabled, e.Enabled != nil && !*e.Enabled, e.Source == "extension": // Zed runs its extensions' servers
			continue
		case !known:
			s.Type = e.Type
		case e.EnvFile != "":
			return nil, fmt.Errorf("server %q: envFile is not read: want the variables in env", name)
		case e.Timeout < 0 || e.Timeout > 1e6:
			return nil, fmt.Errorf("server %q: timeout %v: want seconds, 0 to 1000000", name, e.Timeout)
		}
		s.Timeout = time.Duration(e.Timeout * float64(time.Second))
		for _, v := range append(slices.Collect(maps.Values(s.Headers)), s.URL) { // programs may mean another thing
			if rest := variable.ReplaceAllString(v, ""); strings.Contains(rest, "${") {
				return nil, fmt.Errorf("server %q: its url or a header: want ${NAME} or ${NAME:-TEXT}", name)
			}
		}
		for _, t := range []*string{&s.Command, &s.Dir, &s.URL} {
			expand(t, &err)
		}
		for i := range s.Args {
			expand(&s.Args[i], &err)
		}
		for _, m := range []map[string]string{s.Env, s.Headers} {
			for k, v := range m {
				expand(&v, &err)
				m[k] = v
			}
		}
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", name, err)
		}
		if err := s.check(); err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

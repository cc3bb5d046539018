package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/server"
	"github.com/spf13/cobra"
)

// keyVariable may hold a key, or a text as a file of keys has it.
const keyVariable = "KARAT_API_KEY"

// drainLimit is how long requests under way have to end once the program is told to.
const drainLimit = 30 * time.Second

type serveFlags struct {
	aliases, hosts  []string
	host            string
	port            uint16
	socket          string
	keyFile         string
	noKey           bool
	cert, key       string
	context         int
	budget          size
	parallel, queue int
	quiet           bool
	arithmetic      arithmetic
	lora            adapters
}

func newServeCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve [MODEL...]",
		Short: "Serve models to clients of OpenAI's API, and of others",
		Long: `Serve answers clients of OpenAI's API over HTTP: chat and text completions, streamed or
not, with log-probabilities, seeds and tools, and more that docs/serving.md lists. It prints
its address and a command that asks it something.

The first MODEL is the default of routes that name none. A model's name is that of its file
without .gguf, or its folder's. With several, each --alias is NAME=MODEL's name.

On this machine alone no key is needed. Beyond it, by --host, clients show one: as
"Authorization: Bearer KEY". Keys come from --api-key-file, a line NAME:SECRET for each, or
from the variable KARAT_API_KEY.

Ctrl-C, or SIGTERM, has the requests under way end and takes no others. A second one ends at once.`,
		Example: `  karat serve
  karat serve model.gguf --alias gpt-4o-mini
  karat serve model.gguf --host 0.0.0.0 --api-key-file keys.txt
  karat serve --unix /run/karat.sock model.gguf`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&f.aliases, "alias", nil, "another `name` of the model; may be given again")
	fs.StringVar(&f.host, "host", "127.0.0.1", "`address` to listen on")
	fs.Uint16Var(&f.port, "port", 8080, "`port` to listen on; 0 is any free port")
	fs.Var((*name)(&f.socket), "unix", "Unix `socket` to listen on, instead")
	fs.Var((*name)(&f.keyFile), "api-key-file", "`file` of keys that clients show, NAME:SECRET on a line")
	fs.BoolVar(&f.noKey, "no-api-key", false, "need no key even beyond this machine")
	fs.StringArrayVar(&f.hosts, "allow-host", nil, "`name` that requests may give as their Host; * is any (default: localhost and loopback addresses, any with --host)")
	fs.Var((*name)(&f.cert), "tls-cert", "`file` of the certificate, for https")
	fs.Var((*name)(&f.key), "tls-key", "`file` of its key")
	fs.IntVar(&f.context, "ctx", 0, "most `tokens` of prompt and answer together (default: the model's context length, at most 8192)")
	addBudget(c, &f.budget)
	fs.IntVar(&f.parallel, "parallel", 0, "most `requests` computed at a time (default: as many as --kv-budget holds)")
	fs.IntVar(&f.queue, "max-requests", 256, "most `requests` computed or waiting; more are refused, to be tried again")
	fs.BoolVar(&f.quiet, "quiet", false, "log no requests")
	f.lora.add(c)
	f.arithmetic.add(c, karat.Fast)
	return c
}

// options checks the flags.
func (f *serveFlags) options(c *cobra.Command, args []string) (o karat.Options, err error) {
	if o, err = f.arithmetic.options(); err != nil {
		return o, err
	}
	o.Context, o.KVBudget, o.Parallel, o.Adapters = f.context, int64(f.budget), f.parallel, f.lora
	changed := c.Flags().Changed
	switch {
	case f.parallel < 1 && changed("parallel"):
		return o, usagef("--parallel %d: want 1 or more", f.parallel)
	case f.queue < 1:
		return o, usagef("--max-requests %d: want 1 or more", f.queue)
	case (f.context < 1 || f.context > model.MaxContext) && changed("ctx"):
		return o, usagef("--ctx %d: want 1 to %d", f.context, model.MaxContext)
	case (f.cert == "") != (f.key == ""):
		return o, usagef("--tls-cert and --tls-key go together")
	case f.socket != "" && (changed("host") || changed("port")):
		return o, usagef("--unix and --host or --port are of different kinds")
	}
	names := map[string]string{}
	for _, a := range args {
		if a == "" {
			return o, usagef("MODEL is empty; leave it out to use the embedded demo")
		}
		if other, twice := names[modelName(a)]; twice {
			return o, usagef("%s and %s would both be named %q: give a model once, or rename one of the files", other, a, modelName(a))
		}
		names[modelName(a)] = a
	}
	return o, nil
}

// keys are those that clients show.
func (f *serveFlags) keys() (keys []server.Key, err error) {
	if f.keyFile != "" {
		if keys, err = server.ReadKeys(f.keyFile); err != nil {
			return nil, err
		}
	}
	if text := os.Getenv(keyVariable); text != "" {
		more, err := server.ParseKeys(text, keyVariable)
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
	}
	switch {
	case f.noKey && len(keys) > 0:
		return nil, usagef("--no-api-key, but there are keys")
	case !f.noKey && len(keys) == 0 && f.socket == "" && !loopback(f.host):
		return nil, usagef("--host %s can be reached from elsewhere: give --api-key-file, or --no-api-key if a key is not wanted", f.host)
	}
	return keys, nil
}

// loopback reports whether an address is of this machine alone.
func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (f *serveFlags) run(c *cobra.Command, args []string) error {
	o, err := f.options(c, args)
	if err != nil {
		return err
	}
	keys, err := f.keys()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if err := f.serve(ctx, c, args, o, keys); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return failure{statusInterrupted, errors.New("interrupted")}
		}
		return err
	}
	return nil
}

func (f *serveFlags) serve(ctx context.Context, c *cobra.Command, args []string, o karat.Options, keys []server.Key) error {
	l, err := f.listen(ctx) // first, so that a port in use is known before a model is loaded
	if err != nil {
		return err
	}
	defer l.Close()
	if l, err = f.encrypted(l); err != nil {
		return err
	}
	so := server.Options{Keys: keys, Requests: f.queue, Hosts: f.hosts}
	if len(so.Hosts) == 0 && (f.socket != "" || !loopback(f.host)) {
		so.Hosts = []string{"*"}
	}
	if !f.quiet {
		so.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	}
	if len(args) == 0 {
		args = []string{""}
	}
	for _, path := range args {
		m, err := loadModel(ctx, path, o, c.ErrOrStderr())
		if err != nil {
			return err
		}
		defer m.Close()
		so.Models = append(so.Models, server.Model{Name: modelName(path), Model: m})
	}
	if err := f.alias(so.Models); err != nil {
		return err
	}
	s, err := server.New(ctx, so)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := f.announce(c.OutOrStdout(), l, so.Models[0].Name, len(keys) > 0); err != nil {
		return err
	}
	return f.until(ctx, l, s)
}

// modelName is what clients call the model at a path.
func modelName(path string) string {
	if path == "" {
		return "demo"
	}
	return strings.TrimSuffix(filepath.Base(filepath.Clean(path)), ".gguf")
}

// alias gives the models their other names: NAME where there is one model, else NAME=MODEL.
func (f *serveFlags) alias(models []server.Model) error {
	for _, a := range f.aliases {
		alias, of, ok := strings.Cut(a, "=")
		if !ok && len(models) > 1 {
			return usagef("--alias %s: there are %d models, want NAME=MODEL", a, len(models))
		}
		found := false
		for i := range models {
			if !ok || models[i].Name == of {
				models[i].Aliases, found = append(models[i].Aliases, alias), true
			}
		}
		if !found {
			return usagef("--alias %s: there is no model %q", a, of)
		}
	}
	return nil
}

// listen is where clients come.
func (f *serveFlags) listen(ctx context.Context) (net.Listener, error) {
	if f.socket != "" {
		if err := removeStale(ctx, f.socket); err != nil {
			return nil, err
		}
		l, err := new(net.ListenConfig).Listen(ctx, "unix", f.socket)
		if err != nil {
			return nil, err
		}
		if err := os.Chmod(f.socket, 0o660); err != nil {
			l.Close()
			return nil, err
		}
		return l, nil
	}
	return listenTCP(ctx, f.host, f.port)
}

// encrypted is a listener of https where a certificate was given. It reads the files before an address is
// printed, which may not be that of a server that fails.
func (f *serveFlags) encrypted(l net.Listener) (net.Listener, error) {
	if f.cert == "" {
		return l, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.cert, f.key, err)
	}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}), nil
}

// listenTCP listens at a port, and says what to do where another program has it.
func listenTCP(ctx context.Context, host string, port uint16) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w (--port 0 takes a free port)", err)
	}
	return l, err
}

// removeStale removes a socket that nobody listens on any more.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("--unix %s: the file is there, and no socket", path)
	}
	if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		c.Close()
		return fmt.Errorf("--unix %s: another program listens there", path)
	}
	return os.Remove(path)
}

// announce prints the address, and a command that asks something.
func (f *serveFlags) announce(out io.Writer, l net.Listener, name string, keyed bool) error {
	scheme := "http"
	if f.cert != "" {
		scheme = "https"
	}
	url, more := fmt.Sprintf("%s://%s", scheme, l.Addr()), ""
	if f.socket != "" {
		url, more = scheme+"://localhost", " --unix-socket "+shellQuote(f.socket)
	} else if host, port, err := net.SplitHostPort(l.Addr().String()); err == nil {
		if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
			url = fmt.Sprintf("%s://localhost:%s", scheme, port)
		}
	}
	if keyed {
		more += ` -H "Authorization: Bearer ` + f.shellKey() + `"`
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"model": %s, "messages": [{"role": "user", "content": "What is the capital of Egypt?"}]}`, quoted)
	_, err = fmt.Fprintf(out, "%s/v1\n\ncurl %s/v1/chat/completions%s -H 'Content-Type: application/json' -d %s\n", url, url, more, shellQuote(body))
	return err
}

// shellKey has a shell find a key where this program found it: it is not to be seen.
func (f *serveFlags) shellKey() string {
	if f.keyFile == "" {
		return "${" + keyVariable + "#*:}"
	}
	return `$(grep -v '^ *\(#\|$\)' ` + shellQuote(f.keyFile) + ` | head -n 1 | sed 's/^[^:]*: *//')`
}

// shellQuote is a word of a shell's command.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// until serves until ctx ends, and then lets the requests under way end.
func (f *serveFlags) until(ctx context.Context, l net.Listener, s *server.Server) error {
	var fresh fresh
	h := &http.Server{Handler: s, ConnState: fresh.note, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	s.Drain()
	fresh.close()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	err := h.Shutdown(limit)
	if err != nil {
		h.Close()
	}
	return err
}

// fresh are the connections that have asked nothing yet. http.Server.Shutdown would wait five seconds for them.
type fresh struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// note is a http.Server's ConnState.
func (f *fresh) note(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(f.conns, c)
	case f.closed:
		c.Close()
	default:
		if f.conns == nil {
			f.conns = map[net.Conn]bool{}
		}
		f.conns[c] = true
	}
}

func (f *fresh) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for c := range f.conns {
		c.Close()
	}
}

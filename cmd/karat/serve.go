package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/karat-run/karat/server"
	"github.com/karat-run/karat/server/otlp"
	"github.com/spf13/cobra"
)

// keyVariable may hold a key, or a text as a file of keys has it.
const keyVariable = "KARAT_API_KEY"

// drainLimit is how long requests under way have to end once the program is told to.
const drainLimit = 30 * time.Second

type serveFlags struct {
	aliases, hosts, origins []string
	noToolFallback          bool
	host                    string
	port                    uint16
	socket                  string
	keyFile                 string
	noKey                   bool
	cert, key               string
	queue, loaded           int
	memory                  size
	quiet, noPage           bool
	logFormat               string
	config, store           string
	traces                  string // where to
	check                   bool
	model                   modelFlags // of models whose configuration says nothing else
	changed                 func(flag string) bool
}

func newServeCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve [MODEL...]",
		Short: "Serve models to clients of OpenAI's API, and of others",
		Long: `Serve answers clients of OpenAI's API over HTTP: chat and text completions, streamed or
not, with log-probabilities, seeds and tools, and more that docs/serving.md lists. It prints
its address and a command that asks it something.

The first MODEL is loaded at once, and is the default of routes that name none. Others are loaded
when they are asked for. When memory runs out, the least recently used models are unloaded. MODEL may be a
folder of models. A model's name is that of its file without .gguf, its folder's, or that of
"karat pull". With several models, write --alias NAME=MODEL.

Each flag can also be set by a variable, --max-requests by KARAT_SERVE_MAX_REQUESTS, and by the file
of --config. The command line counts first, then the variable.

On this machine alone no key is needed. Beyond it, by --host, clients show one: as
"Authorization: Bearer KEY". Keys come from --api-key-file, a line NAME:SECRET for each, or
from the variable KARAT_API_KEY.

After Ctrl-C or SIGTERM it takes no new requests, and lets the running ones end. A second signal ends at once.`,
		Example: `  karat serve
  karat serve model.gguf --alias gpt-4o-mini
  karat serve model.gguf --host 0.0.0.0 --api-key-file keys.txt
  karat serve ~/models --keep-alive 10m
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
	fs.BoolVar(&f.noToolFallback, "no-tool-fallback", false, "refuse tools where a model's chat template takes none (default: tell the model of them in a text)")
	fs.StringArrayVar(&f.origins, "allow-origin", nil, "`origin` whose pages may call the server, for example https://*.example.com; * is any (default: pages at localhost and loopback addresses)")
	fs.Var((*name)(&f.cert), "tls-cert", "`file` of the certificate, for https")
	fs.Var((*name)(&f.key), "tls-key", "`file` of its key")
	fs.IntVar(&f.queue, "max-requests", 256, "maximum number of `requests` computed or waiting; more are refused, to be tried again")
	fs.IntVar(&f.loaded, "max-loaded", 0, "maximum number of `models` loaded at a time (default: as many as the memory holds)")
	fs.Var(&f.memory, "memory", "maximum bytes that loaded models take together, for example 16GiB (default: the free memory)")
	fs.BoolVar(&f.quiet, "quiet", false, "log no requests")
	fs.StringVar(&f.logFormat, "log-format", "text", "`form` of the log: text or json, an object on a line")
	fs.Var((*name)(&f.config), "config", "JSON `file` of flags by their names, and of models; see docs/serving.md")
	fs.Var((*name)(&f.store), "store", "`folder` that keeps files and batches (/v1/files, /v1/batches); without it there are none")
	fs.StringVar(&f.traces, "otlp-endpoint", "", "`URL` of a collector of OpenTelemetry that traces are sent to, as http://127.0.0.1:4318 (default: the variable OTEL_EXPORTER_OTLP_ENDPOINT)")
	fs.BoolVar(&f.noPage, "no-page", false, "serve no page at /")
	fs.BoolVar(&f.check, "check-config", false, "say what is wrong with flags, variables and files, and serve nothing")
	f.model.add(c)
	return leadModel(c, false)
}

// checkFlags finds flags that contradict each other.
func (f *serveFlags) checkFlags(c *cobra.Command, args []string) error {
	changed := c.Flags().Changed
	switch {
	case f.queue < 1:
		return usagef("--max-requests %d: want 1 or more", f.queue)
	case f.loaded < 0:
		return usagef("--max-loaded %d: want 1 or more", f.loaded)
	case (f.cert == "") != (f.key == ""):
		return usagef("--tls-cert and --tls-key go together")
	case f.logFormat != "text" && f.logFormat != "json":
		return usagef("--log-format %q: want text or json", f.logFormat)
	case f.socket != "" && (changed("host") || changed("port")):
		return usagef("--unix and --host or --port are of different kinds")
	}
	names := map[string]string{}
	for _, a := range args {
		if a == "" {
			return usagef("MODEL is empty; leave it out to use the embedded demo")
		}
		if other, twice := names[modelName(a)]; twice {
			return usagef("%s and %s would both be named %q: give a model once, or rename one of the files", other, a, modelName(a))
		}
		names[modelName(a)] = a
	}
	return nil
}

// keys are the keys that clients may show.
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
	more, err := f.configure(c)
	if err != nil {
		return err
	}
	if err := f.checkFlags(c, args); err != nil {
		return err
	}
	keys, err := f.keys()
	if err != nil {
		return err
	}
	all, err := f.models(args, more)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if all, err = f.checkModels(ctx, all, c.ErrOrStderr()); err != nil {
		return orInterrupted(ctx, err)
	}
	if f.check {
		return f.checked(c, all, keys)
	}
	return orInterrupted(ctx, f.serve(ctx, c, all, keys))
}

// checked says that nothing is wrong that can be known before models are loaded.
func (f *serveFlags) checked(c *cobra.Command, all []modelSpec, keys []server.Key) error {
	if _, err := f.certificate(); err != nil {
		return err
	}
	if info, err := os.Stat(f.store); f.store != "" && err == nil && !info.IsDir() {
		return fmt.Errorf("--store %s: it is no folder", f.store)
	}
	if e, err := f.exporter(nil); err != nil {
		return err
	} else if e != nil {
		e.Close()
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "nothing is wrong: %s, %s\n", count(len(all), "model"), count(len(keys), "key"))
	return err
}

func (f *serveFlags) serve(ctx context.Context, c *cobra.Command, all []modelSpec, keys []server.Key) error {
	l, err := f.listen(ctx) // first, so that a port in use is known before a model is loaded
	if err != nil {
		return err
	}
	defer l.Close()
	if l, err = f.encrypted(l); err != nil {
		return err
	}
	so := server.Options{Keys: keys, Requests: f.queue, Hosts: f.hosts, Origins: f.origins, NoToolFallback: f.noToolFallback, Memory: int64(f.memory), Loaded: f.loaded, Store: f.store}
	if !f.noPage {
		site, err := newSite()
		if err != nil {
			return err
		}
		so.Pages = site.Pages()
	}
	if len(so.Hosts) == 0 && (f.socket != "" || !loopback(f.host)) {
		so.Hosts = []string{"*"}
	}
	if !f.quiet {
		so.Log = f.log(c.ErrOrStderr())
	}
	e, err := f.exporter(so.Log)
	if err != nil {
		return err
	}
	if e != nil {
		defer e.Close() // after the server
		so.Trace = e.Add
	}
	for _, m := range all {
		so.Models = append(so.Models, m.server(c.ErrOrStderr()))
	}
	memory := so.Memory
	if so.Models[0].Device != "" { // whose memory that is not
		memory = 0
	}
	first, err := so.Models[0].Load(ctx, memory)
	if err != nil {
		return err
	}
	defer first.Close()
	so.Models[0].Model = first
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

// exporter sends traces, nil where none are wanted.
func (f *serveFlags) exporter(log *slog.Logger) (*otlp.Exporter, error) {
	to := cmp.Or(f.traces, os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if to == "" {
		return nil, nil
	}
	return otlp.New(to, log)
}

// log writes lines in the form of --log-format.
func (f *serveFlags) log(to io.Writer) *slog.Logger {
	if f.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, nil))
	}
	return slog.New(slog.NewTextHandler(to, nil))
}

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
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	select { // it listens until the last answer, so that who asks /ready gets its 503
	case <-s.Drain():
	case <-limit.Done():
	}
	fresh.close()
	err := h.Shutdown(limit)
	if err != nil {
		h.Close()
	}
	return err
}

// maxConns is the maximum number of connections: each holds a file and some memory, also while it asks nothing.
const maxConns = 4096

// fresh are the connections that have asked nothing yet. http.Server.Shutdown would wait five seconds for them.
type fresh struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	open   int // connections, asked or not
	closed bool
}

// note is a http.Server's ConnState.
func (f *fresh) note(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch state {
	case http.StateNew:
		f.open++
	case http.StateClosed, http.StateHijacked:
		f.open--
	}
	switch {
	case state != http.StateNew:
		delete(f.conns, c)
	case f.closed || f.open > maxConns:
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

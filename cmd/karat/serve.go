package main

import (
	"cmp"
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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/karat-run/karat/server"
	"github.com/karat-run/karat/server/kvevents"
	"github.com/karat-run/karat/server/otlp"
	"github.com/spf13/cobra"
)

// keyVariable may hold a key, or a text in the form of a file of keys.
const keyVariable = "KARAT_API_KEY"

// drainLimit is how long requests under way have to end once the program is told to.
const drainLimit = 30 * time.Second

// serveFlags are the flags of serve.
type serveFlags struct {
	host                    string
	port                    uint16
	socket, cert, key       string
	keyFile                 string
	noKey                   bool
	aliases, hosts, origins []string
	imageHosts, loraFolders []string
	queue, loaded           int
	memory                  size
	noToolFallback, noPage  bool
	quiet, check            bool
	logFormat               string
	config, store, traces   string
	receipts                bool
	events                  kvevents.Options
	receiptKey              string
	model                   servedFlags // of models whose configuration says nothing else
	changed                 func(flag string) bool
}

func newServeCommand() *cobra.Command {
	f := serveFlags{host: "127.0.0.1", port: 8080, queue: 256, logFormat: "text"}
	c := define("serve", f.run)
	c.flags("alias", &f.aliases, "host", &f.host, "port", &f.port, "unix", file(&f.socket), "api-key-file",
		file(&f.keyFile), "no-api-key", &f.noKey, "allow-host", &f.hosts, "no-tool-fallback", &f.noToolFallback,
		"allow-origin", &f.origins,
		"image-url-hosts", &f.imageHosts, "lora-folder", &f.loraFolders,
		"tls-cert", file(&f.cert), "tls-key", file(&f.key), "max-requests", &f.queue, "max-loaded", &f.loaded,
		"memory", &f.memory, "quiet", &f.quiet, "log-format", &f.logFormat, "config", file(&f.config),
		"receipts", &f.receipts, "receipt-key", file(&f.receiptKey), "store",
		file(&f.store), "kv-events", &f.events.Address, "kv-events-replay", &f.events.Replay, "kv-events-pod",
		&f.events.Pod,
		"otlp-endpoint", &f.traces, "no-page", &f.noPage, "check-config", &f.check)
	f.model.add(c)
	c.takesModel()
	return c.Command
}

// checkFlags returns an error for flags contradicting each other.
func (f *serveFlags) checkFlags(args []string) error {
	switch {
	case f.queue < 1:
		return usagef("--max-requests %d: want 1 or more", f.queue)
	case f.loaded < 0:
		return usagef("--max-loaded %d: want 1 or more", f.loaded)
	case (f.cert == "") != (f.key == ""):
		return usagef("--tls-cert and --tls-key go together")
	case f.events.Address == "" && f.events.Replay+f.events.Pod != "":
		return usagef("--kv-events-replay and --kv-events-pod need --kv-events")
	case f.receiptKey != "" && !f.receipts:
		return usagef("--receipt-key needs --receipts")
	case f.logFormat != "text" && f.logFormat != "json":
		return usagef("--log-format %q: want text or json", f.logFormat)
	case f.socket != "" && (f.changed("host") || f.changed("port")):
		return usagef("--unix and --host or --port are of different kinds")
	}
	names := map[string]string{}
	for _, a := range args {
		if other, twice := names[modelName(a)]; twice {
			return usagef("%s and %s would both be named %q: give a model once, or rename one of the files", other, a,
				modelName(a))
		}
		names[modelName(a)] = a
	}
	return nil
}

// keys returns the keys of clients.
func (f *serveFlags) keys() (keys []server.Key, err error) {
	if f.keyFile != "" {
		keys = must(server.ReadKeys(f.keyFile))
	}
	if text := os.Getenv(keyVariable); text != "" {
		more := must(server.ParseKeys(text, keyVariable))
		keys = append(keys, more...)
	}
	switch {
	case f.noKey && len(keys) > 0:
		return nil, usagef("--no-api-key, but there are keys")
	case !f.noKey && len(keys) == 0 && f.socket == "" && !loopback(f.host):
		return nil, usagef("--host %s can be reached from elsewhere: give --api-key-file, or --no-api-key if a key "+
			"is not wanted", f.host)
	}
	return keys, nil
}

// loopback reports whether an address is of this machine alone.
func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (f *serveFlags) run(x *call) error {
	args := x.args
	if x.model.name != "" {
		args = append([]string{x.model.name}, args...)
	}
	more := must(f.configure(x.command))
	throw(f.checkFlags(args))
	keys := must(f.keys())
	all := must(f.models(args, more))
	all = must(f.checkModels(x, all))
	if f.check {
		return f.sayChecked(x, all, keys)
	}
	err := catch(func() error { return f.serve(x, all, keys) })
	if err != nil && !x.isEnded(err) {
		return failure{statusError, err} // not the signal's status
	}
	return err
}

// sayChecked prints the result of a check of everything known before models are loaded.
func (f *serveFlags) sayChecked(x *call, all []modelSpec, keys []server.Key) error {
	must(f.certificate())
	if info, err := os.Stat(f.store); f.store != "" && err == nil && !info.IsDir() {
		return fmt.Errorf("--store %s: it is no folder", f.store)
	}
	if e, err := f.exporter(nil); err != nil {
		return err
	} else if e != nil {
		e.Close()
	}
	return x.printf("nothing is wrong: %s, %s\n", count(len(all), "model"), count(len(keys), "key"))
}

func (f *serveFlags) serve(x *call, all []modelSpec, keys []server.Key) error {
	l := must(f.listen(x.ctx)) // first, to find a port in use before a model is loaded
	defer l.Close()
	l = must(f.encrypt(l))
	so := server.Options{Keys: keys, Requests: f.queue, Hosts: f.hosts, Origins: f.origins, ImageHosts: f.imageHosts,
		AdapterFolders: f.loraFolders,
		NoToolFallback: f.noToolFallback, Memory: int64(f.memory), Loaded: f.loaded, Store: f.store}
	if f.receipts {
		so.ReceiptKey = must(signingKey(x, f.receiptKey))
	}
	if !f.noPage {
		so.Pages = latePages()
	}
	if len(so.Hosts) == 0 && (f.socket != "" || !loopback(f.host)) {
		so.Hosts = []string{"*"}
	}
	if !f.quiet {
		so.Log = f.log(x.log)
	}
	e := must(f.exporter(so.Log))
	if e != nil {
		defer e.Close() // after the server
		so.Trace = e.Add
	}
	if f.events.Address != "" {
		f.events.Pod = cmp.Or(f.events.Pod, f.pod())
		for _, m := range all {
			if strings.Contains(m.name, "@") {
				return fmt.Errorf("--kv-events: the model's name %q has an @, which parts the topics of events: "+
					"rename its file", m.name)
			}
		}
		events, err := kvevents.New(f.events)
		if err != nil {
			return fmt.Errorf("--kv-events: %w", err)
		}
		defer events.Close() // after the server
		so.Cache = events.Add
	}
	for _, m := range all {
		so.Models = append(so.Models, m.server(x.log))
	}
	memory := so.Memory
	if so.Models[0].Device != "" { // with memory of its own
		memory = 0
	}
	first := must(so.Models[0].Load(x.ctx, memory))
	defer first.Close()
	so.Models[0].Model = first
	s := must(server.New(x.ctx, so))
	defer s.Close()
	throw(f.announce(x.out, l, so.Models[0].Name, len(keys) > 0))
	return f.until(x.ctx, l, s)
}

// pod returns the replica's name in events: address and port in a cluster with POD_IP set, else the host's name.
func (f *serveFlags) pod() string {
	if ip := os.Getenv("POD_IP"); ip != "" {
		return net.JoinHostPort(ip, strconv.Itoa(int(f.port)))
	}
	name, _ := os.Hostname() // a single replica needs no name
	return name
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
	h := &http.Server{Handler: s, ConnState: fresh.note, ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
	defer cancel()
	select { // the listener stays until the last answer, so a /ready request gets its 503
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

// maxConns is the maximum number of connections: each holds a file and some memory, even without requests.
const maxConns = 4096

// fresh are the connections without a request so far. http.Server.Shutdown would wait five seconds for them.
type fresh struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	open   int // connections, asked or not
	closed bool
}

// note implements http.Server's ConnState.
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

// listen opens the listener for clients.
func (f *serveFlags) listen(ctx context.Context) (net.Listener, error) {
	if f.socket != "" {
		throw(removeStale(ctx, f.socket))
		l := must(new(net.ListenConfig).Listen(ctx, "unix", f.socket))
		if err := os.Chmod(f.socket, 0o660); err != nil {
			l.Close()
			return nil, err
		}
		return l, nil
	}
	return listenTCP(ctx, f.host, f.port)
}

// encrypt wraps a listener for https if there is a certificate. encrypt reads the files before the address is printed,
// since a printed address should work.
func (f *serveFlags) encrypt(l net.Listener) (net.Listener, error) {
	c, err := f.certificate()
	if err != nil || c == nil {
		return l, err
	}
	return tls.NewListener(l, c), nil
}

// certificate returns the configuration of encryption, nil for none.
func (f *serveFlags) certificate() (*tls.Config, error) {
	if f.cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.cert, f.key, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"h2", "http/1.1"}}, nil
}

// listenTCP listens at a port, with advice if another program has the port.
func listenTCP(ctx context.Context, host string, port uint16) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w (--port 0 takes a free port)", err)
	}
	return l, err
}

// removeStale removes a socket without a listener.
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

// announce prints the address, and a command for a first request.
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
	quoted := must(json.Marshal(name))
	body := fmt.Sprintf(`{"model": %s, "messages": [{"role": "user", "content": "What is the capital of Egypt?"}]}`,
		quoted)
	if !f.noPage {
		must(fmt.Fprintf(out, "%s/\n", url))
	}
	_, err := fmt.Fprintf(out, "%s/v1\n\ncurl %s/v1/chat/completions%s -H 'Content-Type: application/json' -d %s\n",
		url, url, more, shellQuote(body))
	return err
}

// shellKey returns a shell's expression for finding a key in this program's way: the key must not be seen.
func (f *serveFlags) shellKey() string {
	if f.keyFile == "" {
		return "${" + keyVariable + "#*:}"
	}
	return `$(grep -v '^ *\(#\|$\)' ` + shellQuote(f.keyFile) + ` | head -n 1 | sed 's/^[^:]*: *//')`
}

// shellQuote returns a word of a shell's command.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

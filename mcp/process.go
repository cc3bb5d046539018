package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/karat-run/karat"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of a server's output, in bytes: a message, and all messages between two calls.
const (
	maxMessage = 16 << 20
	maxBetween = 64 << 20
)

// patience is the time for a server's program to end by itself.
const patience = 2 * time.Second

// server is a server with the latest connection.
type server struct {
	Server
	tools  atomic.Pointer[[]tool]
	stale  atomic.Bool // whether the server may have other tools by now
	polled atomic.Bool // whether the server's tools change, and it has no way to say so
	closed atomic.Bool
	turn   lock // guards p
	p      *process
}

// tool is a tool with a name for the model.
type tool struct {
	karat.Tool
	of   *server
	name string // by the server
}

func (t *tool) path() string { return t.of.Name + "/" + t.name }

// lock is a lock whose wait ends with a context.
type lock chan struct{}

func (l lock) take(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) free() { <-l }

// process is a connection, with the server's program if there is one.
type process struct {
	*server
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bounded
	last    tail
	session *sdk.ClientSession
	budget

	ended chan struct{} // closed when the program has ended
	kill  func()        // ends the program and the program's children at once, or all requests
	life  context.Context
	mu    sync.Mutex
	why   error // the first cause of the end; nil while the server is good
}

// handed are the caller's variables in each server's environment, as other clients of the protocol have them.
var handed = map[bool][]string{
	false: {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR"},
	true: {"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "COMSPEC", "WINDIR"}}

// connect returns the connection to a server, a new one if the server is at an address and the latest has failed.
func (s *server) connect(ctx context.Context) (*process, error) {
	if err := s.turn.take(ctx); err != nil {
		return nil, err
	}
	defer s.turn.free()
	if s.p != nil && (s.URL == "" || s.closed.Load() || s.p.good() == nil) {
		return s.p, nil
	}
	// Published servers of 2025 end, or say nothing, at another request than initialize, so it comes first.
	ways := []sdk.ClientSessionOptions{{ProtocolVersion: "2025-11-25"}, {}}
	kinds := []string{s.Type, s.Type}
	if s.URL != "" && s.Type == "" {
		ways, kinds = append(ways, ways[0]), []string{"http", "http", "sse"}
	}
	var first error
	for i, kind := range kinds {
		p, err := s.start(ctx, kind, &ways[i])
		if err == nil {
			s.stale.Store(s.p != nil)
			can := p.session.InitializeResult().Capabilities
			s.polled.Store(s.URL != "" && can != nil && can.Tools != nil && can.Tools.ListChanged)
			s.p = p
			return p, nil
		}
		first = cmp.Or(first, err)
		if refusal := (*jsonrpc.Error)(nil); !errors.As(p.good(), &refusal) && !errors.Is(p.good(), errPath) {
			break
		}
	}
	return nil, first
}

// within does a request. Where a server at an address has forgotten the session, a second session does.
func (s *server) within(ctx context.Context, what string,
	do func(ctx context.Context, session *sdk.ClientSession) error) error {
	for again := false; ; again = true {
		p, err := s.connect(ctx)
		if err != nil {
			return err
		}
		err = p.within(ctx, what, func(ctx context.Context) error { return do(ctx, p.session) })
		if again || err == nil || !errors.Is(p.good(), sdk.ErrSessionMissing) {
			return err
		}
	}
}

// start runs a server's program, or makes the way to a server's address, and greets the server.
func (s *server) start(ctx context.Context, kind string, o *sdk.ClientSessionOptions) (*process, error) {
	p := &process{server: s, ended: make(chan struct{}), budget: budget{left: maxBetween}, life: context.Background()}
	way, err := sdk.Transport(nil), error(nil)
	if s.URL != "" {
		way = p.reach(kind)
		life, cancel := context.WithCancel(context.Background())
		p.life, p.kill = life, sync.OnceFunc(func() { cancel(); close(p.ended) })
	} else if way, err = p.run(); err != nil {
		return p, p.error(err)
	}
	err = p.within(ctx, "start", func(ctx context.Context) error {
		c := sdk.NewClient(&sdk.Implementation{Name: "karat", Version: karat.Version()},
			&sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{},
				ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { s.stale.Store(true) }})
		var err error
		p.session, err = c.Connect(ctx, way, o)
		return err
	})
	if err != nil {
		p.fail(err)
		p.close()
	}
	if refusal := (*jsonrpc.Error)(nil); errors.As(err, &refusal) {
		err = p.error(err)
	}
	return p, err
}

// run runs a server's program.
func (p *process) run() (sdk.Transport, error) {
	p.cmd = exec.Command(p.Command, p.Args...)
	for _, name := range handed[runtime.GOOS == "windows"] {
		if v, ok := os.LookupEnv(name); ok {
			p.cmd.Env = append(p.cmd.Env, name+"="+v)
		}
	}
	for name, v := range p.Env {
		p.cmd.Env = append(p.cmd.Env, name+"="+v)
	}
	if p.Dir != "" {
		if at, err := os.Stat(p.Dir); err != nil || !at.IsDir() { // else an error would blame the program
			return nil, fmt.Errorf("the working folder %s: %w", p.Dir, cmp.Or(err, error(syscall.ENOTDIR)))
		}
	}
	p.cmd.Dir, p.cmd.Stderr, p.cmd.WaitDelay = p.Dir, &p.last, patience
	own(p.cmd)
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	r, w, err := os.Pipe() // not cmd's pipe: Wait would close the pipe before the last message is read
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.out = w, &bounded{r: r, fresh: true, bare: true, budget: &p.budget}
	if err := errors.Join(p.cmd.Start(), w.Close()); err != nil {
		_ = r.Close()
		return nil, err
	}
	p.kill = sync.OnceFunc(func() { end(p.cmd) })
	go func() {
		err := p.cmd.Wait()
		p.kill() // the children
		if err == nil {
			err = errors.New("exit status 0")
		}
		p.fail(fmt.Errorf("the program ended: %w", err))
		close(p.ended)
	}()
	return &sdk.IOTransport{Reader: p.out, Writer: p.in, MaxLineLength: -1}, nil
}

// fail keeps the first cause of the server's end.
func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = err
	}
}

// error returns an error with the server's name and the program's last words, and without the headers' values.
func (p *process) error(err error) error {
	words := ""
	if s := p.last.String(); s != "" {
		words = fmt.Sprintf("; its last words: %s", s)
	}
	if p.URL != "" {
		return errors.New(p.hide(fmt.Sprintf("MCP server %s: %v", p.Name, err)))
	}
	return fmt.Errorf("MCP server %s: %v%s", p.Name, err, words) // its pipes are not the caller's: nothing to unwrap
}

// good returns the cause of the server's end.
func (p *process) good() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.why
}

// within does a request in the server's time. Afterwards the server is good or has ended.
func (p *process) within(ctx context.Context, what string, do func(ctx context.Context) error) error {
	if err := p.good(); err != nil {
		return p.error(err)
	}
	p.refill()
	inTime, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	done := make(chan struct{})
	context.AfterFunc(inTime, func() { // a write to an idle program heeds no context
		select {
		case <-done:
		case <-time.After(patience):
			p.kill()
		}
	})
	err := do(inTime)
	close(done)
	late := errors.Is(inTime.Err(), context.DeadlineExceeded)
	var refusal *jsonrpc.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refusal) && (p.URL == "" || p.good() == nil): // the kit marks failed requests as refusals
		return err
	case late:
		err = fmt.Errorf("%s: no answer in %v", what, p.Timeout)
	case p.cmd != nil && (errors.Is(err, sdk.ErrConnectionClosed) || errors.Is(err, io.EOF) ||
		errors.As(err, new(*os.PathError))): // a pipe is closed: the exit tells why
		select {
		case <-p.ended:
		case <-time.After(patience):
		}
	}
	if why := cmp.Or(p.spend(0, nil), p.good()); why != nil && !late {
		err = why
	}
	p.fail(err)
	p.kill()
	<-p.ended
	if p.session != nil {
		_ = p.session.Close()
	}
	return p.error(err)
}

// close ends the program's input, and kills the program after a while. At an address it ends the session.
func (p *process) close() {
	p.fail(errors.New("it was closed"))
	t := time.AfterFunc(patience, p.kill)
	defer t.Stop()
	if p.cmd != nil {
		_ = p.in.Close()
		<-p.ended
		defer p.out.Close()
	}
	if p.session != nil {
		_ = p.session.Close()
	}
	p.kill()
}

// bounded reads a server's messages, up to the bounds.
type bounded struct {
	r     io.ReadCloser
	line  int  // bytes of the message so far
	bare  bool // messages stand alone, each in a line
	fresh bool // the next byte begins a message
	*budget
}

// budget bounds a server's messages between two calls.
type budget struct {
	counting sync.Mutex
	left     int
	over     error
}

var (
	errLong  = fmt.Errorf("it sent a message of more than %d MiB", maxMessage>>20)
	errFlood = fmt.Errorf("it sent more than %d MiB without being asked", maxBetween>>20)
)

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	var wrong error
	for text := range bytes.Lines(p[:n]) {
		fresh := b.fresh // whether text is the beginning of a message
		b.fresh = text[len(text)-1] == '\n'
		if fresh && b.bare && wrong == nil && !bytes.ContainsAny(text[:1], "{[ \t\r\n") {
			wrong = fmt.Errorf("it printed %.60q where only messages of the protocol may stand; "+
				"a log belongs to standard error", bytes.TrimSpace(text))
		}
	}
	if b.line += n; bytes.IndexByte(p[:n], '\n') >= 0 {
		b.line = n - 1 - bytes.LastIndexByte(p[:n], '\n')
	}
	if b.line > maxMessage {
		wrong = cmp.Or(wrong, errLong)
	}
	if over := b.spend(n, wrong); over != nil {
		return 0, over
	}
	return n, err
}

func (b *bounded) Close() error { return b.r.Close() }

// spend counts bytes. It returns the first cause for which the server sends too much, or what it may not.
func (b *budget) spend(n int, wrong error) error {
	b.counting.Lock()
	defer b.counting.Unlock()
	if b.left -= n; b.left < 0 {
		wrong = cmp.Or(wrong, errFlood)
	}
	b.over = cmp.Or(b.over, wrong)
	return b.over
}

func (b *budget) refill() {
	b.counting.Lock()
	defer b.counting.Unlock()
	b.left = maxBetween
}

// tail keeps the last written bytes.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailSize = 400

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[max(0, len(p)-tailSize):]...)
	t.kept = slices.Delete(t.kept, 0, max(0, len(t.kept)-tailSize))
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(t.kept), "�")), " ")
}

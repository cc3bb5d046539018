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

// process is a server's program with the connection.
type process struct {
	Server
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bounded
	last    tail
	session *sdk.ClientSession

	ended chan struct{} // closed when the program has ended
	kill  func()        // ends the program and the program's children at once
	mu    sync.Mutex
	why   error // the first cause of the end; nil while the server is good
}

// handed are the caller's variables in each server's environment, as other clients of the protocol have them.
var handed = map[bool][]string{
	false: {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR"},
	true: {"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "COMSPEC", "WINDIR"}}

// start runs a server's program and greets the server.
func start(ctx context.Context, s Server) (*process, error) {
	s.Timeout = cmp.Or(s.Timeout, DefaultTimeout)
	p := &process{Server: s, cmd: exec.Command(s.Command, s.Args...), ended: make(chan struct{})}
	for _, name := range handed[runtime.GOOS == "windows"] {
		if v, ok := os.LookupEnv(name); ok {
			p.cmd.Env = append(p.cmd.Env, name+"="+v)
		}
	}
	for name, v := range s.Env {
		p.cmd.Env = append(p.cmd.Env, name+"="+v)
	}
	if s.Dir != "" {
		if at, err := os.Stat(s.Dir); err != nil || !at.IsDir() { // else an error would blame the program
			return nil, p.error(fmt.Errorf("the working folder %s: %w", s.Dir, cmp.Or(err, error(syscall.ENOTDIR))))
		}
	}
	p.cmd.Dir, p.cmd.Stderr, p.cmd.WaitDelay = s.Dir, &p.last, patience
	own(p.cmd)
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, p.error(err)
	}
	r, w, err := os.Pipe() // not cmd's pipe: Wait would close the pipe before the last message is read
	if err != nil {
		return nil, p.error(err)
	}
	p.cmd.Stdout, p.out = w, &bounded{r: r, left: maxBetween, fresh: true}
	if err := errors.Join(p.cmd.Start(), w.Close()); err != nil {
		_ = r.Close()
		return nil, p.error(err)
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
	err = p.within(ctx, "start", func(ctx context.Context) error {
		c := sdk.NewClient(&sdk.Implementation{Name: "karat", Version: karat.Version()},
			&sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
		var err error
		p.session, err = c.Connect(ctx, &sdk.IOTransport{Reader: p.out, Writer: p.in, MaxLineLength: -1}, nil)
		return err
	})
	if err != nil {
		p.close()
	}
	if refusal := (*jsonrpc.Error)(nil); errors.As(err, &refusal) {
		err = p.error(err)
	}
	return p, err
}

// fail keeps the first cause of the server's end.
func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.why == nil {
		p.why = err
	}
}

// error returns an error with the server's name and the program's last words.
func (p *process) error(err error) error {
	words := ""
	if s := p.last.String(); s != "" {
		words = fmt.Sprintf("; its last words: %s", s)
	}
	return fmt.Errorf("MCP server %s: %w%s", p.Name, err, words)
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
	p.out.refill()
	inTime, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
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
	late := inTime.Err() != nil
	var refusal *jsonrpc.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refusal):
		return err
	case late:
		err = fmt.Errorf("%s: no answer in %v", what, p.Timeout)
	case errors.Is(err, sdk.ErrConnectionClosed), errors.Is(err, io.EOF): // the program's exit tells why
		select {
		case <-p.ended:
		case <-time.After(patience):
		}
	}
	if why := cmp.Or(p.out.error(), p.good()); why != nil && !late {
		err = why
	}
	p.fail(err)
	p.kill()
	<-p.ended
	return p.error(err)
}

// close ends the program's input, and kills the program after a while.
func (p *process) close() {
	p.fail(errors.New("it was closed"))
	_ = p.in.Close()
	t := time.AfterFunc(patience, p.kill)
	<-p.ended
	t.Stop()
	if p.session != nil {
		_ = p.session.Close()
	}
	_ = p.out.Close()
}

// bounded reads a server's messages, up to the bounds.
type bounded struct {
	r     io.ReadCloser
	line  int  // bytes of the message so far
	fresh bool // the next byte begins a message
	mu    sync.Mutex
	left  int
	over  error
}

var (
	errLong  = fmt.Errorf("it sent a message of more than %d MiB", maxMessage>>20)
	errFlood = fmt.Errorf("it sent more than %d MiB without being asked", maxBetween>>20)
)

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	for text := range bytes.Lines(p[:n]) {
		fresh := b.fresh // whether text is the beginning of a message
		if b.fresh = text[len(text)-1] == '\n'; fresh && b.over == nil && !bytes.ContainsAny(text[:1], "{[ \t\r\n") {
			b.over = fmt.Errorf("it printed %.60q where only messages of the protocol may stand; "+
				"a log belongs to standard error", bytes.TrimSpace(text))
		}
	}
	if b.line += n; bytes.IndexByte(p[:n], '\n') >= 0 {
		b.line = n - 1 - bytes.LastIndexByte(p[:n], '\n')
	}
	if b.left -= n; b.over == nil && b.left < 0 {
		b.over = errFlood
	}
	if b.over == nil && b.line > maxMessage {
		b.over = errLong
	}
	if b.over != nil {
		return 0, b.over
	}
	return n, err
}

func (b *bounded) Close() error { return b.r.Close() }

func (b *bounded) refill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = maxBetween
}

func (b *bounded) error() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.over
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

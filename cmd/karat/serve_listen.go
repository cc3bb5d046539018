package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// listen opens the listener for clients.
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
	quoted, err := json.Marshal(name)
	if err != nil {
		return err
	}
	body := fmt.Sprintf(`{"model": %s, "messages": [{"role": "user", "content": "What is the capital of Egypt?"}]}`,
		quoted)
	if !f.noPage {
		if _, err := fmt.Fprintf(out, "%s/\n", url); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, "%s/v1\n\ncurl %s/v1/chat/completions%s -H 'Content-Type: application/json' -d %s\n",
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

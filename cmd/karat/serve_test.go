package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/hub/local"
	"github.com/karat-run/karat/server"
	"github.com/rogpeppe/go-internal/testscript"
)

// served is a script's command: served 'METHOD PATH' BODY TEXT ARGUMENTS... runs karat serve and asks it something at the address
// that it prints. The answer is to hold TEXT, and SIGTERM is to end the program with success.
func served(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: served 'METHOD PATH' BODY TEXT ARGUMENTS...")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := exec.CommandContext(ctx, "karat", append([]string{"serve"}, args[3:]...)...)
	for _, dir := range strings.Split(ts.Getenv("PATH"), ":") {
		if path, err := exec.LookPath(dir + "/karat"); err == nil {
			c.Path, c.Err = path, nil
			break
		}
	}
	t := &http.Transport{}
	if i := slices.Index(args, "--tls-cert"); i > 0 {
		t.TLSClientConfig = &tls.Config{RootCAs: writeCertificate(ts, args[i+1], args[slices.Index(args, "--tls-key")+1])}
	}
	c.Dir, c.Env = ts.Getenv("WORK"), append(os.Environ(), local.Variable+"="+ts.Getenv(local.Variable))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	ts.Check(err)
	ts.Check(c.Start())
	defer c.Process.Kill()
	lines := bufio.NewReader(out)
	url, err := lines.ReadString('\n')
	if err != nil {
		ts.Fatalf("no address: %v\n%s", err, &stderr)
	}
	for i, a := range args {
		if a == "--unix" {
			t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", args[i+1])
			}
		}
	}
	method, path, _ := strings.Cut(args[0], " ")
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(url), "/v1"), "/")+path, strings.NewReader(args[1]))
	ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: t}).Do(r)
	ts.Check(err)
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	resp.Body.Close()
	t.CloseIdleConnections()
	if !strings.Contains(string(answer), args[2]) {
		ts.Fatalf("%s, want %s", answer, args[2])
	}
	rest, err := lines.ReadString('}')
	if err != nil || !strings.Contains(rest, "curl ") {
		ts.Fatalf("no command in %q: %v", rest, err)
	}
	ts.Check(c.Process.Signal(syscall.SIGTERM))
	io.Copy(io.Discard, lines)
	if err := c.Wait(); err != nil {
		ts.Fatalf("%v\n%s", err, &stderr)
	}
}

// writeCertificate writes the certificate of tests for 127.0.0.1 and its key, and returns who trusts it.
func writeCertificate(ts *testscript.TestScript, certificate, key string) *x509.CertPool {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	der, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(certificate), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o666))
	ts.Check(os.WriteFile(ts.MkAbs(key), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

// TestFresh: connections that have asked nothing are closed when the server ends, others are not.
func TestFresh(t *testing.T) {
	var f fresh
	open := func(states ...http.ConnState) (client net.Conn) {
		server, client := net.Pipe()
		t.Cleanup(func() { server.Close() })
		for _, s := range states {
			f.note(server, s)
		}
		return client
	}
	silent, asked := open(http.StateNew), open(http.StateNew, http.StateActive)
	f.close()
	late := open(http.StateNew)
	for _, c := range []net.Conn{silent, late} {
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("a connection that has asked nothing is open")
		}
	}
	if err := asked.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := asked.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection with a request: %v", err)
	}
}

// TestConnections: a connection above the maximum is closed, and one that ends makes room for another.
func TestConnections(t *testing.T) {
	f := fresh{open: maxConns - 1}
	isOpen := func(want bool) net.Conn {
		t.Helper()
		server, client := net.Pipe()
		t.Cleanup(func() { server.Close() })
		if err := client.SetDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		f.note(server, http.StateNew)
		if _, err := client.Write([]byte("x")); errors.Is(err, os.ErrDeadlineExceeded) != want {
			t.Errorf("%v, want open %v", err, want)
		}
		return server
	}
	last := isOpen(true)
	f.note(isOpen(false), http.StateClosed)
	f.note(last, http.StateActive)
	f.note(isOpen(false), http.StateClosed)
	f.note(last, http.StateClosed)
	isOpen(true)
}

// TestDrain: a server that is to end listens until its last answer. Until then /ready is a 503, and so is a new request.
func TestDrain(t *testing.T) {
	m, err := loadModel(t.Context(), "", karat.Options{Threads: 1, Context: 64}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := server.New(t.Context(), server.Options{Models: []server.Model{{Name: "demo", Model: m}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- new(serveFlags).until(ctx, l, s) }()
	ask := func(ctx context.Context, method, path string, body io.Reader) *http.Response {
		r, err := http.NewRequestWithContext(ctx, method, url+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if _, slow := body.(*io.PipeReader); slow {
			r.Header.Set("Expect", "100-continue")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return &http.Response{}
		}
		resp.Body.Close()
		return resp
	}
	const body = `{"model":"demo","prompt":"a","max_tokens":1}`
	in, out := io.Pipe()
	reads, answered := make(chan struct{}), make(chan int, 1)
	go func() { // a request whose body has not come yet
		trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reads) }})
		answered <- ask(trace, "POST", "/v1/completions", in).StatusCode
	}()
	<-reads
	end()
	for ask(t.Context(), "GET", "/ready", nil).StatusCode == http.StatusOK {
	}
	for range 2 {
		if r := ask(t.Context(), "GET", "/ready", nil); r.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("/ready: %d", r.StatusCode)
		}
		if r := ask(t.Context(), "POST", "/v1/completions", strings.NewReader(body)); r.StatusCode != http.StatusServiceUnavailable || !r.Close {
			t.Errorf("a new request: %d, Connection: close is %v", r.StatusCode, r.Close)
		}
	}
	io.WriteString(out, body)
	out.Close()
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the request under way: %d", status)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it listens on")
	}
}

// TestLatePages wants the paths of a site known before the site is made.
func TestLatePages(t *testing.T) {
	site, err := newSite(false)
	if err != nil {
		t.Fatal(err)
	}
	if paths := slices.Sorted(maps.Keys(site.Pages())); !slices.Equal(paths, sitePaths) {
		t.Errorf("the site has %q, sitePaths %q", paths, sitePaths)
	}
	w := httptest.NewRecorder()
	latePages()["/karat.js"].ServeHTTP(w, httptest.NewRequest("GET", "/karat.js", nil))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "karat.wasm") {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
}

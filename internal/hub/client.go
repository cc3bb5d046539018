package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/karat-run/karat/internal/patherr"
)

// Bounds of a conversation with a server.
const (
	maxHops       = 10
	maxHeader     = 64 << 10
	dialWait      = 20 * time.Second
	headerWait    = time.Minute
	patience      = 30 * time.Second // for the next leastBytes of a body
	leastBytes    = 4 << 10
	userAgentName = "karat"
)

// client asks servers. It follows redirects itself, shows a secret to one origin alone, and reaches hosts that the user
// did not name at public addresses only.
type client struct {
	http     *http.Client
	origin   *url.URL // the only one that sees secret
	secret   string   // the value of Authorization; "" is none
	renew    func(ctx context.Context, challenge string) (secret string, err error)
	mu       sync.Mutex
	named    map[string]bool // hosts that the user named, and proxies
	patience time.Duration
}

// newClient makes a client for the server at origin, which the user named. adjust is nil but in tests.
func newClient(origin *url.URL, adjust func(*http.Transport)) *client {
	c := &client{origin: origin, named: map[string]bool{strings.ToLower(origin.Hostname()): true}, patience: patience}
	t := &http.Transport{
		Proxy: c.proxy, DialContext: c.dial, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: dialWait, ResponseHeaderTimeout: headerWait, IdleConnTimeout: time.Minute,
		MaxIdleConnsPerHost: 16,
	}
	if adjust != nil {
		adjust(t)
	}
	c.http = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return c
}

func (c *client) close() { c.http.CloseIdleConnections() }

// proxy returns the environment's. The user named it there.
func (c *client) proxy(r *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(r)
	if u != nil {
		c.mu.Lock()
		c.named[strings.ToLower(u.Hostname())] = true
		c.mu.Unlock()
	}
	return u, err
}

// dial connects to a host that the user named, or to a public address: a server may not have us ask what only this
// machine, or its network, can reach. The address is the one that is connected to, so a name that changes its meaning
// does not help.
func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: dialWait}
	if !c.isNamed(host) {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if !public(a.Addr()) {
				return notPublicError(host, a.Addr())
			}
			return nil
		}
	}
	return d.DialContext(ctx, network, address)
}

// isNamed reports whether the user named a host.
func (c *client) isNamed(host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.named[strings.ToLower(host)]
}

func notPublicError(from string, a netip.Addr) error {
	return refusedf("%s leads to %s, which is no public address", from, a)
}

// notPublic are ranges that netip has no question for: of carriers, of tests and documentation, and of translations to
// IPv4.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2002::/16"),
}

// public reports whether an address is one of the Internet's.
func public(a netip.Addr) bool {
	a = a.Unmap()
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return a.IsGlobalUnicast() && !a.IsPrivate()
}

// refusal is an error that asking again does not help: of what a server says or may not do, or of this machine, such as
// a full disk.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func refusedf(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// statusError is an answer that is no success.
type statusError struct {
	url   string
	code  int
	after time.Duration // that the server asks to wait; -1 if it does not say
	hint  string
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s: %d %s", e.url, e.code, http.StatusText(e.code))
	if e.hint != "" {
		s += ": " + e.hint
	}
	return s
}

// again reports whether the answer may be another one later.
func (e *statusError) again() bool {
	switch e.code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// sameOrigin reports whether two addresses are of one server: scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// get asks for an address and follows redirects. A status that is neither 2xx nor in also is an error.
func (c *client) get(ctx context.Context, address string, header http.Header, also ...int) (*http.Response, error) {
	renewed := false
	for {
		r, err := c.follow(ctx, address, header)
		if err != nil {
			return nil, err
		}
		challenge := r.Header.Get("WWW-Authenticate")
		if r.StatusCode == http.StatusUnauthorized && c.renew != nil && !renewed && challenge != "" &&
			sameOrigin(r.Request.URL, c.origin) {
			drain(r)
			secret, err := c.renew(ctx, challenge)
			if err != nil {
				return nil, err
			}
			c.mu.Lock()
			c.secret = secret
			c.mu.Unlock()
			renewed = true
			continue
		}
		if r.StatusCode/100 == 2 {
			if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
				drain(r)
				return nil, refusedf("%s: the answer is packed (Content-Encoding %q), which was not asked for",
					show(r.Request.URL), clip(e))
			}
			return r, nil
		}
		if slices.Contains(also, r.StatusCode) {
			return r, nil
		}
		defer drain(r)
		return nil, &statusError{url: show(r.Request.URL), code: r.StatusCode, after: retryAfter(r.Header.Get("Retry-After"))}
	}
}

// follow asks, and asks where the answers lead to.
func (c *client) follow(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, refusal{err}
	}
	plain := u.Scheme == "http"
	for range maxHops {
		if u.Scheme != "https" && (u.Scheme != "http" || !plain) || u.Hostname() == "" || u.User != nil || u.Opaque != "" {
			return nil, refusedf("%s leads to %s: only https is followed", clip(address), clip(u.Redacted()))
		}
		// dial is not asked where there is a proxy
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && !public(a) && !c.isNamed(u.Hostname()) {
			return nil, notPublicError(clip(address), a)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, refusal{err}
		}
		for k, v := range header {
			r.Header[k] = v
		}
		r.Header.Set("User-Agent", userAgentName)
		r.Header.Set("Accept-Encoding", "identity")
		c.mu.Lock()
		if c.secret != "" && sameOrigin(u, c.origin) {
			r.Header.Set("Authorization", c.secret)
		}
		c.mu.Unlock()
		a, err := c.http.Do(r)
		if err != nil {
			return nil, bare(err)
		}
		switch a.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
			http.StatusPermanentRedirect:
		default:
			return a, nil
		}
		drain(a)
		to, err := u.Parse(a.Header.Get("Location"))
		if err != nil || a.Header.Get("Location") == "" {
			return nil, refusedf("%s leads nowhere: %q", show(u), clip(a.Header.Get("Location")))
		}
		u = to
	}
	return nil, refusedf("%s: more than %d redirects", clip(address), maxHops)
}

// bare returns an error without the address that net/http puts before it, which may hold a signature.
func bare(err error) error {
	var e *url.Error
	if !errors.As(err, &e) {
		return err
	}
	if u, err := url.Parse(e.URL); err == nil {
		return fmt.Errorf("%s: %w", show(u), e.Err)
	}
	return e.Err
}

// show returns an address for an error: without its query, in which signatures are.
func show(u *url.URL) string {
	v := *u
	v.RawQuery, v.User, v.Fragment = "", nil, ""
	return clip(v.String())
}

// drain ends an answer, and has its connection used again if little is left.
func drain(r *http.Response) {
	_, _ = io.CopyN(io.Discard, r.Body, 4<<10) // what cannot be read is not wanted
	r.Body.Close()
}

// retryAfter reads the header: seconds or a date; -1 if it says neither.
func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n >= 0 {
		return time.Duration(min(n, 1<<20)) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(time.Until(t), 0)
	}
	return -1
}

// small returns the whole of an answer that should be small, with its header.
func (c *client) small(ctx context.Context, address string, header http.Header, most int64) (data []byte,
	h http.Header, err error) {
	err = retry(ctx, func(ctx context.Context) (bool, error) {
		r, err := c.get(ctx, address, header)
		if err != nil {
			return false, err
		}
		defer r.Body.Close()
		w := c.watch(r.Body)
		defer w.stop()
		h = r.Header
		data, err = readMost(r, w, most)
		return false, err
	})
	return data, h, err
}

// readMost returns a body of at most most bytes.
func readMost(r *http.Response, body io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, most+1))
	if err == nil && int64(len(data)) > most {
		err = refusedf("%s: more than %d bytes", show(r.Request.URL), most)
	}
	return data, err
}

// errStalled ends a body that comes too slowly.
var errStalled = errors.New("the server sends nothing any more")

// watched is a body that has to come on: leastBytes within the patience, or it is closed.
type watched struct {
	body    io.ReadCloser
	timer   *time.Timer
	wait    time.Duration
	n       int
	mu      sync.Mutex
	stalled bool
}

func (c *client) watch(body io.ReadCloser) *watched {
	w := &watched{body: body, wait: c.patience}
	w.timer = time.AfterFunc(w.wait, func() {
		w.mu.Lock()
		w.stalled = true
		w.mu.Unlock()
		body.Close()
	})
	return w
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.body.Read(b)
	if w.n += n; w.n >= leastBytes {
		w.reset()
	}
	if err != nil { // also io.EOF: a body that is closed may end so
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.stalled {
			err = errStalled
		}
	}
	return n, err
}

// reset begins the wait anew, such as after a pause of our own.
func (w *watched) reset() {
	w.n = 0
	if w.timer.Stop() {
		w.timer.Reset(w.wait)
	}
}

func (w *watched) stop() { w.timer.Stop() }

// tokenHF returns the user's token for Hugging Face, where their programs look for it: HF_TOKEN, the file
// HF_TOKEN_PATH, or the file token in HF_HOME, which is .cache/huggingface in the user's folder.
func tokenHF() (string, error) {
	if t := strings.TrimSpace(os.Getenv("HF_TOKEN")); t != "" {
		return t, checkToken(t, "HF_TOKEN")
	}
	file := os.Getenv("HF_TOKEN_PATH")
	if file == "" {
		home := os.Getenv("HF_HOME")
		if home == "" {
			dir, err := os.UserHomeDir()
			if err != nil {
				return "", nil // nor can there be a token
			}
			home = filepath.Join(dir, ".cache", "huggingface")
		}
		file = filepath.Join(home, "token")
	}
	st, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err == nil && (!st.Mode().IsRegular() || st.Size() > maxToken) {
		err = fmt.Errorf("%s: no file of a token", file)
	}
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", patherr.Plain(err)
	}
	t := strings.TrimSpace(string(data))
	return t, checkToken(t, file)
}

const maxToken = 4096

// checkToken is an error if a header cannot hold the token. It does not show it.
func checkToken(t, from string) error {
	if len(t) > maxToken || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s: no token: want one word of at most %d letters and digits", from, maxToken)
	}
	return nil
}

// Attempts without any progress, and the pauses between them.
const (
	attempts   = 6
	firstPause = time.Second
	longPause  = 30 * time.Second
	mostAfter  = 5 * time.Minute // that a server may have us wait
)

// againKey is the context's key of a function that is told of each new try.
type againKey struct{}

// telling returns a context whose retries call tell with what failed, and the number of the next try.
func telling(ctx context.Context, tell func(err error, n int)) context.Context {
	return context.WithValue(ctx, againKey{}, tell)
}

// unreachable returns the host that a connection was not made to, "" if err is another error.
func unreachable(err error) string {
	if e := (*net.DNSError)(nil); errors.As(err, &e) {
		return e.Name
	}
	if e := (*net.OpError)(nil); errors.As(err, &e) && e.Op == "dial" && e.Addr != nil {
		return e.Addr.String()
	}
	return ""
}

// retry tries until try succeeds, fails for good, or fails too often without having come on. A name that nobody knows
// is not asked for again.
func retry(ctx context.Context, try func(context.Context) (progress bool, err error)) error {
	for n, pause := 1, firstPause; ; n++ {
		progress, err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var status *statusError
		var refused refusal
		wait := pause/2 + rand.N(pause)
		switch {
		case errors.As(err, &refused), errors.As(err, &status) && !status.again():
			return err
		case status != nil && status.after > mostAfter:
			return fmt.Errorf("%w; the server asks to wait %v", err, status.after.Round(time.Second))
		case status != nil && status.after >= 0:
			wait = status.after
		}
		if e := (*net.DNSError)(nil); errors.As(err, &e) && e.IsNotFound {
			return refusal{fmt.Errorf("cannot reach %s: no host of that name is known, or there is no network", e.Name)}
		}
		if pause = min(2*pause, longPause); progress {
			n, pause = 0, firstPause
		}
		if n == attempts {
			return fmt.Errorf("%w (tried %d times)", err, n)
		}
		if tell, ok := ctx.Value(againKey{}).(func(error, int)); ok {
			tell(err, n+1)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// limiter keeps the bytes of all that share it below a rate.
type limiter struct {
	rate float64 // bytes a second; 0 is no limit
	mu   sync.Mutex
	next time.Time // when what was taken has been paid for
}

// wait takes n bytes, and reports whether it waited for that.
func (l *limiter) wait(ctx context.Context, n int) (bool, error) {
	if l.rate <= 0 {
		return false, nil
	}
	l.mu.Lock()
	now := time.Now()
	if l.next.Before(now) {
		l.next = now
	}
	l.next = l.next.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	d := l.next.Sub(now)
	l.mu.Unlock()
	return true, sleep(ctx, d)
}

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

// client asks servers. A client follows redirects itself, shows a secret to a single origin, and reaches hosts not
// named by the user at public addresses only.
type client struct {
	http     *http.Client
	origin   *url.URL // the only origin to see secret
	secret   string   // the value of Authorization; "" is none
	renew    func(ctx context.Context, challenge string) (secret string, err error)
	mu       sync.Mutex
	named    map[string]bool // hosts named by the user, and proxies
	patience time.Duration
}

// newClient makes a client for the server at origin, named by the user. adjust is for tests.
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

// proxy returns the proxy of the environment, as named by the user.
func (c *client) proxy(r *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(r)
	if u != nil {
		c.mu.Lock()
		c.named[strings.ToLower(u.Hostname())] = true
		c.mu.Unlock()
	}
	return u, err
}

// dial connects to a host named by the user, or to a public address: a server must not make us ask hosts reachable only
// from this machine or its network. The check is on the address of the connection itself, so a name that changes its
// meaning does not help.
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
			if !isPublic(a.Addr()) {
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

// notPublic lists ranges missing from netip: of carriers, of tests and documentation, and of translations to IPv4.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2002::/16"),
}

// isPublic reports whether an address is of the Internet.
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return a.IsGlobalUnicast() && !a.IsPrivate()
}

// A refusal is an error without hope in a new try: of a server's answer, or of this machine, such as a full disk.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func refusedf(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// A statusError is an answer without success.
type statusError struct {
	url   string
	code  int
	after time.Duration // the wait asked for by the server; -1 if none
	hint  string
}

func (e *statusError) Error() string {
	s := fmt.Sprintf("%s: %d %s", e.url, e.code, http.StatusText(e.code))
	if e.hint != "" {
		s += ": " + e.hint
	}
	return s
}

// isTransient reports whether the server may answer otherwise later.
func (e *statusError) isTransient() bool {
	switch e.code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// sameOrigin reports whether two addresses have the same scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// get asks for an address and follows redirects. A status neither 2xx nor in also is an error.
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
		return nil, &statusError{url: show(r.Request.URL), code: r.StatusCode,
			after: retryAfter(r.Header.Get("Retry-After"))}
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
		if u.Scheme != "https" && (u.Scheme != "http" || !plain) || u.Hostname() == "" || u.User != nil ||
			u.Opaque != "" {
			return nil, refusedf("%s leads to %s: only https is followed", clip(address), clip(u.Redacted()))
		}
		// dial is not asked where there is a proxy
		if a, err := netip.ParseAddr(u.Hostname()); err == nil && !isPublic(a) && !c.isNamed(u.Hostname()) {
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
			return nil, withoutAddress(err)
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

// withoutAddress returns an error without net/http's prefix, the address, which may hold a signature.
func withoutAddress(err error) error {
	e, is := errors.AsType[*url.Error](err)
	if !is {
		return err
	}
	if u, err := url.Parse(e.URL); err == nil {
		return fmt.Errorf("%s: %w", show(u), e.Err)
	}
	return e.Err
}

// show returns an address for an error: without the query, where signatures are.
func show(u *url.URL) string {
	v := *u
	v.RawQuery, v.User, v.Fragment = "", nil, ""
	return clip(v.String())
}

// drain ends an answer, and has its connection used again if little is left.
func drain(r *http.Response) {
	_, _ = io.CopyN(io.Discard, r.Body, 4<<10) // an unreadable rest is not wanted
	r.Body.Close()
}

// retryAfter reads the header: seconds or a date; -1 for anything else.
func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n >= 0 {
		return time.Duration(min(n, 1<<20)) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(time.Until(t), 0)
	}
	return -1
}

// getSmall returns the whole of a small answer, with its header.
func (c *client) getSmall(ctx context.Context, address string, header http.Header, most int64) (data []byte,
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

// errStalled ends a slow body.
var errStalled = errors.New("the server sends nothing any more")

// watched is a body with a minimum speed: leastBytes within the patience, or the body is closed.
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
	if err != nil { // also io.EOF, the end of some closed bodies
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

// tokenHF returns the user's token for Hugging Face, in the places of Hugging Face's programs: HF_TOKEN, the file
// HF_TOKEN_PATH, or the file token in HF_HOME, by default .cache/huggingface in the user's folder.
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

// checkToken returns an error if a header cannot hold the token, without showing the token.
func checkToken(t, from string) error {
	if len(t) > maxToken || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s: no token: want one word of at most %d letters and digits", from, maxToken)
	}
	return nil
}

// Attempts without any progress, and the pauses between attempts.
const (
	attempts   = 6
	firstPause = time.Second
	longPause  = 30 * time.Second
	mostAfter  = 5 * time.Minute // the maximum wait granted to a server
)

// againKey is the context's key of a function called before each new try.
type tellKey struct{}

// unreachableHost returns the host of a failed connection, "" if err is another error.
func unreachableHost(err error) string {
	if e := (*net.DNSError)(nil); errors.As(err, &e) {
		return e.Name
	}
	if e := (*net.OpError)(nil); errors.As(err, &e) && e.Op == "dial" && e.Addr != nil {
		return e.Addr.String()
	}
	return ""
}

// retry calls try until success, a final error, or too many failures without progress. A name unknown to DNS is not
// asked for again.
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
		case errors.As(err, &refused), errors.As(err, &status) && !status.isTransient():
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
		if tell, ok := ctx.Value(tellKey{}).(func(error, int)); ok {
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

// limiter keeps the bytes of all its users below a rate.
type limiter struct {
	rate float64 // bytes a second; 0 is no limit
	mu   sync.Mutex
	next time.Time // when the bytes taken have been paid for
}

// wait takes n bytes, and reports whether there was a wait.
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

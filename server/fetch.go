package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Bounds of the pictures fetched for a request, all together. Their bytes are bounded as the request's body is.
const (
	fetchTime  = 30 * time.Second
	fetchMost  = 64
	fetchTurns = 3 // redirections of a picture
)

// fetcher gets pictures from listed hosts.
type fetcher struct {
	hosts  []string // HOST, HOST:PORT or *.DOMAIN, in small letters
	client *http.Client
}

// newFetcher returns a fetcher from the hosts alone.
func newFetcher(hosts []string) (*fetcher, error) {
	f := &fetcher{}
	for _, h := range hosts {
		name := strings.TrimPrefix(h, "*.")
		u, err := url.Parse("http://" + name)
		if err == nil && u.Port() != "" {
			_, err = strconv.ParseUint(u.Port(), 10, 16)
		}
		if err != nil || u.Host != name || u.Hostname() == "" || strings.Contains(name, "*") {
			return nil, fmt.Errorf("hosts of pictures: %q: want HOST, HOST:PORT or *.DOMAIN", h)
		}
		f.hosts = append(f.hosts, strings.ToLower(h))
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: f.checkAddress}
	f.client = &http.Client{CheckRedirect: f.checkTurn, Transport: &http.Transport{DialContext: dialer.DialContext,
		DisableCompression: true, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 10 * time.Second,
		MaxResponseHeaderBytes: 32 << 10, MaxConnsPerHost: 16, IdleConnTimeout: 30 * time.Second}}
	return f, nil
}

// errUnlisted is the error of an address that the operator has not listed.
var errUnlisted = errors.New("its host is none of those that the operator lists (--image-url-hosts)")

// check returns an error for a URL of another host.
func (f *fetcher) check(u *url.URL) error {
	port := u.Port()
	if standard := map[string]string{"http": "80", "https": "443"}[u.Scheme]; standard == "" || u.User != nil {
		return errors.New("want a URL of http or https without a user")
	} else if port == standard {
		port = ""
	}
	if !f.lists(strings.ToLower(u.Hostname()), port) {
		return errUnlisted
	}
	return nil
}

// lists reports whether a host and a port, "" being the scheme's, are listed.
func (f *fetcher) lists(host, port string) bool {
	own := host
	if strings.Contains(host, ":") { // an address of version 6
		own = "[" + host + "]"
	}
	if port != "" {
		own += ":" + port
	}
	return slices.ContainsFunc(f.hosts, func(h string) bool {
		domain, any := strings.CutPrefix(h, "*")
		return h == own || any && strings.HasSuffix(own, domain) && len(own) > len(domain)
	})
}

// checkAddress refuses connections to addresses that are not public, unless the address itself is listed: a name of the
// list may lead to it by mistake or by malice.
func (f *fetcher) checkAddress(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip, port := a.Addr().Unmap(), fmt.Sprint(a.Port())
	if isPublic(ip) || f.lists(ip.String(), port) || (port == "80" || port == "443") && f.lists(ip.String(), "") {
		return nil
	}
	return errors.New("its host has an address that is not public, and that the operator does not list itself")
}

// notPublic are ranges of addresses inside networks, besides netip's own.
var notPublic = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fec0::/10")}

// isPublic reports whether an address is of the public network.
func isPublic(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() && !ip.IsPrivate() &&
		!slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// checkTurn follows few redirections, and none to another host than the listed or from https to http.
func (f *fetcher) checkTurn(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) > fetchTurns:
		return fmt.Errorf("more than %d redirections", fetchTurns)
	case via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https":
		return errors.New("a redirection from https to http")
	}
	r.Header.Del("Referer")
	if err := f.check(r.URL); err != nil {
		return fmt.Errorf("a redirection: %w", err)
	}
	return nil
}

// fetching gets the pictures of a request.
type fetching struct {
	x     *exchange
	ctx   context.Context // nil before the first picture
	n     int
	bytes int64
}

// fetch returns the picture at an address in the request's field param.
func (g *fetching) fetch(param, address string) []byte {
	x, f := g.x, g.x.s.gate.pictures
	u, err := url.Parse(address)
	if err == nil {
		err = f.check(u)
	}
	if errors.Is(err, errUnlisted) {
		throw(unsupported(param, "%s: it is not fetched: %v; pictures also come as data: URLs, "+
			"data:image/png;base64,...", param, err))
	}
	if err != nil {
		fail(param, "no address of a picture: %v", plainURL(err))
	}
	if g.ctx == nil {
		ctx, cancel := context.WithTimeout(x.ctx, fetchTime)
		g.ctx, x.after = ctx, append(x.after, cancel)
	}
	if g.n++; g.n > fetchMost {
		fail(param, "more than %d pictures to fetch", fetchMost)
	}
	r, err := http.NewRequestWithContext(g.ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		fail(param, "no address of a picture: %v", plainURL(err))
	}
	r.Header.Set("User-Agent", "karat")
	r.Header.Set("Accept", "image/*")
	answer, err := f.client.Do(r)
	if err != nil {
		fail(param, "the picture was not fetched: %v", plainURL(err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		fail(param, "the picture was not fetched: its host answers %d", answer.StatusCode)
	}
	return g.read(param, answer)
}

// read reads a fetched picture.
func (g *fetching) read(param string, answer *http.Response) (data []byte) {
	x := g.x
	x.held.s, x.held.who = x.s, x.who.name
	for room := x.s.o.MaxBody - g.bytes; ; {
		if int64(len(data)) > room || answer.ContentLength > room {
			fail(param, "the fetched pictures have more than %d bytes together", x.s.o.MaxBody)
		}
		if len(data) == cap(data) { // memory for bytes present, not for promises
			size := max(leastBody, 2*cap(data))
			if !x.held.grow(x.held.size + int64(size-cap(data))) {
				throw(full("The requests that are being read are too large together"))
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := answer.Body.Read(data[len(data):cap(data)])
		switch data = data[:len(data)+n]; {
		case err == io.EOF && len(data) > 0 && int64(len(data)) <= room:
			g.bytes += int64(len(data))
			return data
		case err == io.EOF && len(data) == 0:
			fail(param, "the picture is empty")
		case err != nil && err != io.EOF:
			fail(param, "the picture was not fetched: %v", plainURL(err))
		}
	}
}

// plainURL returns an error without the address, which the request has.
func plainURL(err error) error {
	var of *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the pictures of the request took more than %v", fetchTime)
	case errors.As(err, &of):
		return of.Err
	}
	return err
}

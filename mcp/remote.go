package mcp

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// errPath is an answer of a server that may speak otherwise than asked.
var errPath = errors.New("is the path right, and is type http, or sse for an older server?")

// hide takes the values of the headers, and the secrets within the address, from a text.
func (s *Server) hide(text string) string {
	all := slices.Collect(maps.Values(s.Headers))
	if at, err := url.Parse(s.URL); err == nil && s.URL != "" {
		pass, _ := at.User.Password()
		all = append(all, at.RawQuery, pass, at.User.Username(), at.Fragment)
		all = append(all, slices.Concat(slices.Collect(maps.Values(at.Query()))...)...)
	}
	for _, v := range all {
		for _, v := range strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(";&,", r) }) {
			v = strings.TrimRight(v, "=")
			all = append(all, v[strings.LastIndexAny(v, " =")+1:])
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) }) // one may begin another
	for _, v := range all {
		if len(v) > 3 { // a shorter one would take words apart
			text = strings.ReplaceAll(text, v, "…")
		}
	}
	return text
}

// reach returns the way to a server's address.
func (p *process) reach(kind string) sdk.Transport {
	c := &http.Client{Transport: transport{p}, CheckRedirect: func(q *http.Request, via []*http.Request) error {
		last := via[len(via)-1]
		if len(via) > 5 {
			p.fail(fmt.Errorf("%s redirects in a circle: is the path right?", last.URL.Host))
		} else if q.Method != last.Method || last.URL.Scheme == "https" && q.URL.Scheme != "https" {
			p.fail(fmt.Errorf("%s redirects to %s: want that address as url", last.URL.Host, q.URL.Host+q.URL.Path))
		}
		return p.good()
	}}
	if kind == "sse" {
		return &sdk.SSEClientTransport{Endpoint: p.URL, HTTPClient: c, MaxEventSize: -1}
	}
	// A stream for the server's own messages would end the session where a proxy cuts streams that are silent.
	return &sdk.StreamableClientTransport{Endpoint: p.URL, HTTPClient: c, MaxEventSize: -1, DisableStandaloneSSE: true}
}

// transport carries a connection's requests: with the headers for the address's host alone, and with bounded answers.
type transport struct{ *process }

func (r transport) RoundTrip(q *http.Request) (*http.Response, error) {
	asked := q.Context()
	if q = q.Clone(asked); q.Method != http.MethodPost { // a stream outlives the request that opens it
		q = q.WithContext(r.life)
	}
	at, err := url.Parse(r.URL)
	if home := err == nil && at.Scheme == q.URL.Scheme && at.Host == q.URL.Host; home {
		for k, v := range r.Headers {
			q.Header.Set(k, v)
		}
	} else if q.Response == nil { // no redirection, but a stream of events
		err = fmt.Errorf("it wants its messages at %s, which is elsewhere", cmp.Or(q.URL.Host, q.URL.Scheme+":"))
	}
	var a *http.Response
	if err == nil {
		a, err = http.DefaultTransport.RoundTrip(q)
	}
	if err == nil {
		a.Body = &bounded{r: a.Body, budget: &r.budget}
		err = checkStatus(q, a, len(r.Headers) > 0)
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s ends the connection without an answer", q.URL.Host)
	}
	if bad := (*tls.CertificateVerificationError)(nil); errors.As(err, &bad) {
		err = fmt.Errorf("the certificate of %s: %w (SSL_CERT_FILE names more authorities)", q.URL.Host, bad.Err)
	}
	if err != nil {
		if asked.Err() == nil {
			r.fail(err)
		}
		return nil, err
	}
	return a, nil
}

// checkStatus returns an error for an answer that is one, and says what helps. The kit reads errors of the protocol.
func checkStatus(q *http.Request, a *http.Response, given bool) error {
	if kind := a.Header.Get("Content-Type"); a.StatusCode == http.StatusOK && strings.HasPrefix(kind, "text/html") {
		_ = a.Body.Close()
		return fmt.Errorf("%s answers with a page (text/html): %w", q.URL.Host, errPath)
	}
	if a.StatusCode < 400 || q.Method == http.MethodDelete {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(a.Body, 64<<10))
	_ = a.Body.Close()
	a.Body = io.NopCloser(bytes.NewReader(text))
	m, _ := jsonrpc.DecodeMessage(text)
	_, answer := m.(*jsonrpc.Response)
	says := fmt.Sprintf("%s answers %d %s", q.URL.Host, a.StatusCode, http.StatusText(a.StatusCode))
	switch code := a.StatusCode; {
	case code == http.StatusUnauthorized && strings.Contains(a.Header.Get("Www-Authenticate"), "resource_metadata"):
		return fmt.Errorf("%s: no login in a browser (OAuth) is done here: give a token in headers", says)
	case code == http.StatusUnauthorized && given:
		return fmt.Errorf("%s: the token in its headers is not good, or no longer", says)
	case code == http.StatusUnauthorized:
		return fmt.Errorf(`%s: it wants a token, as in "headers": {"Authorization": "Bearer ${TOKEN}"}`, says)
	case code == http.StatusForbidden:
		return fmt.Errorf("%s: its headers do not allow this", says)
	case q.Header.Get("Mcp-Session-Id") != "" && (code == http.StatusNotFound || code == 400 && !answer):
		a.StatusCode, a.Body = http.StatusNotFound, http.NoBody // the session is over, whatever the words
		return nil
	case answer:
		return nil
	case code < 500 && code != http.StatusTooManyRequests:
		return fmt.Errorf("%s: %w", says, errPath)
	}
	return errors.New(says)
}

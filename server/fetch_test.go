package server

import (
	"context"

	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/karat-run/karat"
)

// TestFetchedPictures: a picture at an address of a listed host is the picture, and all other addresses are refused
// without a connection.
func TestFetchedPictures(t *testing.T) {
	m, files := seer(t)
	var asked []string
	var away string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		if r.Header.Get("Referer") != "" || r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("headers %v", r.Header)
		}
		switch r.URL.Path {
		case "/a.png":
			w.Write(files[0])
		case "/turned":
			http.Redirect(w, r, "/a.png?x=1", http.StatusFound)
		case "/away":
			http.Redirect(w, r, away, http.StatusFound)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case "/large":
			w.Write(make([]byte, 3<<20))
		case "/promised":
			w.Header().Set("Content-Length", "1000000000")
		case "/empty":
		case "/text":
			w.Write([]byte("no picture"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer h.Close()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a host off the list was asked") }))
	defer other.Close()
	away = other.URL + "/secret"
	host := strings.TrimPrefix(h.URL, "http://")
	_, port, _ := strings.Cut(host, ":")
	c := serve(t, m, Options{ImageHosts: []string{host}, MaxBody: 2 << 20})
	say := func(url string) string {
		return `{"model":"demo","temperature":0,"max_tokens":4,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}}]}]}`
	}
	want := ""
	for x, err := range m.Chat(t.Context(), []karat.Message{{Role: karat.RoleUser, Parts: []karat.Part{karat.Image{Data: files[0]}}}}, karat.GenerateOptions{MaxTokens: 4, Sampling: &karat.Sampling{}}) {
		if err != nil {
			t.Fatal(err)
		}
		want += x.Text
	}
	for _, path := range []string{"/a.png", "/turned"} {
		if got := at(c.post("/v1/chat/completions", say(h.URL+path)), "choices", 0, "message", "content"); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	o := c.post("/v1/messages", `{"model":"demo","temperature":0,"max_tokens":4,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"`+h.URL+`/a.png"}}]}]}`)
	if got := at(o, "content", 0, "text"); got != want {
		t.Errorf("messages: %q, want %q", got, want)
	}
	asked = nil
	for url, holds := range map[string]string{
		other.URL + "/a.png":               "none of those that the operator lists",
		"https://example.org/a.png":        "none of those that the operator lists",
		"http://169.254.169.254/latest":    "none of those that the operator lists",
		"http://[::1]:" + port + "/a.png":  "none of those that the operator lists",
		"http://" + host + ".evil/a.png":   "no address of a picture",
		"http://user:x@" + host + "/a.png": "without a user",
		"ftp://" + host + "/a.png":         "http or https",
		"file:///etc/passwd":               "http or https",
	} {
		c.refuses(400, "messages[0].content[0].image_url.url", holds, "POST", "/v1/chat/completions", say(url))
	}
	named := serve(t, m, Options{ImageHosts: []string{"localhost:" + port}})
	named.refuses(400, "messages[0].content[0].image_url.url", "an address that is not public", "POST", "/v1/chat/completions", say("http://localhost:"+port+"/a.png"))
	if len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
	for path, holds := range map[string]string{"/away": "a redirection: its host is none", "/round": "more than 3 redirections",
		"/large": "more than 2097152 bytes", "/promised": "more than 2097152 bytes", "/empty": "the picture is empty", "/none": "answers 404"} {
		c.refuses(400, "messages[0].content[0].image_url.url", holds, "POST", "/v1/chat/completions", say(h.URL+path))
	}
	c.refuses(400, "messages[0]", "part 0: ", "POST", "/v1/chat/completions", say(h.URL+"/text"))
	if left := c.s.rooms.bodies.left(); left != allBodies {
		t.Errorf("%d bytes of bodies are held", allBodies-left)
	}
	blind := serve(t, demo(t), Options{ImageHosts: []string{host}})
	asked = nil
	blind.refuses(400, "messages[0].content[0].image_url.url", "", "POST", "/v1/chat/completions", say(h.URL+"/a.png"))
	if len(asked) > 0 {
		t.Errorf("for a model that sees nothing: asked for %q", asked)
	}
}

// TestImageHosts: lists of hosts, and addresses that are public.
func TestImageHosts(t *testing.T) {
	for _, bad := range []string{"", "a/b", "http://a", "a b", "*", "a.*", "u@a", "a:99999"} {
		if _, err := New(context.Background(), Options{Models: []Model{{Name: "demo", Model: demo(t)}}, ImageHosts: []string{bad}}); err == nil || strings.Contains(err.Error(), "ImageHosts") {
			t.Errorf("%q is taken for a host", bad)
		}
	}
	f, err := newFetcher([]string{"a.example", "B.example:8080", "*.cdn.example", "10.0.0.5", "[fd00::1]"})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		host, port string
		want       bool
	}{{"a.example", "", true}, {"a.example", "8080", false}, {"b.example", "8080", true}, {"b.example", "", false}, {"x.cdn.example", "", true},
		{"cdn.example", "", false}, {"xcdn.example", "", false}, {"10.0.0.5", "", true}, {"fd00::1", "", true}, {"fd00::2", "", false}} {
		if got := f.lists(x.host, x.port); got != x.want {
			t.Errorf("%s %q: %v", x.host, x.port, got)
		}
	}
	for address, want := range map[string]bool{"8.8.8.8": true, "2606:4700::1111": true, "127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false,
		"192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "0.0.0.0": false, "255.255.255.255": false, "224.0.0.1": false,
		"::1": false, "::": false, "fe80::1": false, "fc00::1": false, "64:ff9b::a00:1": false, "2002:a00:1::": false, "::ffff:10.0.0.1": false} {
		if got := isPublic(netip.MustParseAddr(address).Unmap()); got != want {
			t.Errorf("%s: public %v", address, got)
		}
		if err := f.checkAddress("tcp", netip.AddrPortFrom(netip.MustParseAddr(address), 443).String(), nil); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := f.checkAddress("tcp", "10.0.0.5:443", nil); err != nil {
		t.Error(err)
	}
}

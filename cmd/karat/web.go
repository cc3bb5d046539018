package main

import (
	"context"
	_ "embed"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/web"
	"github.com/spf13/cobra"
)

// The record for the page's proof: the demo's logits in float64, by "karat lab record --precision f64 --keep 1" of the
// prompts of testdata/records/demo. The limits, the cost of float32, are PyTorch's there, of the same model before
// quantization.
var (
	//go:embed demo.golden.json
	demoPrompts []byte
	//go:embed demo.golden.safetensors
	demoLogits []byte
)

// webFlags are the flags of web.
type webFlags struct {
	out  string
	port uint16
}

func newWebCommand() *cobra.Command {
	f := webFlags{port: 2424}
	c := define("web", f.run)
	c.flags("output", file(&f.out), "port", &f.port)
	alias(c.Flags(), "output", "out")
	return c.Command
}

func (f *webFlags) run(x *call) error {
	site := must(newSite(false))
	if f.out != "" {
		throw(site.Write(f.out))
		total := 0
		for _, file := range site.Files() {
			total += len(file.Data)
		}
		return x.printf("%s: %d files, %s\n", oneLine(f.out), len(site.Files()), bytesText(int64(total)))
	}
	l := must(listenTCP(x.ctx, "127.0.0.1", f.port))
	defer l.Close()
	throw(x.printf("http://%s/\n", l.Addr()))
	return serve(x.ctx, l, site)
}

// newSite makes the page's site; a served one begins with the models of its server.
func newSite(served bool) (*web.Site, error) {
	p, err := web.Embedded()
	if err != nil {
		return nil, err
	}
	return web.New(karat.Version(), served, p, web.File{Name: "demo.gguf", Data: demo},
		web.File{Name: "demo.golden.json", Data: demoPrompts},
		web.File{Name: "demo.golden.safetensors", Data: demoLogits})
}

// sitePaths lists the paths of a site's files.
var sitePaths = []string{"/", "/demo.gguf", "/demo.golden.json", "/demo.golden.safetensors", "/icon.svg", "/karat.js",
	"/karat.wasm", "/lib/highlight.js", "/lib/katex.js", "/lib/marked.js", "/lib/report.js", "/manifest.json", "/sw.js"}

// latePages returns the handlers of a site that is made at the first request of a path: unpacking and hashing the
// module take 0.3 s and 35 MB.
func latePages() map[string]http.Handler {
	made := sync.OnceValues(func() (map[string]http.Handler, error) {
		site, err := newSite(true)
		if err != nil {
			return nil, err
		}
		return site.Pages(), nil
	})
	pages := map[string]http.Handler{}
	for _, path := range sitePaths {
		pages[path] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			all, err := made()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			all[path].ServeHTTP(w, r)
		})
	}
	return pages
}

// serve serves a site until the program's end by a signal, then no failure.
func serve(ctx context.Context, l net.Listener, site *web.Site) error {
	s := &http.Server{Handler: site.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10}
	end := context.AfterFunc(ctx, func() { s.Close() })
	defer end()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

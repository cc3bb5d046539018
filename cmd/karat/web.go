package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/web"
	"github.com/spf13/cobra"
)

// The record that the page proves itself by: the demo's logits in float64, by
// "karat lab record --precision f64 --keep 1" of the prompts of testdata/records/demo. What
// float32 costs (the limits) is PyTorch's there, of the same model before quantization.
var (
	//go:embed demo.golden.json
	demoPrompts []byte
	//go:embed demo.golden.safetensors
	demoLogits []byte
)

type webFlags struct {
	out  string
	port uint16
}

func newWebCommand() *cobra.Command {
	var f webFlags
	c := &cobra.Command{
		Use:   "web [-o DIR]",
		Short: "Serve a page that runs models in the browser, or write it to a folder",
		Long: `Web serves a page on this machine that runs models in the browser: on the GPU through
WebGPU, or else on the processor. The page chats, proves that this browser computes the
right values, measures speed, and shows the values of each node. Everything that you write
there stays in the browser. The demo model is there at once. Other models come from a file or
an address, and the browser keeps them.

With -o the complete site is written to a folder, for any file server with https;
docs/web.md lists the headers that it should send.`,
		Example: `  karat web
  karat web --port 0
  karat web -o site`,
		Args: byUse,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().SortFlags = false
	c.Flags().VarP((*name)(&f.out), "output", "o", "`folder` to write the site to, instead of serving it")
	alias(c.Flags(), "output", "out")
	c.Flags().Uint16Var(&f.port, "port", 2424, "`port` to serve on; 0 is any free port")
	return c
}

func (f *webFlags) run(c *cobra.Command) error {
	ctx, stop := interruptible()
	defer stop()
	err := f.serveOrWrite(ctx, c.OutOrStdout())
	if err != nil && ctx.Err() != nil {
		fmt.Fprintln(c.ErrOrStderr(), "karat: interrupted")
		return failure{status: statusInterrupted}
	}
	return err
}

func (f *webFlags) serveOrWrite(ctx context.Context, out io.Writer) error {
	if f.out != "" {
		site, err := newSite()
		if err != nil {
			return err
		}
		if err := site.Write(f.out); err != nil {
			return err
		}
		total := 0
		for _, x := range site.Files() {
			total += len(x.Data)
		}
		_, err = fmt.Fprintf(out, "%s: %d files, %s\n", oneLine(f.out), len(site.Files()), bytesText(int64(total)))
		return err
	}
	l, err := listenTCP(ctx, "127.0.0.1", f.port)
	if err != nil {
		return err
	}
	defer l.Close()
	site, err := newSite()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "http://%s/\n", l.Addr()); err != nil {
		return err
	}
	return serve(ctx, l, site)
}

func newSite() (*web.Site, error) {
	p, err := web.Embedded()
	if err != nil {
		return nil, err
	}
	return web.New(karat.Version(), p, web.File{Name: "demo.gguf", Data: demo},
		web.File{Name: "demo.golden.json", Data: demoPrompts}, web.File{Name: "demo.golden.safetensors", Data: demoLogits})
}

// serve serves a site until the program is told to end, which is no failure then.
func serve(ctx context.Context, l net.Listener, site *web.Site) error {
	s := &http.Server{Handler: site.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	end := context.AfterFunc(ctx, func() { s.Close() })
	defer end()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

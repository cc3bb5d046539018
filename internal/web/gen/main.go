// Command gen builds the files that a release embeds into package web.
package main

import (
	"compress/gzip"
	"context"
	"io"
	"log"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/web"
)

func main() {
	p, err := web.Build(context.Background(), "", func(s string) { log.Print(s) })
	if err != nil {
		log.Fatal(err)
	}
	for name, data := range map[string][]byte{"karat.wasm.gz": p.Wasm, "wasm_exec.js.gz": p.Exec} {
		err := atomicfile.Write(name, func(w io.Writer) error {
			z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
			if err != nil {
				return err
			}
			if _, err := z.Write(data); err != nil {
				return err
			}
			return z.Close()
		})
		if err != nil {
			log.Fatal(err)
		}
	}
}

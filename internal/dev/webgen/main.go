// Command gen makes internal/web/program, the page's program: go generate
// ./internal/web. With -check it fails if the program differs from the one that the source makes.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/andybalholm/brotli"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/dev/webbuild"
)

func main() {
	log.SetFlags(0)
	check := flag.Bool("check", false, "compare, and write nothing")
	flag.Parse()
	if err := generate(context.Background(), filepath.Join("..", ".."), *check); err != nil {
		log.Fatal(err)
	}
}

// generate builds the program of the module in root, and writes it or compares it with
// the files in the folder program.
func generate(ctx context.Context, root string, check bool) error {
	wasm, exec, err := build.Build(ctx, root)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(wasm)
	about := build.About{SHA256: hex.EncodeToString(sum[:]), Bytes: len(wasm)}
	if about.Go, err = build.Release(ctx, root); err != nil {
		return err
	}
	if about.Source, err = build.Source(ctx, root); err != nil {
		return err
	}
	if about.Calls, err = build.Calls(root); err != nil {
		return err
	}
	text, err := json.MarshalIndent(about, "", "\t")
	if err != nil {
		return err
	}
	files := map[string][]byte{"about.json": append(text, '\n'), "wasm_exec.js": exec}
	if check {
		return compare(files, wasm)
	}
	files["karat.wasm.br"] = pack(wasm)
	if err := os.MkdirAll("program", 0o777); err != nil {
		return err
	}
	for name, data := range files {
		err := atomicfile.Write(filepath.Join("program", name), func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
		if err != nil {
			return err
		}
	}
	fmt.Printf("karat.wasm: %d bytes, %d compressed\n", len(wasm), len(files["karat.wasm.br"]))
	return nil
}

// pack compresses as well as brotli can.
func pack(data []byte) []byte {
	var b bytes.Buffer
	w := brotli.NewWriterOptions(&b, brotli.WriterOptions{Quality: 11, LGWin: 24})
	w.Write(data) // a Buffer takes all
	w.Close()
	return b.Bytes()
}

// compare compares with the committed module: its bytes, not its compressed form.
func compare(files map[string][]byte, wasm []byte) error {
	const stale = "internal/web/program is not what the source makes (%s): run " + build.Command
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("program", name))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf(stale, fmt.Sprintf("%s is %.300q, and should be %.300q", name, got, want))
		}
	}
	f, err := os.Open(filepath.Join("program", "karat.wasm.br"))
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := io.ReadAll(brotli.NewReader(f))
	if err != nil {
		return fmt.Errorf("program/karat.wasm.br: %w", err)
	}
	if !bytes.Equal(got, wasm) {
		return fmt.Errorf(stale, "karat.wasm")
	}
	return nil
}

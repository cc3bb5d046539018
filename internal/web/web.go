// Package web makes the site for running Karat in a browser: an HTML page, a script, a WebAssembly module, and the demo
// model with its record. The page needs nothing from elsewhere. [Site.Handler] (serve.go) serves the site,
// [Site.Write] (web.go) writes the site as files.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/lab/report"
	"github.com/karat-run/karat/js"
)

//go:embed page
var page embed.FS

// packed are the page's libraries, which come when an answer needs them: Markdown, code and mathematics. .ci/libs
// compares each with its publisher's package.
//
//go:embed lib/*.js.gz
var packed embed.FS

// libraries returns the libraries as files of a site.
func libraries() (files []File, err error) {
	for _, name := range []string{"marked", "highlight", "katex"} {
		f, err := packed.Open("lib/" + name + ".js.gz")
		if err != nil {
			return nil, err
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(z)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: "lib/" + name + ".js", Data: data})
	}
	return append(files, File{Name: "lib/report.js", Data: report.Drawing()}), nil // for diagnoses
}

// common are the modules of the npm package in karat.js, in order; scripts are the parts of the page alone. The page
// and its worker run the same file: the last part finds out in which of the two it runs.
var (
	common  = []string{"kernels.js", "simd.js", "hub.js", "store.js", "worker.js", "client.js"}
	scripts = []string{"words.js", "dom.js", "driver.js", "models.js", "talks.js", "settings.js", "markdown.js",
		"chat.js", "proof.js", "bench.js", "files.js", "probe.js", "main.js"}
)

// Program is the compiled part of a site.
type Program struct {
	Wasm   []byte // the module
	Brotli []byte // the compressed module, or nil
	Exec   []byte // wasm_exec.js of the Go release behind the module
}

// File is a file of a site.
type File struct {
	Name   string
	Data   []byte
	Brotli []byte // the compressed data, or nil
}

// Site is a static site, complete.
type Site struct {
	files  []File
	policy string // its Content-Security-Policy
}

// New makes the site of a program, with further files beside it. A served site is that of a server of models: the page
// begins with the server's.
func New(version string, served bool, p Program, beside ...File) (*Site, error) {
	script, err := script(version, served, p, beside)
	if err != nil {
		return nil, fmt.Errorf("script: %w", err)
	}
	s := &Site{}
	html, err := s.page()
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	own := []File{{"index.html", html, nil}, {"karat.js", script, nil}, {"karat.wasm", p.Wasm, p.Brotli}}
	libs, err := libraries()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"icon.svg", "manifest.json", "sw.js"} { // which make the page an installed program
		data, err := page.ReadFile("page/" + name)
		if err != nil {
			return nil, err
		}
		libs = append(libs, File{Name: name, Data: data})
	}
	s.files = slices.Concat(own, beside, libs)
	return s, nil
}

// script returns karat.js, for the page and its worker.
func script(version string, served bool, p Program, beside []File) ([]byte, error) {
	type fact struct {
		Bytes  int    `json:"bytes"`
		SHA256 string `json:"sha256"`
	}
	facts := map[string]fact{}
	for _, f := range append([]File{{"karat.wasm", p.Wasm, nil}}, beside...) {
		facts[f.Name] = fact{len(f.Data), fmt.Sprintf("%x", sha256.Sum256(f.Data))}
	}
	site, err := json.Marshal(map[string]any{"version": version, "server": served, "files": facts})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(p.Exec)
	b.WriteString(gpu.Shim)
	fmt.Fprintf(&b, "\n(() => {\n'use strict';\nconst SITE = %s;\n", site)
	modules, err := js.Joined(common...)
	if err != nil {
		return nil, err
	}
	b.Write(modules)
	for _, name := range scripts {
		text, err := page.ReadFile("page/" + name)
		if err != nil {
			return nil, err
		}
		b.Write(text)
	}
	b.WriteString("})();\n")
	return b.Bytes(), nil
}

// page returns index.html with its style inside. The policy allows this style and the site's script, nothing else, and
// requests to other sites for models alone.
func (s *Site) page() ([]byte, error) {
	style, err := page.ReadFile("page/style.css")
	if err != nil {
		return nil, err
	}
	html, err := page.ReadFile("page/index.html")
	if err != nil {
		return nil, err
	}
	text := "\n" + string(style)
	sum := sha256.Sum256([]byte(text))
	s.policy = strings.Join([]string{
		"default-src 'none'",
		"script-src 'self' 'wasm-unsafe-eval'",
		"style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
		"worker-src 'self'",
		"connect-src 'self' https: http://127.0.0.1:* http://localhost:*",
		"img-src 'self' data:",
		"manifest-src 'self'",
		"base-uri 'none'",
		"form-action 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types karat",
	}, "; ")
	return []byte(strings.NewReplacer("{{policy}}", s.policy, "{{style}}", text).Replace(string(html))), nil
}

// Write writes the site to a new or an empty folder.
func (s *Site) Write(dir string) error {
	return atomicfile.WriteFolder(dir, func(dir string) error {
		if err := os.Mkdir(filepath.Join(dir, "lib"), 0o777); err != nil {
			return err
		}
		for _, f := range s.files {
			if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o666); err != nil {
				return err
			}
		}
		return nil
	})
}

// Files returns the site's files.
func (s *Site) Files() []File { return s.files }

// Every karat has the program inside, so users build nothing. CI builds the program and compares (docs/web.md).
//
//go:generate go run ../dev/webgen

//go:embed program/karat.wasm.br
var wasm []byte

//go:embed program/wasm_exec.js
var wasmExec []byte

// Embedded returns the program inside karat.
func Embedded() (Program, error) {
	module, err := io.ReadAll(brotli.NewReader(bytes.NewReader(wasm)))
	if err != nil {
		return Program{}, fmt.Errorf("the program inside: %w", err)
	}
	return Program{Wasm: module, Brotli: wasm, Exec: wasmExec}, nil
}

// Package build compiles the page's program (internal/web/program) from Karat's source, for
// go generate and tests, never for the command.
package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Command is how the program is made anew, in the module's folder.
const Command = "go generate ./internal/web"

const program = "./internal/web/wasm" // seen from the module's folder

const tags = "-tags=karat_wasmsimd" // the kernels that js/simd.js gives

// About is program/about.json.
type About struct {
	Go     string `json:"go"`     // the release that built it
	Source string `json:"source"` // Source then
	SHA256 string `json:"sha256"` // of the module
	Bytes  int    `json:"bytes"`  // of the module
	Calls  string `json:"calls"`  // Calls then
}

// Build builds the program from the source in root, the module's folder: the same bytes
// wherever the source and the release of Go are the same.
func Build(ctx context.Context, root string) (wasm, exec []byte, err error) {
	dir, err := os.MkdirTemp("", "karat-web-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "karat.wasm")
	if _, err := run(ctx, root, "build", tags, "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", out,
		program); err != nil {
		return nil, nil, err
	}
	if wasm, err = os.ReadFile(out); err != nil {
		return nil, nil, err
	}
	goroot, err := run(ctx, root, "env", "GOROOT")
	if err != nil {
		return nil, nil, err
	}
	exec, err = os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return nil, nil, err
	}
	return wasm, exec, nil
}

// Release is the release of Go that builds.
func Release(ctx context.Context, root string) (string, error) {
	out, err := run(ctx, root, "env", "GOVERSION")
	return strings.TrimSpace(string(out)), err
}

// Source is a hash of all that the program is built of, but for Go's own: the files of
// its packages, and the versions of those of other modules.
func Source(ctx context.Context, root string) (string, error) {
	out, err := run(ctx, root, "list", tags, "-deps", "-json=ImportPath,Dir,Standard,Module,GoFiles,SFiles,EmbedFiles",
		program)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir             string
			Standard                    bool
			Module                      *struct{ Version, GoVersion string }
			GoFiles, SFiles, EmbedFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		} else if err != nil {
			return "", fmt.Errorf("go list: %w", err)
		}
		if p.Standard || p.Module == nil {
			continue
		}
		fmt.Fprintf(h, "%s %s %s\n", p.ImportPath, p.Module.Version, p.Module.GoVersion)
		if p.Module.Version != "" {
			continue // go.sum tells its bytes
		}
		for _, name := range slices.Concat(p.GoFiles, p.SFiles, p.EmbedFiles) {
			data, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return "", err
			}
			data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
			fmt.Fprintf(h, "%s %x\n", name, sha256.Sum256(data))
		}
	}
}

// Calls is a hash of what the page and the program know of each other: of that part of the
// source of which an older program does not do.
func Calls(root string) (string, error) {
	h := sha256.New()
	for _, pattern := range []string{"internal/web/wasm/*.go", "internal/web/probe/*.go", "internal/jsasync/*.go",
		"internal/backend/webgpu/gpu/*.js", "internal/simd/kernels_js.s"} {
		names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(names) == 0 {
			return "", fmt.Errorf("%s: %d files, %w", pattern, len(names), err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			data, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%s %x\n", filepath.Base(name), sha256.Sum256(bytes.ReplaceAll(data, []byte("\r\n"),
				[]byte("\n"))))
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// run runs the go command in root for the browser's platform, and gives what it says.
// What the user's environment says of builds does not count.
func run(ctx context.Context, root string, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = root
	c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=", "GOWASM=", "GOEXPERIMENT=",
		"GOWORK=off", "GOFIPS140=off")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		said := strings.Join(strings.Fields(errs.String()), " ")
		return nil, fmt.Errorf("go %s: %w: %.400s", strings.Join(args, " "), errors.Join(ctx.Err(), err), said)
	}
	return out.Bytes(), nil
}

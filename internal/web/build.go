package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	module  = "github.com/karat-run/karat"
	command = "./internal/web/wasm" // the program in the browser, seen from the module's folder
)

// ErrNoGo: the program has no WebAssembly inside, and there is no Go to build it with.
var ErrNoGo = errors.New("the page's WebAssembly is built by Go, which is not here: install it from go.dev/dl, or use a released karat, which has the page inside")

// Load is the program that was embedded (-tags embedweb), or one built now by the
// Go toolchain of this machine: from the module that the working directory is in or
// requires, or else from the given version of Karat. say is told before a build.
func Load(ctx context.Context, version string, say func(string)) (Program, error) {
	if p, err := embedded(); err != nil || p.Wasm != nil {
		return p, err
	}
	return Build(ctx, version, say)
}

// Build builds the program with the Go toolchain of this machine.
func Build(ctx context.Context, version string, say func(string)) (p Program, err error) {
	if _, err := exec.LookPath("go"); err != nil {
		return p, fmt.Errorf("web: %w", ErrNoGo)
	}
	src, err := source(ctx, version)
	if err != nil {
		return p, fmt.Errorf("web: %w", err)
	}
	dir, err := os.MkdirTemp("", "karat-web-")
	if err != nil {
		return p, fmt.Errorf("web: %w", err)
	}
	defer os.RemoveAll(dir)
	say("building the page's WebAssembly from " + src + "; the first time this takes a minute")
	out := filepath.Join(dir, "karat.wasm")
	if _, err := run(ctx, "-C", src, "build", "-trimpath", "-ldflags=-s -w", "-o", out, command); err != nil {
		return p, fmt.Errorf("web: %w", err)
	}
	if p.Wasm, err = os.ReadFile(out); err != nil {
		return p, fmt.Errorf("web: %w", err)
	}
	root, err := run(ctx, "-C", src, "env", "GOROOT") // of the release that built it, which the module may choose
	if err != nil {
		return p, fmt.Errorf("web: %w", err)
	}
	if p.Exec, err = os.ReadFile(filepath.Join(root, "lib", "wasm", "wasm_exec.js")); err != nil {
		return p, fmt.Errorf("web: %w", err)
	}
	return p, nil
}

// source is the folder of Karat's module.
func source(ctx context.Context, version string) (string, error) {
	dir, err := run(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err == nil && dir != "" {
		return dir, nil
	}
	if !strings.HasPrefix(version, "v") {
		return "", fmt.Errorf("the page's WebAssembly is built from Karat's source, and this is none of its releases: run karat in a clone of it (%w)", err)
	}
	out, err := run(ctx, "mod", "download", "-json", module+"@"+version)
	if err != nil {
		return "", err
	}
	var found struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return "", fmt.Errorf("go mod download: %w", err)
	}
	return found.Dir, nil
}

// run runs the go command for the browser's platform, and gives what it says.
func run(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", args...)
	c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=", "GOWASM=")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		said := strings.Join(strings.Fields(errs.String()), " ")
		return "", fmt.Errorf("go %s: %w: %.400s", strings.Join(args, " "), errors.Join(ctx.Err(), err), said)
	}
	return strings.TrimSpace(out.String()), nil
}

package lint

import (
	"debug/elf"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// goTool is what the go command prints, run in the module's root.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command("go", args...)
	c.Dir = "../../.."
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "GOWASM=") // sizes are of one system
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// optional are packages that the library does not link.
var optional = regexp.MustCompile(`gogpu/|goffi|cobra|chromedp|brotli|/backend/webgpu|karat/webgpu|karat/server|prometheus|VictoriaMetrics|net/http|karat/internal/(lab|web|bench|eval)`)

// TestLibraryLinks: what a program has that imports karat. A blank import of karat/webgpu adds GPUs.
func TestLibraryLinks(t *testing.T) {
	for _, p := range strings.Fields(goTool(t, "list", "-deps", ".")) {
		if optional.MatchString(p) {
			t.Errorf("package karat links %s", p)
		}
	}
	if all := goTool(t, "list", "-deps", "./webgpu"); !strings.Contains(all, "github.com/gogpu/wgpu/hal") || !strings.Contains(all, "karat/internal/backend/numerics") {
		t.Errorf("package webgpu links no GPUs:\n%s", all)
	}
}

// testOnly are the direct requirements that only tests import, with the reason. Go downloads a requirement
// for a program only if one of its packages is linked, so none of these reaches a program that uses Karat.
var testOnly = map[string]string{
	"github.com/chromedp/chromedp":             "tests of pages and shaders use what tests of the same packages have, and go test ./... runs them",
	"github.com/chromedp/cdproto":              "chromedp's types",
	"github.com/rogpeppe/go-internal":          "scripts of the command run its main function, which no other module can import",
	"github.com/santhosh-tekuri/jsonschema/v6": "a validator that is not ours says whether answers fit their schemas, beside the tests of grammars",
}

// TestRequirements: what go.mod requires is linked by the library or the command. What only tests want is a module
// of its own (internal/dev/oracle), a tool (.ci/tools.mod), or has a reason.
func TestRequirements(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal([]byte(goTool(t, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	for _, module := range strings.Fields(goTool(t, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")) {
		linked[module] = true
	}
	for _, r := range mod.Require {
		switch {
		case r.Indirect:
		case linked[r.Path] && testOnly[r.Path] != "":
			t.Errorf("%s is linked, and listed as a requirement of tests", r.Path)
		case !linked[r.Path] && testOnly[r.Path] == "":
			t.Errorf("only tests import %s", r.Path)
		}
	}
}

// needsBuild skips a test that builds a program with -trimpath, for which no other build's results
// serve: .ci/run has the minute that this takes.
func needsBuild(t *testing.T) {
	t.Helper()
	if os.Getenv("KARAT_COMPLETE") == "" {
		t.Skip("KARAT_COMPLETE is not set: this builds a program anew; .ci/run does")
	}
}

// TestHelloSize: the README's program, for Linux on amd64, which links what runs a model on the CPU and nothing
// else. Without symbols it has 8.2 MB: 0.2 are fourteen families more, 0.3 see pictures and decode them, 0.1 are for receipts, 0.2 find models by names, 0.2 are for grids of GGUF
// types, and 0.5 for folders of quantized weights, whose modules are named by regular expressions. What goes beyond should be linked only where a program asks for it.
func TestHelloSize(t *testing.T) {
	needsBuild(t)
	path := filepath.Join(t.TempDir(), "hello")
	goTool(t, "build", "-trimpath", "-o", path, "./internal/dev/lint/testdata/hello")
	full, stripped := sizes(t, path)
	t.Logf("%d bytes, %d without symbols", full, stripped)
	if full > 12.4e6 || stripped > 8.8e6 {
		t.Errorf("the program has %d bytes, %d without symbols: at most 12.4 and 8.8 MB are wanted", full, stripped)
	}
	said(t, "README.md", "The program above", full, stripped, 0.2)
	said(t, "docs/ARCHITECTURE.md", "A program that only generates text", full, stripped, 0.2)
	// It has no chat, so it needs no templates, and none of what they compute with.
	names := goTool(t, "tool", "nm", path)
	for _, name := range []string{"karat/jinja.Parse", "math/big.(*Int).", "net/http."} {
		if strings.Contains(names, name) {
			t.Errorf("the program links %s", name)
		}
	}
}

// TestCommand: the linker prunes methods of the command, and its size is what the docs say. Where a
// program can look for a method by a name that it computes, as text/template does, the linker keeps
// every exported method: 4 MB.
func TestCommand(t *testing.T) {
	needsBuild(t)
	path := filepath.Join(t.TempDir(), "karat")
	goTool(t, "build", "-trimpath", "-o", path, "./cmd/karat")
	if names := goTool(t, "tool", "nm", path); !strings.Contains(names, "backend/webgpu.parseTemplates") || strings.Contains(names, "text/template.(*state).evalField") {
		t.Error("the command executes templates of text/template, or none at all: backend/webgpu does it without methods' names")
	}
	full, stripped := sizes(t, path)
	t.Logf("%d bytes, %d without symbols", full, stripped)
	if full > 49.7e6 || stripped > 37.9e6 {
		t.Errorf("the command has %d bytes, %d without symbols: at most 49.7 and 37.9 MB are wanted", full, stripped)
	}
	said(t, "docs/ARCHITECTURE.md", "The command", full, stripped, 1)
}

// sizes are the bytes of an ELF file, and of those that the program itself needs.
func sizes(t *testing.T, path string) (full, stripped int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	full, stripped = info.Size(), info.Size()
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC == 0 && s.Type != elf.SHT_NOBITS {
			stripped -= int64(s.FileSize)
		}
	}
	return full, stripped
}

// said compares what a document says of a program, "NAME has 8.6 MB, 6.0 without symbols", with its
// size: they may differ by so many megabytes.
func said(t *testing.T, file, name string, full, stripped int64, most float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../..", file))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(name + ` has ([0-9.]+) MB, ([0-9.]+) without symbols`).FindStringSubmatch(strings.Join(strings.Fields(string(text)), " "))
	if m == nil {
		t.Errorf("%s does not say how large it is: %s", file, name)
		return
	}
	for i, bytes := range []int64{full, stripped} {
		if mb, err := strconv.ParseFloat(m[i+1], 64); err != nil || math.Abs(mb-float64(bytes)/1e6) > most {
			t.Errorf("%s: %s has %s MB, it is %.1f", file, name, m[i+1], float64(bytes)/1e6)
		}
	}
}

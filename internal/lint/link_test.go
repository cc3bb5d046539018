package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/registry"
)

// goTool is what the go command prints, run in the module's root.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command("go", args...)
	c.Dir = "../.."
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
var optional = regexp.MustCompile(`gogpu/|goffi|cobra|chromedp|brotli|regexp2|/backend/webgpu|karat/webgpu|karat/server|prometheus|net/http|karat/internal/(lab|web|bench|eval)`)

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

// TestHelloSize: the README's program, for Linux on amd64, was 15.9 MB with its symbols and
// 11.2 without when it linked GPUs. What is beyond the bounds should be linked only where a
// program asks for it. A family may cost 50 kB, 35 without symbols; NFKC, the splitters of 80
// pre-tokenizers and the middle of families with states cost 250 and 200 in all, prompts that
// are found to within a page and steps of a bounded load 20.
func TestHelloSize(t *testing.T) {
	dir, families := t.TempDir(), int64(len(registry.Families))
	for _, b := range []struct {
		flags string
		most  int64
	}{{"", 6_950_000 + families*50_000}, {"-s -w", 4_820_000 + families*35_000}} {
		path := filepath.Join(dir, "hello")
		goTool(t, "build", "-trimpath", "-ldflags", b.flags, "-o", path, "./internal/lint/testdata/hello")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("-ldflags %q: %d bytes", b.flags, info.Size())
		if info.Size() > b.most {
			t.Errorf("-ldflags %q: the program has %d bytes, at most %d are wanted", b.flags, info.Size(), b.most)
		}
		if b.flags != "" {
			continue
		}
		// It has no chat, so it needs no templates, and none of what they compute with.
		names := goTool(t, "tool", "nm", path)
		for _, name := range []string{"karat/jinja.Parse", "regexp.Compile", "math/big.(*Int)."} {
			if strings.Contains(names, name) {
				t.Errorf("the program links %s", name)
			}
		}
	}
}

// TestMethodsPruned: where a program can look for a method by a name that it computes, as
// text/template does, the linker keeps every exported method: 4 MB of the command.
func TestMethodsPruned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "karat")
	goTool(t, "build", "-trimpath", "-o", path, "./cmd/karat")
	if names := goTool(t, "tool", "nm", path); !strings.Contains(names, "text/template/parse.Parse") || strings.Contains(names, "text/template.(*state).evalField") {
		t.Error("the command executes templates of text/template, or none at all: internal/template does it without methods' names")
	}
}

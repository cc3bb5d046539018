package lint

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestTable wants docs/families.md to have a row for each family's model, that ends with the
// family's folder and the lines of the model and of family.go as they are.
func TestTable(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(golden.Root(t), "docs", "families.md"))
	if err != nil {
		t.Fatal(err)
	}
	model, family := map[string]int{}, map[string]int{} // lines by folder
	for _, s := range sources(t) {
		switch name := path.Base(s.dir()); {
		case path.Dir(s.dir()) != "internal/arch" || s.test():
		case path.Base(s.name) == "family.go":
			family[name] = s.lines
		default:
			model[name] += s.lines
		}
	}
	var rows []string
	for row := range strings.Lines(string(b)) {
		rows = append(rows, strings.TrimSpace(row))
	}
	for _, name := range slices.Concat(golden.Families(t), golden.Encoders(t), golden.Rerankers(t)) {
		i := slices.IndexFunc(rows, func(row string) bool { return strings.HasPrefix(row, "| "+name+" |") })
		if i < 0 {
			t.Errorf("docs/families.md has no row of %s", name)
		}
	}
	for folder := range family {
		end := fmt.Sprintf("| %s: %d, %d |", folder, model[folder], family[folder])
		if !slices.ContainsFunc(rows, func(row string) bool { return strings.HasSuffix(row, end) }) {
			t.Errorf("docs/families.md has no row that ends with %q", end)
		}
	}
}

// pathInText matches a file or a folder of the tree in a document: `graph/builder.go`, `backend/webgpu/shaders`.
var pathInText = regexp.MustCompile("`([a-z0-9_-]+(?:/[a-zA-Z0-9_.-]+)+)`")

// TestPathsExist wants the folders and files that docs/ARCHITECTURE.md sends its readers to.
func TestPathsExist(t *testing.T) {
	root := golden.Root(t)
	b, err := os.ReadFile(filepath.Join(root, "docs", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pathInText.FindAllStringSubmatch(string(b), -1) {
		name := strings.Replace(m[1], "NAME", "llama", 2)
		if !slices.ContainsFunc([]string{"", "internal", "cmd/karat", "docs"}, func(dir string) bool {
			_, err := os.Stat(filepath.Join(root, dir, filepath.FromSlash(name)))
			return err == nil
		}) {
			t.Errorf("docs/ARCHITECTURE.md: there is no %s", m[1])
		}
	}
}

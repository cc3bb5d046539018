package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Limits of what a reader must keep in mind at once.
const (
	maxMethods  = 25  // methods of one type
	maxFields   = 20  // fields of one struct, settings apart
	maxColumns  = 120 // columns of a line, a tab being four
	maxArrowsUp = 20  // percent of the arrows between a package's files that may run against its order
)

// manyFields names the structs with more fields than the limit, as "folder.Type", with the reason.
// The Config of an architecture is apart: the struct lists the settings of its paper.
var manyFields = map[string]string{
	"..GenerateOptions":                "settings of a request",
	"cmd/karat.serveFlags":             "flags of one command",
	"internal/backend/cpu.activations": "a plan's buffers, one beside the other",
	"internal/bench.Result":            "a line of the measurements, as JSON",
	"internal/dev/serving.flags":       "flags of one command",
	"internal/dev/serving.Row":         "a line of the measurements, as JSON",
	"internal/family.Family":           "the facts of a family: 24 at most",
	"internal/tokenizer.GGUF":          "the keys of a GGUF file",
	"internal/tokenizer.jsonStep":      "the keys of a tokenizer.json",
}

// manyMethods names the types with more methods than the limit, as "folder.Type", with the reason. The list only gets
// shorter.
var manyMethods = map[string]string{
	"..Model":                        "the library's surface: a method a task",
	"internal/graph.Builder":         "a method an operation",
	"internal/dev/backendtest.suite": "a method an operation",
	"internal/quant.encoder":         "a method a format",
}

// productSources returns the hand-written files outside tests.
func productSources(all []*source) []*source {
	return slices.DeleteFunc(slices.Clone(all), func(s *source) bool { return s.test() || s.generated })
}

// wideTypes finds types of too many methods and structs of too many fields.
func wideTypes(all []*source) (findings []string) {
	methods := map[string]int{}
	for _, s := range productSources(all) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch d := n.(type) {
			case *ast.FuncDecl:
				if name := receiver(d); name != "" {
					methods[s.dir()+"."+name]++
				}
				return false
			case *ast.TypeSpec:
				body, ok := d.Type.(*ast.StructType)
				if !ok {
					return false
				}
				name, fields := s.dir()+"."+d.Name.Name, 0
				for _, f := range body.Fields.List {
					fields += max(1, len(f.Names))
				}
				if fields > maxFields && manyFields[name] == "" && !isArchConfig(s, d) {
					findings = append(findings, fmt.Sprintf("%s: %s has %d fields, at most %d", s.at(d), name, fields, maxFields))
				}
			}
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if n := methods[name]; n > maxMethods && manyMethods[name] == "" {
			findings = append(findings, fmt.Sprintf("%s has %d methods, at most %d", name, n, maxMethods))
		}
	}
	return findings
}

// isArchConfig reports whether a struct is the configuration of an architecture.
func isArchConfig(s *source, d *ast.TypeSpec) bool {
	return path.Dir(s.dir()) == "internal/arch" && d.Name.Name == "Config"
}

// receiver returns the name of a method's type, "" of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func TestWideTypes(t *testing.T) {
	report(t, wideTypes(sources(t)))

	var methods strings.Builder
	for i := range maxMethods + 1 {
		fmt.Fprintf(&methods, "func (*t[T]) f%d() {}\n", i)
	}
	reject(t, wideTypes, "a/a.go", "package a\ntype t[T any] struct{}\n"+methods.String())
	reject(t, wideTypes, "a/a.go", "package a\ntype t struct{\n"+strings.Repeat("_, _ int\n", maxFields/2)+"x int\n}\n")
}

// TestColumns wants lines that fit beside another file. A line that is one string or one address may be longer.
func TestColumns(t *testing.T) {
	long, last := 0, ""
	for name, text := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for i, line := range strings.Split(string(text), "\n") {
			if isLong(line) {
				long, last = long+1, fmt.Sprintf("%s:%d", name, i+1)
			}
		}
	}
	counted(t, "lines of more than 120 columns", long, longLinesMost, last)
	if !isLong("\t"+strings.Repeat("x ", 59)) || isLong("// https://"+strings.Repeat("x", maxColumns)) {
		t.Error("the rule of lines is another")
	}
}

// isLong reports whether a line has too many columns and a place where it can be cut.
func isLong(line string) bool {
	columns := len([]rune(strings.ReplaceAll(line, "\t", "    ")))
	return columns > maxColumns && len(strings.Fields(line)) > 2
}

// Counts of today that only fall. Whoever mends some lowers the number.
const (
	longLinesMost  = 0
	passiveMost    = 0  // percent of the functions' comments that begin "X is", "X are" or "X tells"
	pronounsMost   = 30 // pronouns in a thousand words of comment
	unorderedMost  = 0  // packages of several files whose comment lists none
	disorderedMost = 0  // packages with more arrows against the order
)

// counted compares a count with the most that there may be.
func counted(t *testing.T, what string, got, most int, last string) {
	t.Helper()
	switch {
	case got > most:
		t.Errorf("%d %s, at most %d; one is at %s", got, what, most, last)
	case got < most:
		t.Logf("%d %s: the limit of %d can be lowered", got, what, most)
	}
}

// passive matches a function's comment that says what the function's result is, not what the function does.
var passive = regexp.MustCompile(`^\S+ (is|are|tells|was|has|have)\b`)

// pronouns are words that stand for a noun.
var pronouns = regexp.MustCompile(`(?i)\b(it|its|that|those|these|this|they|them|their|which|who|whose|one|ones|what|such)\b`)

// words matches a word of a comment.
var words = regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`)

// TestCommentsSayWhatIsDone counts function comments without an active verb, and pronouns.
func TestCommentsSayWhatIsDone(t *testing.T) {
	functions, found, said, stand := 0, 0, 0, 0
	last := ""
	byDir := map[string][4]int{}
	for _, s := range productSources(sources(t)) {
		if strings.HasPrefix(s.dir(), "internal/dev/") {
			continue
		}
		n := byDir[s.dir()]
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Doc != nil {
				functions++
				n[0]++
				if passive.MatchString(f.Doc.Text()) {
					found, last = found+1, s.at(f)
					n[1]++
				}
			}
		}
		for _, g := range s.file.Comments {
			text := g.Text()
			w, p := len(words.FindAllString(text, -1)), len(pronouns.FindAllString(text, -1))
			said, stand = said+w, stand+p
			n[2], n[3] = n[2]+w, n[3]+p
		}
		byDir[s.dir()] = n
	}
	if testing.Verbose() {
		for _, dir := range slices.SortedFunc(maps.Keys(byDir), func(a, b string) int { return cmp.Compare(byDir[b][3], byDir[a][3]) }) {
			n := byDir[dir]
			t.Logf("%-28s %4d of %4d functions' comments without a verb, %4d pronouns in %5d words, %.1f in 100", dir, n[1], n[0], n[3], n[2], 100*float64(n[3])/float64(max(n[2], 1)))
		}
	}
	t.Logf("%d of %d, %d in %d", found, functions, stand, said)
	counted(t, "percent of the functions' comments have no active verb", 100*found/functions, passiveMost, last)
	counted(t, "pronouns in a thousand words of comments", 1000*stand/said, pronounsMost, "")
	if !passive.MatchString("rate is bytes in a second.") || passive.MatchString("rate returns bytes in a second.") {
		t.Error("the pattern of comments is another")
	}
}

// A filesOrder is how a package's files use each other.
type filesOrder struct {
	arrows map[[2]string]bool // from the file that uses a name to the file that declares it
	listed []string           // files in the order of the package's comment
}

// orders returns the arrows between the files of each package that has several.
func orders(all []*source) map[string]*filesOrder {
	packages := map[string][]*source{}
	for _, s := range productSources(all) {
		packages[s.dir()] = append(packages[s.dir()], s)
	}
	result := map[string]*filesOrder{}
	for dir, files := range packages {
		if len(files) > 1 {
			result[dir] = &filesOrder{arrowsBetween(files), listedFiles(files)}
		}
	}
	return result
}

// arrowsBetween returns the uses between files of one package: of names at its top, and of methods
// whose names stand in one file alone and are no field's.
func arrowsBetween(files []*source) map[[2]string]bool {
	names, methods, fields := map[string][]string{}, map[string][]string{}, map[string]bool{}
	for _, s := range files {
		file := path.Base(s.name)
		for name := range s.file.Scope.Objects { //nolint:staticcheck // names of one file need no types
			names[name] = append(names[name], file)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					methods[n.Name.Name] = append(methods[n.Name.Name], file)
				}
			case *ast.StructType:
				for _, f := range n.Fields.List {
					for _, name := range f.Names {
						fields[name.Name] = true
					}
				}
			case *ast.InterfaceType:
				for _, f := range n.Methods.List {
					for _, name := range f.Names {
						fields[name.Name] = true // whose it is shows only at run time
					}
				}
			}
			return true
		})
	}
	arrows := map[[2]string]bool{}
	for _, s := range files {
		from := path.Base(s.name)
		use := func(in []string) {
			if len(in) == 1 && in[0] != from { // several: one for each system, or methods of several types
				arrows[[2]string{from, in[0]}] = true
			}
		}
		imported := map[string]bool{}
		for _, p := range s.imports() {
			imported[path.Base(p)] = true
		}
		for _, id := range s.file.Unresolved {
			use(names[id.Name])
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && !fields[sel.Sel.Name] {
				if x, ok := sel.X.(*ast.Ident); !ok || !imported[x.Name] {
					use(methods[sel.Sel.Name])
				}
			}
			return true
		})
	}
	return arrows
}

// fileName matches a file in a package's comment.
var fileName = regexp.MustCompile(`\b[a-z0-9_]+\.go\b`)

// listedFiles returns the files that a package's comment names, in its order.
func listedFiles(files []*source) (listed []string) {
	for _, s := range files {
		if s.file.Doc == nil {
			continue
		}
		for _, name := range fileName.FindAllString(s.file.Doc.Text(), -1) {
			if !slices.Contains(listed, name) && slices.ContainsFunc(files, func(s *source) bool { return path.Base(s.name) == name }) {
				listed = append(listed, name)
			}
		}
	}
	return listed
}

// TestArrows wants a package's files to use each other in one direction, along the order in which the package's comment
// lists them: users first, or what they use first.
func TestArrows(t *testing.T) {
	all := orders(sources(t))
	unordered, disordered := 0, 0
	last, lastUp := "", ""
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		o := all[dir]
		up, down := 0, 0
		for arrow := range o.arrows {
			from, to := slices.Index(o.listed, arrow[0]), slices.Index(o.listed, arrow[1])
			switch {
			case from < 0 || to < 0:
			case from > to:
				up++
			default:
				down++
			}
		}
		up = min(up, down)
		t.Logf("%-28s %3d of %3d arrows against the order", dir, up, len(o.arrows))
		if len(o.listed) == 0 && len(o.arrows) > 2 {
			unordered, last = unordered+1, dir
		} else if 100*up > maxArrowsUp*len(o.arrows) {
			disordered, lastUp = disordered+1, dir
		}
	}
	counted(t, "packages without an order of files", unordered, unorderedMost, last)
	counted(t, "packages with arrows against their order", disordered, disorderedMost, lastUp)
}

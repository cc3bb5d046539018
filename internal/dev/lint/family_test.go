package lint

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/karat-run/karat/internal/registry"
)

// formatWords are family names that mean something else: in all packages, or in one.
var formatWords = map[string]*regexp.Regexp{
	"":                         regexp.MustCompile(`(?i)(ik_)?llama\.?cpp|llama-[a-z]+|coherent|gptq|exllama`),                                                                                                                  // other engines, their tools and packings; a word of WGSL
	"internal/rope":            regexp.MustCompile(`"[^"]*llama3[^"]*"`),                                                                                                                                                        // a rope_type of config.json
	"internal/checkpoint/hf":   regexp.MustCompile(`"[^"]*llama3[^"]*"`),                                                                                                                                                        // likewise
	"internal/image/processor": regexp.MustCompile(`"[A-Za-z0-9_]+ImageProcessor"`),                                                                                                                                             // values of image_processor_type
	"internal/tokenizer":       regexp.MustCompile(`"(llama|llama3|llama4|gemma4|qwen2|qwen35|[a-z0-9-]+-qwen|gpt-?2|gpt-4o|smollm|glm4|qwen35|deepseek-[a-z0-9]+)"|"(modern-)?bert"|Bert(Normalizer|PreTokenizer|Processing)`), // values of tokenizer.ggml.model and .pre
}

// preNames is the file of the names that pre-tokenizers have in GGUF: many are named after a family.
const preNames = "internal/tokenizer/pre.go"

// tellsPeople reports whether a literal of the file is a text: help and its examples, and
// the stories of the table of mistakes.
func tellsPeople(s *source, literal string) bool {
	stories := s.dir() == "cmd/karat" || s.dir() == "internal/lab/mistake"
	return stories && strings.ContainsAny(literal, " \n")
}

// stems are the names of families and of their types without numbers: llama, qwen.
func stems() (all []string) {
	for _, f := range registry.Families {
		all = append(all, f.Name)
		for _, t := range f.Types {
			all = append(all, strings.TrimSuffix(t.Name, "_text"))
		}
	}
	for i, name := range all {
		all[i] = strings.TrimRightFunc(name, unicode.IsDigit)
	}
	return all
}

// families finds names of families in identifiers, literals and names of files, where a
// family's value should say it. A name is found at the start of a word.
func families(all []*source) (findings []string) {
	var words []string
	for _, stem := range stems() {
		words = append(words, `(?:^|[^A-Za-z])(?i:`+stem+`)`, `[a-z0-9]`+strings.ToUpper(stem[:1])+stem[1:])
	}
	name := regexp.MustCompile(strings.Join(words, "|"))
	seen := map[string]map[string]bool{}
	for _, s := range all {
		if d := s.dir(); s.test() || strings.HasPrefix(d, "internal/arch") || strings.HasPrefix(d, "internal/dev") || d == "internal/registry" || strings.HasPrefix(d, "testdata") {
			continue
		}
		known := seen[s.dir()] // most words stand in a package many times
		if known == nil {
			known = map[string]bool{}
			seen[s.dir()] = known
		}
		named := func(text string) bool {
			if is, ok := known[text]; ok {
				return is
			}
			rest := formatWords[""].ReplaceAllString(text, "")
			if other := formatWords[s.dir()]; other != nil {
				rest = other.ReplaceAllString(rest, "")
			}
			known[text] = name.MatchString(rest)
			return known[text]
		}
		if base := path.Base(s.name); named(base) {
			findings = append(findings, s.name+": a file of a family outside its folder")
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec: // TestOrder's; others' names may be alike
				return false
			case *ast.Ident:
				if named(n.Name) {
					findings = append(findings, s.at(n)+": "+n.Name+" names a family")
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING && s.name != preNames && named(n.Value) && !tellsPeople(s, n.Value) {
					findings = append(findings, s.at(n)+": "+n.Value+" names a family")
				}
			}
			return true
		})
	}
	return findings
}

// TestFamilies wants all facts of a family in its folder.
func TestFamilies(t *testing.T) {
	report(t, families(sources(t)))
	reject(t, families, "internal/check/a.go", `package check; func f(arch string) bool { return arch == "gemma3" }`)
	reject(t, families, "internal/checkpoint/a.go", `package checkpoint; func isQwen2() {}`)
	reject(t, families, "internal/checkpoint/llama.go", `package checkpoint`)
	reject(t, families, "cmd/karat/a.go", `package main; const arch = "llama"`)
}

package lab

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// modules reads testdata/modules.txt: PyTorch's modules by model, each behind a sign if it has one.
func modules(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[1] == "=":
			list := slices.Clone(all[words[2]])
			for _, w := range words[3:] {
				if less, ok := strings.CutPrefix(w, "-"); ok {
					list = slices.DeleteFunc(list, func(x string) bool { return x == less })
				} else {
					list = append(list, w)
				}
			}
			all[words[0]] = list
		default:
			all[strings.TrimSuffix(words[0], ":")] = words[1:]
		}
	}
	return all
}

var layer = regexp.MustCompile(`\.\d+\.`)

// TestModules: each module of PyTorch's of each family has a place in some layer, but for those that are known
// not to have one; and no value of the graph has a name that is neither PyTorch's nor said to be Karat's.
func TestModules(t *testing.T) {
	table := modules(t)
	names := slices.Concat([]string{"tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-gemma3", "tiny-gemma4", "tiny-gemma4-moe"}, golden.Families(t), golden.Encoders(t), golden.Rerankers(t))
	if len(names) < 30 {
		t.Errorf("%d families", len(names))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			g := loadGraph(t, golden.Model(t, name))
			l := newPlacer(g, &Prompt{})
			listed := map[*graph.Node]bool{}
			for _, m := range table[name] {
				sign := strings.Trim(m[:1], "abcdefghijklmnopqrstuvwxyz")
				m = strings.TrimPrefix(m, sign)
				found := false
				for i := range 64 {
					if s := l.hf(strings.Replace(m, ".N", "."+strconv.Itoa(i), 1) + ".out"); s.node != nil {
						found, listed[s.node] = true, true
					}
				}
				for _, n := range g.Nodes { // whose output depends on how they are called
					if sign == "!" && n.HF != "" && layer.ReplaceAllString(n.HF, ".N.") == m+".out" {
						listed[n] = true
					}
				}
				if found == (sign == "!") {
					t.Errorf("%s%s has a place: %v", sign, m, found)
				}
			}
			for _, n := range g.Nodes {
				if n.HF != "" && !listed[n] {
					t.Errorf("%s (%s) is on no list", n.HF, n.Name)
				}
			}
		})
	}
}

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/hub/local"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls f for each command of the program but cobra's own.
func everyCommand(f func(c *cobra.Command)) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "completion" || c.Name() == "help" {
			return
		}
		f(c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}

// TestFlagsMeanOneThing wants one type and one letter for each name of a flag in all commands, and one name for each
// letter. A list of numbers is a number, where one is given.
func TestFlagsMeanOneThing(t *testing.T) {
	type use struct{ what, where string }
	types, letters, names := map[string][]use{}, map[string][]use{}, map[string][]use{}
	add := func(m map[string][]use, key, what string, c *cobra.Command) {
		if !slices.ContainsFunc(m[key], func(u use) bool { return u.what == what }) {
			m[key] = append(m[key], use{what, c.CommandPath()})
		}
	}
	everyCommand(func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || c.Name() == "import" && f.Name == "shape" {
				return
			}
			kind := "text" // a name, a path, one of a few words
			switch f.Value.Type() {
			case "bool", "size", "duration":
				kind = f.Value.Type()
			case "int", "intSlice", "uint64":
				kind = "int"
			case "float32", "float64", "float64Slice":
				kind = "float"
			}
			add(types, f.Name, kind, c)
			add(letters, f.Name, f.Shorthand, c)
			if f.Shorthand != "" {
				add(names, f.Shorthand, f.Name, c)
			}
		})
	})
	for what, m := range map[string]map[string][]use{"type": types, "letter": letters, "name of the letter": names} {
		for key, uses := range m {
			if len(uses) > 1 {
				t.Errorf("%s: more than one %s: %s", key, what, fmt.Sprint(uses))
			}
		}
	}
}

// TestEveryCommandTakesModel wants -m in each command whose usage has a MODEL, or a file in its place, and that a MODEL
// that is not there is said to be none: the embedded demo never runs in its place.
func TestEveryCommandTakesModel(t *testing.T) {
	var taking []string
	everyCommand(func(c *cobra.Command) {
		if f := c.Flags().Lookup("model"); f != nil && f.Shorthand == "m" {
			taking = append(taking, strings.TrimPrefix(c.CommandPath(), "karat "))
			return
		}
		if strings.Contains(c.Use, "MODEL") {
			t.Errorf("%s takes no -m", c.CommandPath())
		}
	})
	for _, name := range []string{"run", "serve", "check", "inspect", "eval", "score", "stats", "imatrix", "kv export", "kv verify", "kv replay", "logits",
		"embed", "rerank", "bench", "tokenize", "quantize", "convert", "edit", "lab record", "lab diagnose", "lab floor", "lab extract", "lab ablate",
		"lab scale", "lab patch", "lab replace", "lab steer", "lab experiment run"} {
		if !slices.Contains(taking, name) {
			t.Errorf("karat %s has no -m", name)
		}
	}
	dir := t.TempDir()
	t.Chdir(dir)
	more := map[string][]string{"eval": {"--chunks", "1"}, "score": {"x.jsonl"}, "stats": {"text"}, "imatrix": {"-o", "o.gguf"}, "kv export": {"text", "-o", "o.kv"},
		"kv verify": {"x.kv"}, "kv replay": {"x.kv"}, "quantize": {"o.gguf", "Q4_K_M"}, "convert": {"-o", "o"}, "edit": {"--set", "general.name=string:x"},
		"lab record": {"--prompts", "p.json", "-o", "o.safetensors"}, "lab diagnose": {"x.safetensors"}, "lab extract": {"--prompts", "p.json", "-o", "o.npy"},
		"lab ablate": {"text", "--at", "out"}, "lab scale": {"text", "--at", "out", "--by", "2"}, "rerank": {"q", "d"}}
	for _, name := range taking {
		args, ok := more[name]
		if !ok && !slices.Contains([]string{"run", "serve", "check", "inspect", "logits", "embed", "bench", "tokenize", "lab floor"}, name) {
			continue
		}
		for _, form := range [][]string{{"-m", "missing.gguf"}, {"missing.gguf"}} {
			c := newRootCommand()
			var out strings.Builder
			c.SetOut(&out)
			c.SetErr(&out)
			c.SetIn(strings.NewReader("text"))
			c.SetArgs(slices.Concat(strings.Fields(name), form, args))
			if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "missing.gguf: no such file") {
				t.Errorf("karat %s %s %s: %v\n%s", name, form, args, err, out.String())
			}
		}
	}
}

// TestFlagNamesOfOthers says what to type for flags of other programs and older versions.
func TestFlagNamesOfOthers(t *testing.T) {
	for line, want := range map[string]string{
		"eval -c 512": "--window", "imatrix -o x.gguf --ctx 8": "--window", "quantize a b --target-size 1M -c 8": "--window",
		"score x --tokens": "--token-scores", "logits -p x": "--prompt-index", "embed m --prompt x": "--prompt-name",
		"bench -c 4096": "context that it needs",
	} {
		c := newRootCommand()
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		c.SetArgs(strings.Fields(line))
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("karat %s: %v, want %s", line, err, want)
		}
	}
}

// TestOldFlagNames takes the names that flags had before.
func TestOldFlagNames(t *testing.T) {
	for line, name := range map[string]string{"lab record --decode 2": "decode-last", "lab compare --layers": "by-layer", "web --out x": "output", "bench -p 512": "prompt"} {
		c, args, err := newRootCommand().Find(strings.Fields(line))
		if err == nil {
			err = c.ParseFlags(args)
		}
		if err != nil || !c.Flags().Changed(name) {
			t.Errorf("karat %s: %v, want --%s to be set", line, err, name)
		}
	}
}

// TestUnknownCommandShown escapes the control characters of an unknown command, and no others are in the message.
func TestUnknownCommandShown(t *testing.T) {
	for _, line := range [][]string{{"rnu\n\x1b"}, {"lab", "rnu\n\x1b"}, {"kv", "rnu\n\x1b"}} {
		c := newRootCommand()
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		c.SetArgs(line)
		if err := c.Execute(); err == nil || !strings.Contains(errorText(err), `"rnu\n\x1b"`) || strings.ContainsAny(errorText(err), "⏎⇥�") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestCompletions asks as a shell does for the names of models, devices and types.
func TestCompletions(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(local.Variable, dir)
	manifest := `{"name": "Tiny:Q8_0", "source": "hf:x/y", "pulled": "2026-01-01T00:00:00Z", "format": "gguf",
		"files": [{"path": "t.gguf", "size": 1, "sha256": "sha256:` + strings.Repeat("0", 64) + `"}]}`
	if err := os.Mkdir(filepath.Join(dir, "names"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "names", local.Key("Tiny:Q8_0")+".json"), []byte(manifest), 0o666); err != nil {
		t.Fatal(err)
	}
	complete := func(args ...string) string {
		c := newRootCommand()
		var out strings.Builder
		c.SetOut(&out)
		c.SetErr(io.Discard)
		c.SetArgs(append([]string{"__complete"}, args...))
		if err := c.Execute(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return out.String()
	}
	for _, name := range []string{"run", "embed", "rerank", "logits", "tokenize", "bench", "serve", "quantize", "check", "lab record"} {
		if got := complete(append(strings.Fields(name), "")...); !strings.Contains(got, "Tiny:Q8_0\n") {
			t.Errorf("%s: %s", name, got)
		}
	}
	for line, want := range map[string]string{"quantize a.gguf b.gguf Q4": "Q4_K_M\n", "quantize -m a.gguf b.gguf Q8": "Q8_0\n", "run --backend w": "webgpu\t", "serve --backend c": "cpu\t",
		"bench --backend w": "webgpu\t", "serve a.gguf T": "Tiny:Q8_0\n", "run -m T": "Tiny:Q8_0\n"} {
		if got := complete(strings.Fields(line)...); !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
	if got := complete("quantize", "a.gguf", ""); strings.Contains(got, "Q8_0") {
		t.Errorf("OUT: %s", got)
	}
}

// TestHelpIsShort wants less than 40 lines of 120 columns from each command, and the rest from --help-all.
func TestHelpIsShort(t *testing.T) {
	everyCommand(func(c *cobra.Command) {
		var short, whole strings.Builder
		help(&short, c, false)
		help(&whole, c, true)
		lines := strings.Split(short.String(), "\n")
		if len(lines) > 40 {
			t.Errorf("%s: %d lines of help", c.CommandPath(), len(lines))
		}
		if c.Flags().HasAvailableFlags() && !strings.Contains(short.String(), "\nFlags:\n") {
			t.Errorf("%s: no flags in\n%s", c.CommandPath(), short.String())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && !strings.Contains(whole.String(), "--"+f.Name) {
				t.Errorf("%s --help-all lacks --%s", c.CommandPath(), f.Name)
			}
			for _, l := range lines {
				if at := strings.Index(l, "--"+f.Name+" "); (at == 2 || at == 6) && textWidth(l) > 120 {
					t.Errorf("%s: %q is too wide", c.CommandPath(), l)
				}
			}
		})
	})
}

// TestNearest suggests the command that a slip of the finger is nearest to.
func TestNearest(t *testing.T) {
	names := []string{"rm", "run", "serve", "score", "ps", "pull", "quantize", "tokenize", "list"}
	for word, want := range map[string]string{"rnu": "run", "runn": "run", "ru": "run", "sevre": "serve", "pul": "pull", "quantise": "quantize", "tokenise": "tokenize", "lst": "list", "xyz": "", "help": ""} {
		if got := nearest(word, names); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

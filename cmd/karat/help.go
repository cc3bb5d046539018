package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/spelling"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// strictHelp makes errors of inputs accepted by cobra's own commands: help for an unknown command, and completion for
// an unknown shell.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.AddCommand(define("help families", func(x *call) error { return x.printf("%s\n", x.Long) }).Command)
			c.Run, c.RunE = nil, func(c *cobra.Command, args []string) error {
				of, rest, err := c.Root().Find(args)
				if err != nil || len(rest) > 0 {
					return usagef("there is no command %q", strings.Join(args, " "))
				}
				return of.Help()
			}
		case "completion":
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
}

// writeHelp makes cobra write help at once, and returns the place of its error.
func writeHelp(root *cobra.Command) *error {
	var failed error
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		all, _ := c.Flags().GetBool(helpAll)
		var text bytes.Buffer
		help(&text, c, all)
		if _, err := c.OutOrStdout().Write(text.Bytes()); err != nil {
			failed = failure{statusError, err}
		}
	})
	return &failed
}

// helpAll is the flag for the whole help of a command.
const helpAll = "help-all"

// allHelp registers --help-all in a command and its subcommands.
func allHelp(c *cobra.Command) {
	c.Flags().Bool(helpAll, false, "print the whole help, with all flags")
	c.Flags().Lookup(helpAll).Hidden = true
	if run := c.RunE; run != nil {
		check := c.Args
		asked := func(c *cobra.Command) bool { all, _ := c.Flags().GetBool(helpAll); return all }
		c.Args = func(c *cobra.Command, args []string) error {
			if check == nil || asked(c) {
				return nil
			}
			return check(c, args)
		}
		c.RunE = func(c *cobra.Command, args []string) error {
			if asked(c) {
				return c.Help()
			}
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		allHelp(sub)
	}
}

// mostFlags and mostHelp bound the flags, and the lines above them, of a command's short help.
const mostFlags, mostHelp = 10, 13

// firstCommands are in the short help of karat.
var firstCommands = []string{"run", "serve", "pull", "list", "show", "rm", "embed", "rerank", "tokenize", "inspect",
	"check", "convert", "quantize", "eval", "bench", "lab", "web"}

// usedMost orders flags by the number of their users.
var usedMost = []string{"model", "prompt", "file", "chat", "system", "output", "text", "tokens", "temp", "seed",
	"json-schema", "ctx", "host", "port", "keys", "think", "prompts", "at", "window", "chunks", "imatrix", "base",
	"against", "type", "target-size", "pooling", "top", "token", "threads", "backend", "json", "verbose"}

// flagGroups are the groups of flags in the whole help. A flag without a group belongs to the command alone.
var flagGroups = []struct {
	name  string
	flags []string
}{
	{"Prompt", []string{"prompt", "file", "image", "chat", "system", "chat-template", "template-arg", "text", "prompts",
		"think", "no-think", "prompt-name", "prompt-index"}},
	{"Sampling", []string{"tokens", "stop", "temp", "top-k", "top-p", "min-p", "repeat-penalty", "seed", "json-schema",
		"grammar", "regex", "lark"}},
	{"Output", []string{"output", "json", "csv", "html", "markdown", "logprobs", "top", "token", "npy", "safetensors",
		"verbose", "plain", "hide-thinking", "quiet"}},
	{"Memory", []string{"ctx", "window", "chunks", "kv", "kv-budget", "parallel", "no-fit", "keep-all"}},
	{"Device", []string{"backend", "threads", "precision", "no-fuse", "draft"}},
	{"Model", []string{"model", "pull", "no-pull", "lora", "mmproj"}},
}

// help writes the short help of a command, below 40 lines, or the whole.
func help(w io.Writer, c *cobra.Command, all bool) {
	long := strings.TrimSpace(c.Long)
	if long == "" {
		long = c.Short
	}
	cut := false
	if lines := strings.Split(long, "\n"); !all && len(lines) > mostHelp {
		end := mostHelp
		for i := mostHelp; i > 3; i-- { // paragraphs stay whole
			if lines[i] == "" {
				end = i
				break
			}
		}
		long, cut = strings.Join(lines[:end], "\n"), true
	}
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", strings.TrimRight(long, "\n :"), c.UseLine())
	if c.Example != "" {
		examples := strings.Split(strings.TrimRight(c.Example, "\n"), "\n")
		if !all && len(examples) > 3 {
			examples, cut = examples[:3], true
		}
		fmt.Fprintf(w, "\nExamples:\n%s\n", strings.Join(examples, "\n"))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nCommands:\n")
		for _, sub := range c.Commands() {
			switch {
			case !sub.IsAvailableCommand():
			case c.HasParent() || all || slices.Contains(firstCommands, sub.Name()):
				fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			default:
				cut = true
			}
		}
		fmt.Fprintf(w, "\n\"%s COMMAND --help\" has more.\n", c.CommandPath())
	}
	cut = writeFlags(w, c, all) || cut
	if cut {
		fmt.Fprintf(w, "\n\"%s --%s\" prints the whole help%s.\n", c.CommandPath(), helpAll,
			map[bool]string{true: ", with all commands"}[!c.HasParent()])
	}
}

// writeFlags writes the most used flags, or all in groups, and reports whether some are left out.
func writeFlags(w io.Writer, c *cobra.Command, all bool) (cut bool) {
	var flags []*pflag.Flag
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			flags = append(flags, f)
		}
	})
	section := func(name string, some []*pflag.Flag) {
		if len(some) == 0 {
			return
		}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.SortFlags = false
		for _, f := range some {
			fs.AddFlag(f)
		}
		text := fs.FlagUsages()
		if !all { // a line each
			text = fs.FlagUsagesWrapped(0)
			lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
			for i := range lines {
				lines[i] = cutWidth(lines[i], 120)
			}
			text = strings.Join(lines, "\n") + "\n"
		}
		fmt.Fprintf(w, "\n%s:\n%s", name, text)
	}
	if !all {
		rank := func(f *pflag.Flag) int {
			if i := slices.Index(usedMost, f.Name); i >= 0 {
				return i
			}
			return len(usedMost)
		}
		slices.SortStableFunc(flags, func(a, b *pflag.Flag) int { return rank(a) - rank(b) })
		section("Flags", flags[:min(len(flags), mostFlags)])
		return len(flags) > mostFlags
	}
	left := slices.Clone(flags)
	var groups [][]*pflag.Flag
	for _, g := range flagGroups {
		var some []*pflag.Flag
		left = slices.DeleteFunc(left, func(f *pflag.Flag) bool {
			if slices.Contains(g.flags, f.Name) {
				some = append(some, f)
				return true
			}
			return false
		})
		groups = append(groups, some)
	}
	section("Flags", left)
	for i, g := range flagGroups {
		section(g.name, groups[i])
	}
	return false
}

const (
	onGPU    = "--backend webgpu computes on the GPU"
	hubModel = "MODEL is hf:ORG/NAME:TAG"
	hostPort = "--host and --port of karat serve set the address"
)

// flagsOfOthers are names of flags in other programs without an alias here.
var flagsOfOthers = map[string]string{
	"n-gpu-layers": onGPU, "ngl": onGPU, "gpu-layers": onGPU, "hf": hubModel, "hfr": hubModel, "hf-repo": hubModel,
	"top_k": "did you mean --top-k?", "top_p": "did you mean --top-p?", "max_tokens": "did you mean --max-tokens?",
	"prompt": "the prompt is the argument", "p": "the prompt is the argument",
	"interactive": "a chat begins where there is no prompt", "i": "a chat begins where there is no prompt",
	"color":             "colors are there on a terminal, and --plain is without",
	"no-display-prompt": "the prompt is never printed", "host": "--host is a flag of karat serve",
	"image": "karat run shows pictures: all else takes texts alone",
	"port":  "--port is a flag of karat serve", "addr": hostPort, "address": hostPort, "listen": hostPort,
	"bind": hostPort,
}

// commandsOfOthers are names of commands in other programs, and of the command which does the same here.
var commandsOfOthers = map[string]string{"chat": "run", "generate": "run", "complete": "run", "completion": "run",
	"cli": "run", "server": "serve", "start": "serve", "download": "pull", "get": "pull", "ls": "list",
	"models": "list", "delete": "rm", "remove": "rm", "info": "inspect", "perplexity": "eval"}

// unknownFlag adds advice to the error of an unknown flag.
func unknownFlag(c *cobra.Command, err error) error {
	name, long := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !long {
		_, after, ok := strings.Cut(err.Error(), "unknown shorthand flag: '")
		if !ok {
			return err
		}
		name, _, _ = strings.Cut(after, "'")
		err = fmt.Errorf("unknown flag: -%s", name)
	}
	if name == "prompt" && c.Flags().Lookup("prompt-index") != nil {
		return usagef("%w: did you mean --prompt-index?", err)
	}
	if hint, ok := flagsOfOthers[name]; ok {
		return usagef("%w: %s", err, hint)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := nearest(name, names); long && near != "" {
		return usagef("%w: did you mean --%s?", err, near)
	}
	return usagef("%w", err)
}

// refuseLong finds flags of other programs with several letters after a single dash. -hf would be -h, and -ngl -n.
func refuseLong(args []string) error {
	for _, a := range args {
		if a == "--" {
			break
		}
		name := strings.TrimPrefix(a, "-")
		if hint, ok := flagsOfOthers[name]; ok && len(name) > 1 && a == "-"+name {
			return usagef("unknown flag: %s: %s", a, hint)
		}
	}
	return nil
}

// nearest returns the name least different from a word, "" if all differ in more than a third of it.
func nearest(word string, names []string) (near string) {
	least := max(1, (len(word)+1)/3) + 1
	slices.Sort(names)
	for _, n := range names {
		d := spelling.Distance(word, n)
		if d < least || d == least && near != "" && strings.HasPrefix(n, word) && !strings.HasPrefix(near, word) {
			near, least = n, d
		}
	}
	return near
}

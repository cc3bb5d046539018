package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/spelling"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
	"port": "--port is a flag of karat serve", "addr": hostPort, "address": hostPort, "listen": hostPort,
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

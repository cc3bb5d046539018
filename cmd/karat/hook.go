package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed hooks
var hooks embed.FS

// hookFiles are the printed files by the engine that they are for.
var hookFiles = map[string]string{"torch": "hooks/pytorch.py", "llama.cpp": "hooks/llamacpp.cpp"}

func newHookCommand() *cobra.Command {
	var engine string
	c := &cobra.Command{
		Use:   "hook --print torch|llama.cpp",
		Short: "Print a program that dumps the values of another engine",
		Long: `Hook prints a program to run beside the other engine: a Python script for PyTorch
with transformers, or C++ to compile with llama.cpp. The program computes prompts and
writes a record with the values of all modules or nodes, at all positions.
The comment at its top says how to run it.`,
		Example: `  karat lab hook --print torch > dump.py && python3 dump.py ./model prompts.json theirs.safetensors
  karat lab hook --print llama.cpp > dump.cpp`,
		Args: byUse,
		RunE: func(c *cobra.Command, _ []string) error {
			file, ok := hookFiles[engine]
			if !ok {
				return usagef("--print %q: want torch or llama.cpp", engine)
			}
			text, err := hooks.ReadFile(file)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), strings.TrimRight(string(text), "\n"))
			return err
		},
	}
	c.Flags().StringVar(&engine, "print", "", "the `engine`: torch or llama.cpp")
	return c
}

package main

import (
	"bytes"
	"strings"

	"github.com/spf13/cobra"
)

// strictHelp makes errors of what cobra's own commands answer with a success:
// help for a command that there is not, and completion for an unknown shell.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
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

// writeHelp has help written at once, and returns where the error of it will be.
func writeHelp(root *cobra.Command) *error {
	var failed error
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		var text bytes.Buffer
		out := c.OutOrStdout()
		c.SetOut(&text)
		help(c, args)
		c.SetOut(out)
		if _, err := out.Write(text.Bytes()); err != nil {
			failed = failure{statusError, err}
		}
	})
	return &failed
}

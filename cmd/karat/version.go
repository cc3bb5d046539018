package main

import (
	"runtime"
	"runtime/debug"

	"github.com/karat-run/karat"
	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return define("version", func(x *call) error {
		return x.printf("karat %s%s %s %s/%s\n", karat.Version(), revision(), runtime.Version(), runtime.GOOS,
			runtime.GOARCH)
	}).Command
}

// revision returns the commit as text to append, "" if unknown.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	text := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text = " " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += " (modified)"
		}
	}
	return text
}

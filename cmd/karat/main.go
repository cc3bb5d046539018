// Command karat runs language models, and inspects, checks and converts their files.
//
// Files in reading order, commands before the files they use:
//   - the root: main.go, help.go;
//   - chats: run.go, converse.go, commands.go, prompter.go, chat.go, answer.go, screen.go;
//   - servers: serve.go, serve_models.go, web.go;
//   - the lab: lab.go, mcp.go, record.go, expect.go, diagnose.go, import.go, experiment.go, intervene.go;
//   - one text: logits.go, stats.go, kv.go, tokenize.go, embed.go, score.go;
//   - files of models: check.go, inspect.go, quantize.go, eval.go, bench.go, convert.go;
//   - the store: models.go;
//   - helpers: devices.go, flags.go, model.go, progress.go, command.go, input.go, os_unix.go, os_windows.go, os_js.go.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	_ "github.com/karat-run/karat/webgpu"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes a command line and returns the exit status.
func run(args []string) int {
	started := false
	root := newRootCommand()
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := c.ValidateFlagGroups(); err != nil { // cobra asks later
			return explainTogether(err)
		}
		started = true
		return nil
	}
	helped := writeHelp(root)
	root.SetArgs(args)
	command, _, _ := root.Find(args)
	err := refuseLong(args)
	if err == nil {
		command, err = root.ExecuteC()
	}
	if err == nil {
		err = *helped
	}
	if err == nil || isBrokenPipe(err) {
		return 0
	}
	var f failure
	if errors.As(err, &f) && f.err == nil {
		return f.exit()
	}
	fmt.Fprintln(os.Stderr, "karat:", errorText(err))
	var usage usageError
	var file *fs.PathError // such as standard output, of --version
	switch {
	case f.status != 0:
		return f.exit()
	case errors.As(err, &file), errors.As(err, &usage) && errors.As(usage.error, &file):
		return statusError
	case !started || errors.As(err, &usage): // before the start errors are cobra's, of the command line
		fmt.Fprintf(os.Stderr, "Run %q for help.\n", command.CommandPath()+" --help")
		return statusUsage
	}
	return statusError
}

func newRootCommand() *cobra.Command {
	root := define("", nil)
	root.Use, root.Version, root.SilenceErrors, root.SilenceUsage = "karat COMMAND", karat.Version(), true, true
	root.DisableFlagsInUseLine = true
	c := group(root, newRunCommand(), newServeCommand(), newPullCommand(), newListCommand(), newShowCommand(),
		newRemoveCommand(), newCopyCommand(), newRunningCommand(), newEmbedCommand(), newRerankCommand(),
		newTokenizeCommand(), newLogitsCommand(),
		newScoreCommand(), newVerifyCommand(), newKVCommand(), newStatsCommand(), newInspectCommand(),
		newConvertCommand(),
		newCheckCommand(),
		newLabCommand(), newEvalCommand(), newImatrixCommand(), newBenchCommand(), newQuantizeCommand(),
		newEditCommand(),
		newDevicesCommand(), newWebCommand(), newVersionCommand())
	c.SetFlagErrorFunc(func(of *cobra.Command, err error) error {
		if e := (*strconv.NumError)(nil); errors.As(err, &e) { // whose text is for programmers
			return usagef("%s%s", strings.TrimSuffix(err.Error(), e.Error()), numberText(e))
		}
		if gone := (goneError{}); errors.As(err, &gone) {
			return usagef("%w", gone)
		}
		return unknownFlag(of, err)
	})
	strictHelp(c)
	allHelp(c)
	return c
}

// explainTogether rewrites cobra's error of flags excluding each other, in plain words.
func explainTogether(err error) error {
	_, set, ok := strings.Cut(err.Error(), "; [")
	set, _, all := strings.Cut(set, "] were all set")
	if !ok || !all {
		return err
	}
	return usagef("--%s: give one of them", strings.Join(strings.Fields(set), ", --"))
}

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

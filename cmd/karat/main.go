// Command karat runs language models, and inspects, checks and converts their files.
//
// Files in reading order, commands before the files they use:
//   - the root: main.go, help.go;
//   - chats: run.go, converse.go, commands.go, tools.go, prompter.go, chat.go, answer.go, screen.go;
//   - servers: serve.go, serve_models.go, web.go;
//   - the lab: lab.go, mcp.go, record.go, expect.go, diagnose.go, import.go, experiment.go, intervene.go;
//   - one text: logits.go, stats.go, kv.go, tokenize.go, embed.go, score.go;
//   - files of models: check.go, inspect.go, quantize.go, eval.go, bench.go, convert.go;
//   - the store: models.go;
//   - helpers: devices.go, flags.go, model.go, progress.go, command.go, input.go, os_unix.go, os_windows.go, os_js.go.
package main

import (
	"cmp"
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

// isReaderGone reports whether the reader of standard output has gone, and not that of another pipe or connection.
func isReaderGone(err error) bool {
	var file *fs.PathError
	return isBrokenPipe(err) && errors.As(err, &file) && file.Path == os.Stdout.Name()
}

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
	if err == nil || isReaderGone(err) {
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

// build is the program's origin, and the JSON of version.
type build struct {
	Version  string          `json:"version"`
	Commit   string          `json:"commit,omitempty"`
	Modified bool            `json:"modified,omitempty"` // the checkout had changes
	Go       string          `json:"go"`
	Platform string          `json:"platform"`
	SHA256   string          `json:"sha256"`  // of the program's file
	Modules  []*debug.Module `json:"modules"` // with Go's names of the fields
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	var sums string
	c := define("version", func(x *call) error {
		b := findBuild()
		switch {
		case sums != "":
			return b.verify(x, sums)
		case asJSON:
			return x.json(b)
		}
		commit := strings.TrimRight(" "+b.Commit, " ")
		if b.Modified {
			commit += " (modified)"
		}
		return x.printf("karat %s%s %s %s\n", b.Version, commit, b.Go, b.Platform)
	})
	c.flags("json", &asJSON, "verify", file(&sums))
	c.MarkFlagsMutuallyExclusive("json", "verify")
	return c.Command
}

// findBuild returns the origin as the Go command noted it.
func findBuild() build {
	b := build{Version: karat.Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		SHA256: programHash(), Modules: []*debug.Module{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Modules = append(b.Modules, info.Deps...)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// verify finds the program in a file of SHA-256 sums, in the form of sha256sum or of its --tag.
func (b build) verify(x *call, path string) error {
	text := must(readWhole(path, maxGrammar))
	if b.SHA256 == "" {
		return errors.New("the program's own file cannot be read")
	}
	var names []string
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimPrefix(strings.TrimSpace(line), `\`) // before a sum whose file's name has escapes
		sum, name, _ := strings.Cut(line, " ")
		if at := strings.LastIndex(line, ") = "); at >= 0 && strings.HasPrefix(line, "SHA256 (") {
			sum, name = line[at+len(") = "):], line[len("SHA256 ("):at]
		}
		if strings.EqualFold(sum, b.SHA256) {
			names = append(names, cmp.Or(oneLine(strings.TrimLeft(name, " *")), "a file without a name"))
		}
	}
	if names != nil {
		return x.printf("this program is %s in %s\n", strings.Join(names, " and "), oneLine(path))
	}
	return fmt.Errorf("%s: no line has this program's SHA-256, %s", path, b.SHA256)
}

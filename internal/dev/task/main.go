// Command task runs the instruments of Karat's developers.
//
//	main.go    the list of tasks
//	synth.go   writes models of published shapes with random weights
//	parity.go  scores the diagnosis on engines that are wrong on purpose
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/pflag"
)

// task is an instrument with a command line of its own.
type task struct {
	name, short string
	run         func(ctx context.Context, args []string, out, log io.Writer) error
}

var tasks = []task{
	{"parity", "score the diagnosis of wrong logits on engines that are wrong on purpose", parityTask},
	{"synth", "write a model of a published shape, or a tiny one, with random weights", synthTask},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "task:", err)
		os.Exit(1)
	}
}

// run executes a command line. Without a task it lists the tasks.
func run(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) > 0 {
		for _, t := range tasks {
			if t.name == args[0] {
				return t.run(ctx, args[1:], out, log)
			}
		}
	}
	fmt.Fprint(log, "Usage: go run ./internal/dev/task TASK [FLAGS]\n\n")
	for _, t := range tasks {
		fmt.Fprintf(log, "  %-8s %s\n", t.name, t.short)
	}
	if len(args) == 0 {
		return pflag.ErrHelp
	}
	return fmt.Errorf("there is no task %q", args[0])
}

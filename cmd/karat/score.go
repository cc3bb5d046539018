package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/spf13/cobra"
)

// maxLine bounds a line of a file to score, in bytes.
const maxLine = 16 << 20

type scoreFlags struct {
	model          string
	sharing        sharing
	tokens, noBOS  bool
	arithmetic     arithmetic
	lora           adapters
	context, lines int
}

func newScoreCommand() *cobra.Command {
	var f scoreFlags
	c := &cobra.Command{
		Use:   "score [MODEL] FILE.jsonl",
		Short: "Score how likely texts, continuations and choices are",
		Long: `Score reads a JSON object from each line of FILE.jsonl (- is standard input), and prints one for each:

  {"context": "The sky is", "continuation": " blue."}     the continuation's log-likelihood
  {"context": "The sky is", "choices": [" blue.", " red."]}  that of each, and which is likeliest
  {"text": "The sky is blue."}                             that of all tokens of a text

"logprob" is the sum of the natural logarithms of the tokens' probabilities, "greedy" says whether each
token is the likeliest in its place, "top1" how many are, and "entropy" is the mean entropy of their places, in nats.
"best" is the index of the likeliest choice, "best_by_characters" and
"best_by_bytes" of the likeliest for its length, without spaces before it. An "id" is copied.

Texts are cut into tokens as lm-evaluation-harness does it: spaces at a context's end belong to the continuation, and
both are encoded together. BOS stands in front where the model wants one. --no-bos leaves it out, as the harness does
unless add_bos_token is set; before a text without a context it stays. A context that is too long loses its beginning.

The model is loaded once, and --parallel of them are computed at a time. The numbers do not depend on that.`,
		Example: `  karat score model.gguf questions.jsonl > scores.jsonl
  echo '{"context": "The color of the sky is", "choices": [" blue.", " red."]}' | karat score - --token-scores`,
		Args: byUse,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.sharing.add(c, 8)
	addContext(fs, &f.context, "maximum `tokens` of a line (default: the model's, at most 8192)")
	fs.BoolVar(&f.tokens, "token-scores", false, "print each token's score")
	renamed(fs, "tokens", "n", "the score of each token is --token-scores")
	fs.BoolVar(&f.noBOS, "no-bos", false, "put no BOS in front")
	f.arithmetic.add(c, karat.Fast)
	f.lora.add(c)
	return leadModel(c, true)
}

func (f *scoreFlags) run(c *cobra.Command, args []string) error {
	o, err := f.arithmetic.options()
	switch {
	case err != nil:
		return err
	case (f.context < 2 || f.context > model.MaxContext) && c.Flags().Changed("ctx"): // one before the continuation, and its own
		return usagef("--ctx %d: want 2 to %d", f.context, model.MaxContext)
	}
	if err := f.sharing.set(&o, c.Flags().Changed); err != nil {
		return err
	}
	file := args[len(args)-1]
	if f.model, err = modelArgument(args[:len(args)-1]); err != nil {
		return err
	}
	in := c.InOrStdin()
	if file != "-" {
		r, err := os.Open(file)
		if err != nil {
			return patherr.Plain(err)
		}
		defer r.Close()
		in = r
	} else {
		file = "standard input"
	}
	ctx, stop := untilSignal()
	defer stop()
	o.Adapters, o.Context = f.lora, f.context
	m, err := loadModel(ctx, f.model, o, c.ErrOrStderr())
	if err == nil {
		defer m.Close()
		err = f.score(ctx, m, in, file, c.OutOrStdout())
	}
	if err != nil && ctx.Err() != nil {
		return failure{statusInterrupted, errors.New("interrupted")}
	}
	return err
}

// answered is a line's answer, or its error.
type answered struct {
	answer *experiment.Answer
	err    error
}

// score reads lines, and writes their answers in order, as many at a time as --parallel says.
func (f *scoreFlags) score(ctx context.Context, m *karat.Model, in io.Reader, file string, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	q := &asked{ctx: ctx, file: file, scorer: &experiment.Scorer{Model: m, NoBOS: f.noBOS, Parts: f.tokens}, queue: make(chan chan answered, f.sharing.parallel-1)}
	defer q.wg.Wait()
	defer cancel()
	q.wg.Go(func() { q.read(in) })
	e := newEncoder(out)
	for x := range q.queue {
		a := <-x
		if a.err != nil {
			return a.err
		}
		if err := e.Encode(a.answer); err != nil {
			return err
		}
		f.lines++
	}
	if f.lines == 0 {
		return fmt.Errorf("%s: no lines", file)
	}
	return nil
}

// asked is the lines that are being answered, in order.
type asked struct {
	ctx    context.Context
	file   string
	scorer *experiment.Scorer
	queue  chan chan answered
	wg     sync.WaitGroup
}

// read queues the lines of in, up to one that cannot be read.
func (q *asked) read(in io.Reader) {
	defer close(q.queue)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			question, err := experiment.ParseQuestion(line)
			if !q.put(n, question, err) || err != nil {
				return
			}
		}
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("a line of more than %d bytes", maxLine)
	}
	if err != nil {
		q.put(n+1, nil, err)
	}
}

// put queues a line, or its error, and reports whether anybody still waits for it.
func (q *asked) put(line int, question *experiment.Question, err error) bool {
	x := make(chan answered, 1)
	q.wg.Go(func() {
		var a answered
		if err == nil {
			a.answer, err = q.scorer.Answer(q.ctx, line, question)
		}
		if err != nil {
			a.err = fmt.Errorf("%s:%d: %w", q.file, line, err)
		}
		x <- a
	})
	select {
	case q.queue <- x:
		return true
	case <-q.ctx.Done():
		return false
	}
}

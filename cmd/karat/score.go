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

// scoreFlags are the flags of score.
type scoreFlags struct {
	tokens, noBOS bool
	engine        engineFlags
	lines         int
}

func newScoreCommand() *cobra.Command {
	f := scoreFlags{engine: engineFlags{parallel: 8}}
	c := define("score", f.run)
	f.engine.addSharing(c)
	c.flags("ctx", &f.engine.context, "token-scores", &f.tokens, "no-bos", &f.noBOS)
	rename(c.Flags(), "tokens", "n", "the score of each token is --token-scores")
	f.engine.add(c, karat.Fast)
	c.flags("lora", f.engine.addLora)
	c.takesModel()
	return c.Command
}

func (f *scoreFlags) run(x *call) error {
	o, err := f.engine.options(x.changed)
	switch {
	case err != nil:
		return err
	case f.engine.context == 1: // a token before the continuation, and its own
		return usagef("--ctx 1: want 2 to %d", model.MaxContext)
	}
	file, in := x.args[0], x.in
	must(x.find())
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
	m := must(x.load(o))
	defer m.Close()
	return f.score(x.ctx, m, in, file, x.out)
}

// answered is a line's answer, or its error.
type answered struct {
	answer *experiment.Answer
	err    error
}

// score reads lines, and writes their answers in order, as many at a time as --parallel says.
func (f *scoreFlags) score(ctx context.Context, m *karat.Model, in io.Reader, file string, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	q := &asked{ctx: ctx, file: file, scorer: &experiment.Scorer{Model: m, NoBOS: f.noBOS, Parts: f.tokens},
		queue: make(chan chan answered, f.engine.parallel-1)}
	defer q.wg.Wait()
	defer cancel()
	q.wg.Go(func() { q.read(in) })
	e := newEncoder(out)
	for x := range q.queue {
		a := <-x
		if a.err != nil {
			return a.err
		}
		throw(e.Encode(a.answer))
		f.lines++
	}
	if f.lines == 0 {
		return fmt.Errorf("%s: no lines", file)
	}
	return nil
}

// asked is the lines under way to an answer, in order.
type asked struct {
	ctx    context.Context
	file   string
	scorer *experiment.Scorer
	queue  chan chan answered
	wg     sync.WaitGroup
}

// read queues the lines of in, up to an unreadable line.
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

// put queues a line, or its error, and reports whether there is still a reader.
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

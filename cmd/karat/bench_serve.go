package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/bench/serving"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type benchServeFlags struct {
	peer, model, svg string
	clients          []int
	rates            []float64
	requests, rounds int
	verify, shared   int
	prompt, answer   []int
	seed             uint64
	abort, heat      float64
	chat, json, csv  bool
	goodput          map[string]string
	soak             time.Duration
}

const benchServeHelp = `Serve measures a server of OpenAI's API as its clients see it: the time to the first token
(TTFT), between tokens (ITL), per token after the first (TPOT), and of the whole answer (E2E).
docs/measuring.md has the formulas. MODEL is served by "karat serve" meanwhile, with the FLAGS of
that; a URL is that of any server. The key in the variable OPENAI_API_KEY goes to URL alone.

--clients 1,8,32 are that many clients that each ask again when they have their answer.
--rate 0.5,2 are requests a second that arrive at random times instead.
Some requests are sent again alone, after each round: the answers must be the same. If one
of the first server is not, the exit status is 1.

--peer is another server, measured in turns with the same requests. The ratios are of rounds.
Ctrl-C ends the measurement; the rounds that were whole are printed.

--soak 2m tries the server instead: clients that leave, read slowly, and stop sending. What the
server holds is compared at the start and the end, from its /metrics. What it keeps for later
requests grows to its --kv-budget: give one that is soon full.`

func newBenchServeCommand() *cobra.Command {
	var f benchServeFlags
	c := &cobra.Command{
		Use:   "serve URL|MODEL [-- FLAGS]",
		Short: "Measure a server as its clients see it",
		Long:  benchServeHelp,
		Example: `  karat bench serve model.gguf
  karat bench serve http://127.0.0.1:8080 --clients 1,8,32 --svg latency.svg
  karat bench serve model.gguf --peer http://127.0.0.1:8081 --clients 8,32 -r 5
  karat bench serve model.gguf --soak 2m -- --kv-budget 256M`,
		Args: func(c *cobra.Command, args []string) error {
			own := args
			if dash := c.ArgsLenAtDash(); dash >= 0 {
				own = args[:dash]
			}
			if err := byUse(c, own); err != nil {
				return err
			}
			if len(args) > 1 && isURL(args[0]) {
				return usagef("%s: flags are for a MODEL that is served here", args[1])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0], args[1:]) },
	}
	f.add(c.Flags())
	c.MarkFlagsMutuallyExclusive("csv", "json")
	c.MarkFlagsMutuallyExclusive("clients", "rate")
	for _, other := range []string{"rate", "peer", "svg", "goodput", "csv", "json"} {
		c.MarkFlagsMutuallyExclusive("soak", other)
	}
	return leadModel(c, false)
}

func (f *benchServeFlags) add(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&f.peer, "peer", "", "`URL` of another server, measured in turns")
	fs.StringVar(&f.model, "name", "", "`name` of the model to ask for (default: the first that a server lists)")
	fs.IntSliceVar(&f.clients, "clients", []int{1, 8, 32}, "`numbers` of clients (default with --soak: 64)")
	fs.Float64SliceVar(&f.rates, "rate", nil, "`numbers` of requests a second, at random times")
	fs.IntVar(&f.requests, "requests", 0, "`number` of requests in a round (default: four for each client, at least 32)")
	fs.IntVarP(&f.rounds, "repetitions", "r", 1, "`rounds` of each load and server")
	alias(fs, "repetitions", "rounds")
	fs.IntSliceVar(&f.prompt, "prompt-tokens", []int{64, 128}, "least and most `tokens` of a prompt")
	renamed(fs, "prompt", "p", "the lengths of prompts are --prompt-tokens")
	fs.IntSliceVar(&f.answer, "answer", []int{16, 64}, "least and most `tokens` of an answer")
	fs.IntVar(&f.shared, "shared-prefix", 0, "`tokens` that all prompts begin with")
	fs.Float64Var(&f.abort, "abort", 0, "`share` of the clients that leave before the end (default with --soak: 0.3)")
	fs.Uint64Var(&f.seed, "seed", 1, "`number` that lengths, texts and times follow from")
	fs.Float64Var(&f.heat, "temperature", 0, "`temperature` of sampling; every request has a seed")
	fs.IntVar(&f.verify, "verify", 4, "`requests` of a round that are sent again alone")
	fs.StringToStringVar(&f.goodput, "goodput", nil, "`limits` of a good answer in ms, as ttft=500,tpot=50,e2e=10000")
	fs.BoolVar(&f.chat, "chat", false, "ask for chat instead of completions")
	fs.DurationVar(&f.soak, "soak", 0, "`time` to try the server for, as 2m")
	fs.Var((*name)(&f.svg), "svg", "`file` for a picture of latency over load")
	fs.BoolVar(&f.csv, "csv", false, "print CSV")
	fs.BoolVar(&f.json, "json", false, "print JSON, with every request")
}

// span is a range of one or two numbers.
func span(flag string, list []int) (serving.Range, error) {
	if len(list) < 1 || len(list) > 2 || slices.Min(list) < 1 || list[0] > list[len(list)-1] {
		return serving.Range{}, usagef("%s %v: want the least and the most, or one number", flag, list)
	}
	return serving.Range{Min: list[0], Max: list[len(list)-1]}, nil
}

func (f *benchServeFlags) options() (o serving.Options, err error) {
	o = serving.Options{Requests: f.requests, Rounds: f.rounds, Verify: f.verify}
	o.Workload = serving.Workload{Seed: f.seed, Shared: f.shared, Abort: f.abort, Chat: f.chat, Temperature: f.heat}
	if o.Prompt, err = span("--prompt-tokens", f.prompt); err != nil {
		return o, err
	}
	if o.Answer, err = span("--answer", f.answer); err != nil {
		return o, err
	}
	for _, r := range f.rates {
		o.Levels = append(o.Levels, serving.Level{Rate: r})
	}
	if len(f.rates) == 0 {
		for _, n := range f.clients {
			o.Levels = append(o.Levels, serving.Level{Clients: n})
		}
	}
	for key, text := range f.goodput {
		ms, err := time.ParseDuration(text + "ms")
		to := map[string]*float64{"ttft": &o.Limits.TTFT, "tpot": &o.Limits.TPOT, "e2e": &o.Limits.E2E}[key]
		if err != nil || ms <= 0 || to == nil {
			return o, usagef("--goodput %s=%s: want ttft, tpot or e2e, and milliseconds", key, text)
		}
		*to = ms.Seconds()
	}
	return o, nil
}

// target is a server that clients reach by connections of their own.
func target(url, model, key string) *serving.Target {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.Proxy, t.DisableCompression = 0, 1<<14, nil, true
	return &serving.Target{URL: strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v1"), Model: model, Key: key, Client: &http.Client{Transport: t}}
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

func (f *benchServeFlags) run(c *cobra.Command, arg string, flags []string) (err error) {
	o, err := f.options()
	if err != nil {
		return err
	}
	if f.peer != "" && !isURL(f.peer) {
		return usagef("--peer %s: want a URL", f.peer)
	}
	if err := spareNew("--svg "+f.svg, f.svg, arg); err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	say := func(text string) { fmt.Fprintln(c.ErrOrStderr(), "karat:", text) }
	o.Progress = say
	url, key := arg, os.Getenv("OPENAI_API_KEY")
	if !isURL(arg) {
		key = ""
		var end func()
		if url, end, err = serveFor(ctx, arg, flags, c.ErrOrStderr()); err != nil {
			return err
		}
		defer end()
	}
	targets := []*serving.Target{target(url, f.model, key)}
	if f.peer != "" {
		targets = append(targets, target(f.peer, f.model, ""))
	}
	if f.soak > 0 {
		err = f.runSoak(ctx, c, targets[0], o)
	} else {
		err = f.runLevels(ctx, c, targets, o)
	}
	if ctx.Err() != nil {
		return failure{statusInterrupted, errors.New("interrupted")}
	}
	return err
}

func (f *benchServeFlags) runLevels(ctx context.Context, c *cobra.Command, targets []*serving.Target, o serving.Options) error {
	r, failed := serving.Run(ctx, targets, o)
	if failed != nil && (ctx.Err() == nil || r == nil || len(r.Rows) == 0) {
		return failed
	}
	write := r.WriteMarkdown
	switch {
	case f.json:
		write = r.WriteJSON
	case f.csv:
		write = r.WriteCSV
	}
	if err := write(c.OutOrStdout()); err != nil {
		return err
	}
	if f.svg != "" {
		if err := atomicfile.Write(f.svg, r.WriteSVG); err != nil {
			return err
		}
	}
	switch {
	case failed != nil:
		return failed
	case r.Differ() > 0:
		return fmt.Errorf("%s changed when asked again alone", count(r.Differ(), "answer"))
	case r.Failed() > 0:
		return fmt.Errorf("%s failed", count(r.Failed(), "request"))
	}
	return nil
}

func (f *benchServeFlags) runSoak(ctx context.Context, c *cobra.Command, t *serving.Target, o serving.Options) error {
	s := serving.Soak{Workload: o.Workload, Clients: f.clients[0], Time: f.soak, Slow: .1, Uploads: .05, Progress: o.Progress}
	if !c.Flags().Changed("clients") {
		s.Clients = 64
	}
	if !c.Flags().Changed("abort") {
		s.Abort = .3
	}
	r, err := s.Run(ctx, t)
	if err != nil {
		return err
	}
	if err := r.WriteMarkdown(c.OutOrStdout()); err != nil {
		return err
	}
	grown := r.Growth()
	switch {
	case len(grown) > 0:
		return errors.New("more at the end: " + strings.Join(grown, ", "))
	case r.Failed > 0:
		return fmt.Errorf("%s failed", count(r.Failed, "request"))
	}
	return nil
}

// serveFor serves a model in a process of its own, whose memory is then the server's alone, until end is called.
func serveFor(ctx context.Context, model string, flags []string, log io.Writer) (url string, end func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	p := exec.CommandContext(ctx, program, slices.Concat([]string{"serve", "--port", "0", "--quiet", "--no-page"}, flags, []string{"--", model})...)
	p.Env = slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, keyVariable+"=") || strings.HasPrefix(s, "KARAT_SERVE_")
	})
	p.Stderr = log
	out, err := p.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := p.Start(); err != nil {
		return "", nil, err
	}
	end = func() {
		p.Process.Kill() // nobody asks any more
		p.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return "", nil, fmt.Errorf("karat serve %s ended before it served", model)
	}
	go io.Copy(io.Discard, out)
	return strings.TrimSpace(line), end, nil
}

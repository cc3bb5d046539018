// Command serving measures servers under load, Karat's beside others'.
//
// Files, users before the used: main.go, soak.go, gauges.go, format.go, run.go, svg.go, report.go, target.go,
// workload.go.
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
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/spf13/pflag"
)

// flags are the flags of the program.
type flags struct {
	peer, model, svg, karat string
	clients                 []int
	rates                   []float64
	requests, rounds        int
	verify, shared          int
	prompt, answer          []int
	seed                    uint64
	abort, heat             float64
	chat, json, csv         bool
	goodput                 map[string]string
	soak                    time.Duration

	changed func(name string) bool
}

const help = `Serving measures a server of OpenAI's API as its clients see it: the time to the first token
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
requests grows to its --kv-budget: give one that is soon full.

Usage:
  go run ./internal/dev/serving URL|MODEL [-- FLAGS]

Examples:
  go run ./internal/dev/serving http://127.0.0.1:8080 --clients 1,8,32 --svg latency.svg
  go run ./internal/dev/serving --karat ./karat model.gguf --peer http://127.0.0.1:8081 --clients 8,32 -r 5
  go run ./internal/dev/serving --karat ./karat model.gguf --soak 2m -- --kv-budget 256M

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
		return
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	fmt.Fprintln(os.Stderr, "serving:", err)
	os.Exit(1)
}

// run executes a command line.
func run(ctx context.Context, args []string, out, log io.Writer) error {
	var f flags
	fs := pflag.NewFlagSet("serving", pflag.ContinueOnError)
	fs.SetOutput(log)
	fs.Usage = func() { fmt.Fprint(log, help, fs.FlagUsages()) }
	f.add(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	f.changed = fs.Changed
	own, theirs := fs.Args(), []string(nil)
	if dash := fs.ArgsLenAtDash(); dash >= 0 {
		own, theirs = own[:dash], own[dash:]
	}
	if len(own) != 1 {
		return fmt.Errorf("%d arguments, want URL or MODEL", len(own))
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	return f.run(ctx, own[0], theirs, o, out, log)
}

func (f *flags) add(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&f.peer, "peer", "", "`URL` of another server, measured in turns")
	fs.StringVar(&f.model, "name", "", "`name` of the model to ask for (default: the first that a server lists)")
	fs.IntSliceVar(&f.clients, "clients", []int{1, 8, 32}, "`numbers` of clients (default with --soak: 64)")
	fs.Float64SliceVar(&f.rates, "rate", nil, "`numbers` of requests a second, at random times")
	fs.IntVar(&f.requests, "requests", 0, "`number` of requests in a round "+
		"(default: four for each client, at least 32)")
	fs.IntVarP(&f.rounds, "repetitions", "r", 1, "`rounds` of each load and server")
	fs.IntSliceVar(&f.prompt, "prompt-tokens", []int{64, 128}, "least and most `tokens` of a prompt")
	fs.IntSliceVar(&f.answer, "answer", []int{16, 64}, "least and most `tokens` of an answer")
	fs.IntVar(&f.shared, "shared-prefix", 0, "`tokens` that all prompts begin with")
	fs.Float64Var(&f.abort, "abort", 0, "`share` of the clients that leave before the end (default with --soak: 0.3)")
	fs.Uint64Var(&f.seed, "seed", 1, "`number` that lengths, texts and times follow from")
	fs.Float64Var(&f.heat, "temperature", 0, "`temperature` of sampling; every request has a seed")
	fs.IntVar(&f.verify, "verify", 4, "`requests` of a round that are sent again alone")
	fs.StringToStringVar(&f.goodput, "goodput", nil, "`limits` of a good answer in ms, as ttft=500,tpot=50,e2e=10000")
	fs.BoolVar(&f.chat, "chat", false, "ask for chat instead of completions")
	fs.DurationVar(&f.soak, "soak", 0, "`time` to try the server for, as 2m")
	fs.StringVar(&f.svg, "svg", "", "`file` for a picture of latency over load")
	fs.StringVar(&f.karat, "karat", "karat", "`program` that serves MODEL")
	fs.BoolVar(&f.csv, "csv", false, "print CSV")
	fs.BoolVar(&f.json, "json", false, "print JSON, with every request")
}

// span is a range of one or two numbers.
func span(flag string, list []int) (Range, error) {
	if len(list) < 1 || len(list) > 2 || slices.Min(list) < 1 || list[0] > list[len(list)-1] {
		return Range{}, fmt.Errorf("%s %v: want the least and the most, or one number", flag, list)
	}
	return Range{Min: list[0], Max: list[len(list)-1]}, nil
}

// options checks the flags.
func (f *flags) options() (o Options, err error) {
	if f.json && f.csv || f.changed("clients") && f.changed("rate") {
		return o, errors.New("--csv and --json, --clients and --rate: give one of them")
	}
	for _, other := range []string{"rate", "peer", "svg", "goodput", "csv", "json"} {
		if f.soak > 0 && f.changed(other) {
			return o, fmt.Errorf("--soak and --%s: give one of them", other)
		}
	}
	if f.peer != "" && !isURL(f.peer) {
		return o, fmt.Errorf("--peer %s: want a URL", f.peer)
	}
	o = Options{Requests: f.requests, Rounds: f.rounds, Verify: f.verify}
	o.Workload = Workload{Seed: f.seed, Shared: f.shared, Abort: f.abort, Chat: f.chat, Temperature: f.heat}
	if o.Prompt, err = span("--prompt-tokens", f.prompt); err != nil {
		return o, err
	}
	if o.Answer, err = span("--answer", f.answer); err != nil {
		return o, err
	}
	for _, r := range f.rates {
		o.Levels = append(o.Levels, Level{Rate: r})
	}
	if len(f.rates) == 0 {
		for _, n := range f.clients {
			o.Levels = append(o.Levels, Level{Clients: n})
		}
	}
	for key, text := range f.goodput {
		ms, err := time.ParseDuration(text + "ms")
		to := map[string]*float64{"ttft": &o.Limits.TTFT, "tpot": &o.Limits.TPOT, "e2e": &o.Limits.E2E}[key]
		if err != nil || ms <= 0 || to == nil {
			return o, fmt.Errorf("--goodput %s=%s: want ttft, tpot or e2e, and milliseconds", key, text)
		}
		*to = ms.Seconds()
	}
	return o, nil
}

// target is a server that clients reach by connections of their own.
func target(url, model, key string) *Target {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.Proxy, t.DisableCompression = 0, 1<<14, nil, true
	return &Target{URL: strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/v1"), Model: model, Key: key,
		Client: &http.Client{Transport: t}}
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

// run measures the servers.
func (f *flags) run(ctx context.Context, arg string, theirs []string, o Options, out, log io.Writer) error {
	if len(theirs) > 0 && isURL(arg) {
		return fmt.Errorf("%s: flags are for a MODEL that is served here", theirs[0])
	}
	if f.svg != "" {
		if filepath.Clean(f.svg) == filepath.Clean(arg) {
			return fmt.Errorf("--svg %s would replace the model", f.svg)
		}
		if err := atomicfile.Check(f.svg); err != nil {
			return err
		}
	}
	o.Progress = func(text string) { fmt.Fprintln(log, "serving:", text) }
	url, key := arg, os.Getenv("OPENAI_API_KEY")
	if !isURL(arg) {
		var end func()
		var err error
		key = ""
		if url, end, err = f.serve(ctx, arg, theirs, log); err != nil {
			return err
		}
		defer end()
	}
	targets := []*Target{target(url, f.model, key)}
	if f.peer != "" {
		targets = append(targets, target(f.peer, f.model, ""))
	}
	if f.soak > 0 {
		return f.runSoak(ctx, out, targets[0], o)
	}
	return f.runLevels(ctx, out, targets, o)
}

func (f *flags) runLevels(ctx context.Context, out io.Writer, targets []*Target, o Options) error {
	r, failed := Measure(ctx, targets, o)
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
	if err := write(out); err != nil {
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
		return fmt.Errorf("%s changed when asked again alone", counted(r.Differ(), "answer"))
	case r.Failed() > 0:
		return fmt.Errorf("%s failed", counted(r.Failed(), "request"))
	}
	return nil
}

func (f *flags) runSoak(ctx context.Context, out io.Writer, t *Target, o Options) error {
	s := Soak{Workload: o.Workload, Clients: f.clients[0], Time: f.soak, Slow: .1, Uploads: .05, Progress: o.Progress}
	if !f.changed("clients") {
		s.Clients = 64
	}
	if !f.changed("abort") {
		s.Abort = .3
	}
	r, err := s.Run(ctx, t)
	if err != nil {
		return err
	}
	if err := r.WriteMarkdown(out); err != nil {
		return err
	}
	grown := r.Growth()
	switch {
	case len(grown) > 0:
		return errors.New("more at the end: " + strings.Join(grown, ", "))
	case r.Failed > 0:
		return fmt.Errorf("%s failed", counted(r.Failed, "request"))
	}
	return nil
}

// serve serves a model in a process of its own, whose memory is then the server's alone, until end is called.
func (f *flags) serve(ctx context.Context, model string, flags []string, log io.Writer) (url string, end func(),
	err error) {
	args := slices.Concat([]string{"serve", "--port", "0", "--quiet", "--no-page"}, flags, []string{"--", model})
	p := exec.CommandContext(ctx, f.karat, args...)
	p.Env = slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "KARAT_API_KEY=") || strings.HasPrefix(s, "KARAT_SERVE_")
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

// counted returns a number of things in words.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

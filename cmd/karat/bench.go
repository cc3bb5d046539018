package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/bench"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	model                             string // the path of MODEL
	prompt                            benchPrompt
	chat                              chatFlags
	tokens, depths, threads, parallel []int
	arrive                            []int
	repeat                            int
	csv, json, markdown               bool
	peer                              string
	limits, profile                   bool
	noFuse, quantize                  commaList
	engine                            engineFlags // without threads
}

func newBenchCommand() *cobra.Command {
	f := benchFlags{tokens: []int{64}, depths: []int{0}, threads: []int{sysinfo.Threads()}, parallel: []int{1},
		arrive: []int{0}, repeat: 5}
	f.prompt.counts = []int{512}
	c := define("bench", f.run)
	c.takesModel()
	c.flags("prompt", &f.prompt)
	f.chat.add(c)
	c.flags("tokens", &f.tokens, "depth", &f.depths, "threads", &f.threads, "parallel", &f.parallel, "arrive",
		&f.arrive, "repetitions", &f.repeat, "limits", &f.limits, "profile", &f.profile, "peer", file(&f.peer),
		"quantize", &f.quantize,
		"csv", &f.csv, "json", &f.json, "markdown", &f.markdown, "kv-budget", &f.engine.budget, "no-fuse", &f.noFuse)
	c.Flags().Lookup("quantize").NoOptDefVal = "Q8_0,Q4_0,Q4_K_M"
	rename(c.Flags(), "ctx", "c", "a test takes the context that it needs: -p, -n and -d")
	f.engine.add(c, karat.Fast)
	f.engine.addDraft(c)
	f.engine.draft.value = string(karat.DraftOff)
	c.Flags().Lookup("draft").DefValue = string(karat.DraftOff)
	c.Flags().Lookup("draft").NoOptDefVal = string(karat.DraftAuto)
	c.flags("lora", f.engine.addLora)
	c.MarkFlagsMutuallyExclusive("csv", "json", "markdown")
	return c.Command
}

// options checks the flags.
func (f *benchFlags) options() (o bench.Options, err error) {
	for _, list := range []struct {
		flag        string
		values      []int
		least, most int
	}{{"-n", f.tokens, 0, 1 << 20}, {"-d", f.depths, 0, 1 << 20}, {"-t", f.threads, 1, 1024},
		{"--parallel", f.parallel, 1, 256},
		{"--arrive", f.arrive, 0, 1 << 20}, {"-r", []int{f.repeat}, 1, 10000}} {
		if len(list.values) == 0 {
			return o, usagef("%s: the list is empty", list.flag)
		}
		for _, n := range list.values {
			if n < list.least || n > list.most {
				return o, usagef("%s %d: want %d to %d", list.flag, n, list.least, list.most)
			}
		}
	}
	m, err := f.engine.model()
	if err != nil {
		return o, err
	}
	o = bench.Options{Prompts: dropZeros(f.prompt.counts), Tokens: dropZeros(f.tokens), Depths: f.depths,
		Threads: f.threads, Parallel: f.parallel, Arrive: dropZeros(f.arrive),
		Drafts: f.engine.draft.value != string(karat.DraftOff),
		Head:   f.engine.draft.value == string(karat.DraftAuto) || f.engine.draft.value == string(karat.DraftMTP),
		Budget: int64(f.engine.budget), Repeat: f.repeat,
		NoFuse: f.noFuse,
		NoFit:  m.NoFit, Adapters: m.Adapters, Numerics: m.Numerics, Profile: f.profile}
	if f.csv && len(o.Prompts)+len(f.prompt.text)+len(o.Tokens)+len(o.Arrive) == 0 {
		return o, usagef("--csv cannot show loading, the only test here: use --json")
	}
	if o.Numerics.GPU > 0 {
		o.Threads = o.Threads[:1] // the speed is the same for any number
	}
	if f.limits {
		if o.Numerics.Precision == "f64" || o.Numerics.GPU > 0 {
			return o, usagef("--limits works on the CPU only, and not with --precision f64")
		}
		o.Limits, o.Free = true, sysinfo.Memory()
	}
	if f.profile && (o.Numerics.Precision == "f64" || o.Numerics.GPU > 0) {
		return o, usagef("--profile works on the CPU only, and not with --precision f64")
	}
	o.Peer, err = f.peerOf(o.Numerics)
	return o, err
}

// peerOf returns the programs for the comparison, nil without --peer.
func (f *benchFlags) peerOf(n numerics.Numerics) (*bench.Peer, error) {
	switch {
	case f.peer == "":
		return nil, nil
	case f.model == "":
		return nil, usagef("--peer needs a MODEL")
	case n.KV == "f64":
		return nil, usagef("--peer does not work with --precision f64")
	}
	if info, err := os.Stat(f.model); err == nil && info.IsDir() {
		return nil, usagef("--peer reads GGUF files, but %s is a folder", f.model)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path, err := filepath.Abs(f.peer)
	if err != nil {
		return nil, err
	}
	p := &bench.Peer{Bench: path, KV: n.KV, Self: []string{program, "bench", "-m", f.model, "-p", "0", "-n", "0",
		"--backend", f.engine.backend, "--precision", n.Asked(), "--kv", n.KV}}
	for _, name := range f.noFuse {
		p.Self = append(p.Self, "--no-fuse", name)
	}
	return p, p.Check(f.parallel)
}

func dropZeros(list []int) (some []int) {
	for _, n := range list {
		if n > 0 {
			some = append(some, n)
		}
	}
	return some
}

func (f *benchFlags) run(x *call) (err error) {
	f.model = must(x.find())
	if f.quantize != nil {
		return f.runQuantize(x)
	}
	o := must(f.options())
	f.chat.imply()
	switch {
	case f.prompt.text == "" && f.chat.chat:
		return usagef("--chat needs the text of a message: -p TEXT")
	case f.prompt.text != "" && (x.changed("depth") || len(o.Arrive) > 0):
		return usagef("-d and --arrive do not work with the text of a prompt")
	}
	o.Progress = func(test string) { x.say("%s", test) }
	name := must(deviceName(o.Numerics))
	throw(f.readPrompt(x, &o))
	sayDemo(f.model, x.log)
	r, err := bench.Run(x.ctx, func() (*checkpoint.Checkpoint, error) { return openCheckpoint(f.model) }, o)
	err = explainBudget(err)
	interrupted := x.isEnded(err)
	if err != nil && !interrupted && len(r.Results) == 0 {
		return err
	}
	r.Backend = name
	write := r.WriteMarkdown
	switch {
	case f.csv:
		write = r.WriteCSV
	case f.json:
		write = func(w io.Writer) error { return writeJSON(w, r) }
		if !interrupted {
			var failed error
			if r.Hashes, failed = hashesAt(x.ctx, f.model); failed != nil {
				return failed
			}
		}
	}
	throw(write(x.out)) // also results before an error
	if interrupted {
		return x.interrupted(": some tests did not run")
	}
	return err
}

// withQuantize lists the flags compatible with --quantize.
var withQuantize = []string{"model", "pull", "no-pull", "quantize", "threads", "repetitions", "peer", "json",
	"markdown"}

// runQuantize measures quantizing.
func (f *benchFlags) runQuantize(x *call) (err error) {
	x.Flags().Visit(func(g *pflag.Flag) {
		if !slices.Contains(withQuantize, g.Name) && err == nil {
			err = usagef("--%s does not work with --quantize", g.Name)
		}
	})
	switch {
	case err != nil:
		return err
	case f.model == "":
		return usagef("--quantize needs a MODEL")
	case len(f.quantize) == 0:
		return usagef("--quantize: the list of types is empty")
	case f.repeat < 1 || f.repeat > 10000 || slices.Min(append(f.threads, 1)) < 1 ||
		slices.Max(append(f.threads, 1)) > 1024:
		return usagef("-r %d, -t %v: want 1 to 10000 runs and 1 to 1024 threads", f.repeat, f.threads)
	}
	for _, kind := range f.quantize {
		if _, ok := quantmix.Find(kind); !ok {
			return usagef("--quantize: type %q, want %s", kind, strings.Join(quantmix.Names(), ", "))
		}
	}
	program := must(os.Executable())
	o := bench.QuantizeOptions{File: f.model, Types: f.quantize, Threads: f.threads, Repeat: f.repeat, Self: program}
	o.Progress = func(test string) { x.say("%s", test) }
	if f.peer != "" {
		o.Peer = must(filepath.Abs(f.peer))
	}
	all, err := bench.Quantize(x.ctx, o)
	if len(all) > 0 {
		write := bench.WriteQuantizing
		if f.json {
			write = func(w io.Writer, all []bench.Quantizing) error { return writeJSON(w, all) }
		}
		err = errors.Join(err, write(x.out, all))
	}
	if x.isEnded(err) {
		return x.interrupted(": some tests did not run")
	}
	return err
}

// benchPrompt is a flag of numbers of tokens, or of a text. Numbers in quotation marks are text.
type benchPrompt struct {
	counts []int
	text   string
	given  bool
}

var countList = regexp.MustCompile(`^[-+0-9, ]+$`)

func (p *benchPrompt) Type() string { return "tokens or text" }

func (p *benchPrompt) String() string {
	if p.text != "" {
		return p.text
	}
	return numberList(p.counts)
}

func (p *benchPrompt) Set(s string) error {
	if !p.given {
		p.counts = nil
	}
	if p.text != "" || p.given && !countList.MatchString(s) {
		return errors.New("one text, or numbers of tokens")
	}
	p.given = true
	if !countList.MatchString(s) {
		if p.text = unquoted(s); p.text == "" {
			return errors.New("want numbers of tokens, or a text")
		}
		return nil
	}
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 0 || n > 1<<20 {
			return cmp.Or(err, fmt.Errorf("want 0 to %d", 1<<20))
		}
		p.counts = append(p.counts, n)
	}
	return nil
}

// readPrompt sets the test of o to the text of -p, if there is one.
func (f *benchFlags) readPrompt(x *call, o *bench.Options) error {
	if f.prompt.text == "" {
		return nil
	}
	g := must(f.chat.options())
	m := must(x.load(karat.Options{NoFit: f.engine.noFit}))
	defer m.Close()
	ids, template, err := f.chat.ids(x.ctx, m, f.prompt.text, g)
	if err == nil {
		o.Prompt, o.Prompts = &bench.Prompt{Template: template, IDs: ids}, []int{len(ids)}
	}
	return err
}

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// engineFlags are the flags of every command with a running model.
type engineFlags struct {
	backend       string
	threads       int
	precision, kv choice
	noFit         bool
	lora          []karat.Adapter
	context       int  // 0 is the default
	budget        size // 0 is the default
	parallel      int  // 0 is as many as budget holds
	draft         choice
	projector     string
}

// add registers the flags; precision is the default.
func (a *engineFlags) add(c *command, precision karat.Precision) {
	a.precision = choice{string(precision), []string{string(karat.Fast), string(karat.Float32), string(karat.Float64)}}
	a.kv = choice{values: []string{"f16", "q8_0", "q8_0!", "f32"}}
	a.addDevice(c)
	c.flags("precision", &a.precision, "kv", &a.kv)
}

// addDevice registers the flags of the computing device.
func (a *engineFlags) addDevice(c *command) {
	a.backend = "cpu"
	c.flags("backend", &a.backend, "no-fit", &a.noFit)
	if c.Flags().Lookup("threads") == nil { // bench takes a list
		c.flags("threads", &a.threads)
	}
	c.complete("backend", completeBackends)
}

// completeBackends completes the devices of "karat devices".
func completeBackends(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names := []string{"cpu\tthe processor", "webgpu\tthe first GPU"}
	if d, err := findDevices(); err == nil {
		for i, g := range d.GPUs {
			names = append(names, fmt.Sprintf("webgpu:%d\t%s", i, oneLine(g.Name)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// numerics returns the arithmetic of the flags.
func (a *engineFlags) numerics() (numerics.Numerics, error) {
	switch {
	case a.threads < 0 || a.threads > 1024:
		return numerics.Numerics{}, usagef("--threads %d: want 1 to 1024, or 0 for one for each core", a.threads)
	case a.precision.value == string(karat.Float64) && a.kv.value != "" && a.kv.value != "f32":
		return numerics.Numerics{}, usagef("--precision f64 keeps keys and values in float64: --kv %s contradicts it",
			a.kv.value)
	}
	n, err := numerics.Parse(a.precision.value, a.kv.value)
	if err == nil {
		n, err = n.On(a.backend)
	}
	if err != nil {
		return n, usageError{err}
	}
	return n, nil
}

// options returns the library's options for the flags. changed reports whether the command line has a flag.
func (a *engineFlags) options(changed func(name string) bool) (o karat.Options, err error) {
	if _, err := a.numerics(); err != nil {
		return o, err
	}
	if (a.context < 1 || a.context > model.MaxContext) && changed("ctx") {
		return o, usagef("--ctx %d: want 1 to %d", a.context, model.MaxContext)
	}
	if changed("parallel") && (a.parallel < 1 || a.parallel > maxParallel) {
		return o, usagef("--parallel %d: want 1 to %d", a.parallel, maxParallel)
	}
	return karat.Options{Backend: karat.Backend(a.backend), Threads: a.threads,
		Precision: karat.Precision(a.precision.value), KV: karat.KVType(a.kv.value), NoFit: a.noFit,
		Context: a.context, Adapters: a.lora, KVBudget: int64(a.budget), Projector: a.projector,
		Parallel: a.parallel, Draft: karat.Draft(a.draft.value)}, nil
}

// addDraft registers the flag of drafts.
func (a *engineFlags) addDraft(c *command) {
	a.draft = choice{string(karat.DraftAuto), []string{string(karat.DraftAuto), string(karat.DraftOff),
		string(karat.DraftNgram), string(karat.DraftMTP)}}
	c.flags("draft", &a.draft)
}

// model returns the options for commands with an engine of their own.
func (a *engineFlags) model() (o model.Options, err error) {
	o = model.Options{Threads: a.threads, NoFit: a.noFit}
	for _, x := range a.lora {
		o.Adapters = append(o.Adapters, model.Adapter{Path: x.Path, By: x.Scale})
	}
	o.Numerics, err = a.numerics()
	return o, err
}

// maxParallel is the maximum of --parallel.
const maxParallel = 1024

// addSharing registers the flags of commands with requests sharing a model's steps and memory. A command with sequences
// computed in turn, such as eval, has only --kv-budget.
func (a *engineFlags) addSharing(c *command) {
	c.flags("kv-budget", &a.budget, "parallel", &a.parallel)
}

// explainBudget adds the flag's name to an error of the budget with the numbers.
func explainBudget(err error) error {
	if errors.Is(err, karat.ErrBudget) {
		return fmt.Errorf("--kv-budget: %w", err)
	}
	return err
}

// addLora takes FILE or FILE:SCALE. The text after the last colon is a scale if it is a number, and if no file has the
// whole text for its name.
func (a *engineFlags) addLora(s string) error {
	x := karat.Adapter{Path: s, Scale: 1}
	if _, err := os.Stat(s); err == nil {
		a.lora = append(a.lora, x)
		return nil
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if by, err := strconv.ParseFloat(s[i+1:], 64); err == nil {
			x.Path, x.Scale = s[:i], by
		} else if _, e := os.Stat(s[:i]); e == nil {
			return fmt.Errorf("%q after the last colon is no number", s[i+1:])
		}
	}
	switch {
	case x.Path == "":
		return errors.New("it is empty")
	case math.IsNaN(x.Scale) || math.IsInf(x.Scale, 0):
		return errors.New("the scale is no finite number")
	}
	a.lora = append(a.lora, x)
	return nil
}

// samplingFlags say how tokens are chosen. Each flag overrides a setting of the publisher's recommendation.
type samplingFlags struct {
	flags *pflag.FlagSet
	given karat.Sampling
	seed  uint64
}

func (s *samplingFlags) add(c *command) {
	s.flags = c.Flags()
	c.flags("temp", &s.given.Temperature, "top-k", &s.given.TopK, "top-p", &s.given.TopP, "min-p", &s.given.MinP,
		"repeat-penalty", &s.given.RepeatPenalty, "seed", &s.seed)
}

// check returns an error for a value out of range.
func (s *samplingFlags) check() error {
	if err := s.given.Validate(); err != nil {
		return usagef("%s", optionFlags.Replace(err.Error()))
	}
	return nil
}

// optionFlags replaces options' names by their flags.
var optionFlags = strings.NewReplacer("Sampling.Temperature:", "--temp:", "Sampling.TopK:", "--top-k:",
	"Sampling.TopP:", "--top-p:", "Sampling.MinP:", "--min-p:", "Sampling.RepeatPenalty:", "--repeat-penalty:")

// override returns a recommendation with the given flags in place.
func (s *samplingFlags) override(r karat.Sampling) karat.Sampling {
	for flag, set := range map[string]func(){
		"temp":           func() { r.Temperature = s.given.Temperature },
		"top-k":          func() { r.TopK = s.given.TopK },
		"top-p":          func() { r.TopP = s.given.TopP },
		"min-p":          func() { r.MinP = s.given.MinP },
		"repeat-penalty": func() { r.RepeatPenalty = s.given.RepeatPenalty },
		"seed":           func() { r.Seed = &s.seed },
	} {
		if s.flags.Changed(flag) {
			set()
		}
	}
	return r
}

// maxGrammar bounds the size of a schema or grammar, in bytes.
const maxGrammar = 1 << 20

// grammarFlags say the form of an answer.
type grammarFlags struct {
	schema, gbnf, pattern string

	turn karat.ResponseFormat // the form of the flags; set by read
}

func (f *grammarFlags) add(c *command) {
	c.flags("json-schema", file(&f.schema), "grammar", file(&f.gbnf), "regex", file(&f.pattern))
}

// grammar reads the flags' grammar and returns it for a whole text, nil for none.
func (f *grammarFlags) grammar() (*karat.Grammar, error) {
	given := slices.DeleteFunc([]string{f.schema, f.gbnf, f.pattern}, func(s string) bool { return s == "" })
	switch {
	case len(given) == 0:
		return nil, nil
	case len(given) > 1:
		return nil, usagef("--json-schema, --grammar and --regex: give one of them")
	}
	from, text := "--regex", f.pattern
	if f.pattern == "" {
		from, text = must2(f.read())
	}
	var g *karat.Grammar
	var err error
	switch {
	case f.pattern != "":
		f.turn.Regexp = text
		g, err = karat.Regexp(text)
	case f.schema != "":
		f.turn.Schema = []byte(text)
		g, err = karat.JSONSchema(f.turn.Schema)
	case strings.HasSuffix(from, ".lark"):
		f.turn.Lark = text
		g, err = karat.Lark(text)
	default:
		f.turn.GBNF = text
		g, err = karat.GBNF(text)
	}
	switch {
	case err == nil:
		return g, nil
	case strings.HasPrefix(from, "--"):
		return nil, usagef("%s: %w", from, err)
	}
	return nil, fmt.Errorf("%s: %w", from, err)
}

// read returns the text of the schema or the grammar, and its source: a file, or the flag if the flag has the text
// itself.
func (f *grammarFlags) read() (from, text string, err error) {
	flag, value, inline := "--grammar", f.gbnf, strings.Contains(f.gbnf, "::=")
	if f.schema != "" {
		flag, value = "--json-schema", f.schema
		inline = strings.HasPrefix(strings.TrimSpace(value), "{") || value == "true" || value == "false"
	}
	text, err = readWhole(value, maxGrammar)
	switch {
	case err == nil:
		return value, text, nil
	case inline:
		return flag, value, nil
	}
	return "", "", fmt.Errorf("%s: %w", flag, err)
}

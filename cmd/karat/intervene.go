package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/experiment"
	"github.com/spf13/cobra"
)

// intervention is a command that changes values at nodes.
type intervention struct {
	verb, what string // of the command, and of its first line
	long       string
	examples   []string
}

var interventions = []intervention{
	{"ablate", "set values to 0, or to their mean",
		`Ablate sets the values to 0. With --mean it sets them to their mean over the prompt's positions, of a run without edits.`,
		[]string{`karat lab ablate model.gguf "The color of the sky is" --at blk.3.attn_output --heads 2`, `karat lab ablate "The color of the sky is" --at ffn_down --layers 2-4 --mean`}},
	{"scale", "multiply values by a number",
		`Scale multiplies the values by --by.`,
		[]string{`karat lab scale model.gguf "The color of the sky is" --at blk.12.attn_output --heads 3,7 --by 0.5`}},
	{"replace", "set values to those of a file",
		`Replace sets the values to those of --values.`,
		[]string{`karat lab replace model.gguf "The color of the sky is" --at blk.3.out --positions last --values x.npy`}},
	{"patch", "set values to those of another prompt's run",
		`Patch computes --from-prompt, and sets the values to those of the same nodes there. A position has the values of the same
position of the other prompt. --from-positions names others, as many as --positions has.`,
		[]string{`karat lab patch model.gguf "The color of the sky is" --from-prompt "The color of the sun is" --at blk.3.out --positions last`}},
	{"steer", "add a direction to values",
		`Steer adds --by times a direction: --values, or the values of --from-prompt less those of --minus-prompt, each at its last
position, or the mean over --from-positions.`,
		[]string{`karat lab steer model.gguf "I think that" --at blk.6.out --from-prompt "Love" --minus-prompt "Hate" --by 4`}},
}

const interventionHelp = `

It prints the likeliest tokens without and with that, the KL divergence, and the text that follows in both cases.

--at takes names of "karat inspect --graph", or PyTorch's, with * for any characters. A name without its layer is that node of all
layers, or of --layers. --heads chooses heads, --channels elements, of each head where heads are chosen. The heads of blk.N.attn_output
are those of the attention that it reads: values are changed there.

--positions takes all (the default: of the prompt and of what is generated), prompt, generated, last, root (the first), numbers from 0,
ranges as 3-5, negative numbers from the prompt's end, separated by commas; and text:PATTERN, the tokens that a regular expression matches
a part of.

--values is a NumPy file, or a safetensors file such as a record, of which --name is a tensor: one row for all positions, or one for each.`

func newInterventions() (all []*cobra.Command) {
	for _, x := range interventions {
		all = append(all, x.command())
	}
	return all
}

type interveneFlags struct {
	intervention
	named                           modelArg
	model, file                     string
	at, layers, heads, channels, on string
	values, name                    string
	from, minus, fromOn             string
	by                              float64
	mean, json, subtract            bool
	top, most                       int
	tokens                          []string
	chat                            chatFlags
	arithmetic                      arithmetic
	lora                            adapters
}

func (x intervention) command() *cobra.Command {
	f := &interveneFlags{intervention: x}
	c := &cobra.Command{
		Use:     x.verb + " [MODEL] TEXT --at NODE",
		Short:   "Compute a text, but " + x.what + " on the way",
		Long:    x.long + interventionHelp,
		Example: "  " + strings.Join(x.examples, "\n  "),
		Args:    atMost(2, "quote the text"),
		RunE:    func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.named.add(c, false)
	fs.VarP((*name)(&f.file), "file", "f", "read the text from this `file`; - is standard input")
	fs.StringVar(&f.at, "at", "", "`node` whose values are changed")
	fs.StringVar(&f.layers, "layers", "", "only in these `layers`, as 0,3-5")
	fs.StringVar(&f.heads, "heads", "", "only these `heads`")
	fs.StringVar(&f.channels, "channels", "", "only these `elements`")
	fs.StringVar(&f.on, "positions", "", "only at these `positions` (default: all)")
	switch x.verb {
	case "ablate":
		fs.BoolVar(&f.mean, "mean", false, "set them to their mean over the prompt")
	case "scale":
		fs.Float64Var(&f.by, "by", 0, "the `factor`")
	case "steer":
		fs.Float64Var(&f.by, "by", 1, "`factor` of the direction")
		fs.StringVar(&f.minus, "minus-prompt", "", "`text` whose values are subtracted from the direction")
	}
	if x.verb == "replace" || x.verb == "steer" {
		fs.Var((*name)(&f.values), "values", "`file` with the values")
		fs.StringVar(&f.name, "name", "", "`tensor` of that file")
	}
	if x.verb == "patch" || x.verb == "steer" {
		fs.StringVar(&f.from, "from-prompt", "", "`text` whose run gives the values")
		fs.StringVar(&f.fromOn, "from-positions", "", "`positions` of that text")
	}
	fs.IntVar(&f.top, "top", 5, "how many likeliest `tokens` of each run to show")
	fs.StringArrayVar(&f.tokens, "token", nil, "show this `token`, an id or its text; of two the difference of their logits, too")
	fs.IntVarP(&f.most, "tokens", "n", 12, "how many `tokens` to generate; 0 for none")
	f.chat.add(fs)
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	f.arithmetic.add(c, karat.Fast)
	f.lora.add(c)
	return c
}

func (f *interveneFlags) run(c *cobra.Command, args []string) error {
	o, err := f.arithmetic.options()
	if err != nil {
		return err
	}
	edit, err := f.edit(c)
	if err != nil {
		return err
	}
	f.chat.imply()
	l := logitsFlags{named: f.named, file: f.file, top: f.top, chat: f.chat}
	if args, err = l.check(c, false, args); err != nil {
		return err
	}
	text, ok, err := readInput(context.Background(), c, args, f.file)
	switch {
	case err != nil:
		return err
	case !ok:
		return usagef("give TEXT, -f FILE, or a text on standard input")
	}
	ctx, stop := untilSignal()
	defer stop()
	f.model, o.Adapters = l.model, f.lora
	m, err := loadModel(ctx, f.model, o, c.ErrOrStderr())
	if err == nil {
		defer m.Close()
		err = f.show(ctx, c, m, text, edit)
	}
	if err != nil && ctx.Err() != nil {
		return failure{statusInterrupted, errors.New("interrupted")}
	}
	return err
}

// edit is what the flags say, but for values.
func (f *interveneFlags) edit(c *cobra.Command) (e experiment.Edit, err error) {
	e = experiment.Edit{Kind: experiment.Kind(f.verb), By: f.by}
	e.Place.Node = f.at
	f.subtract = c.Flags().Changed("minus-prompt") // of an empty one there is a BOS
	sources := 0
	for _, s := range []string{f.values, f.from} {
		if s != "" {
			sources++
		}
	}
	switch {
	case f.at == "":
		return e, usagef("--at NODE is needed: \"karat inspect --graph\" lists the nodes")
	case f.verb == "scale" && !c.Flags().Changed("by"):
		return e, usagef("--by is needed")
	case f.by-f.by != 0:
		return e, usagef("--by %v: want a number", f.by)
	case f.verb == "patch" && f.from == "":
		return e, usagef("--from-prompt TEXT is needed")
	case f.verb == "replace" && f.values == "":
		return e, usagef("--values FILE is needed")
	case f.verb == "steer" && sources != 1:
		return e, usagef("give --values or --from-prompt, one of them")
	case f.from == "" && (f.subtract || f.fromOn != ""), f.values == "" && f.name != "":
		return e, usagef("--minus-prompt and --from-positions need --from-prompt, --name needs --values")
	case f.most < 0 || f.most > 1<<20:
		return e, usagef("-n %d: want 0 to %d", f.most, 1<<20)
	}
	for _, x := range []struct {
		flag, said string
		to         *experiment.Set
	}{{"layers", f.layers, &e.Place.Layers}, {"heads", f.heads, &e.Place.Heads}, {"channels", f.channels, &e.Place.Channels}} {
		if *x.to, err = experiment.ParseSet(x.said); err != nil {
			return e, usagef("--%s %w", x.flag, err)
		}
	}
	if e.At, err = experiment.ParsePositions(f.on); err != nil {
		return e, usageError{err}
	}
	if _, err = experiment.ParsePositions(f.fromOn); err != nil {
		return e, usageError{err}
	}
	switch {
	case f.mean:
		e.Kind = experiment.Mean
	case f.verb == "patch":
		e.Kind = experiment.Replace
	}
	return e, nil
}

// prompt is a text as the model reads it.
func (f *interveneFlags) prompt(ctx context.Context, m *karat.Model, text string) (*experiment.Prompt, string, error) {
	var g karat.GenerateOptions
	var err error
	if g.Template, g.TemplateArgs, err = f.chat.template(); err != nil {
		return nil, "", err
	}
	ids, template, err := f.chat.ids(ctx, m, text, g)
	if err != nil {
		return nil, "", err
	}
	return experiment.NewPrompt(m, text, ids), template, nil
}

// rows sets the values of e for a prompt.
func (f *interveneFlags) rows(ctx context.Context, m *karat.Model, p *experiment.Prompt, e *experiment.Edit) error {
	if f.values != "" {
		rows, err := experiment.ReadRows(f.values, f.name)
		if err != nil {
			return err
		}
		e.Rows, err = experiment.RowsOf(m, e.Place, rows)
		return err
	}
	if f.from == "" {
		return nil
	}
	where := cmp.Or(f.fromOn, f.on)
	if f.verb == "steer" {
		where = cmp.Or(f.fromOn, "last")
	}
	at, err := experiment.ParsePositions(where)
	if err != nil {
		return usageError{err}
	}
	other, _, err := f.prompt(ctx, m, f.from)
	if err != nil {
		return fmt.Errorf("--from-prompt: %w", err)
	}
	if f.verb == "patch" {
		e.Rows, err = experiment.Capture(ctx, m, other, e.Place, at)
		if err == nil && where == "" && len(p.IDs) != len(other.IDs) {
			return usagef("the prompts have %s and %d: name positions of both, with --positions and --from-positions", count(len(p.IDs), "token"), len(other.IDs))
		}
		return err
	}
	var minus *experiment.Prompt
	if f.subtract {
		if minus, _, err = f.prompt(ctx, m, f.minus); err != nil {
			return fmt.Errorf("--minus-prompt: %w", err)
		}
	}
	e.Rows, err = experiment.Direction(ctx, m, e.Place, at, other, minus)
	return err
}

func (f *interveneFlags) show(ctx context.Context, c *cobra.Command, m *karat.Model, text string, e experiment.Edit) error {
	p, template, err := f.prompt(ctx, m, text)
	if err != nil {
		return err
	}
	var tokens []int
	for _, t := range f.tokens {
		id, err := tokenID(ctx, m, t)
		if err != nil {
			return err
		}
		tokens = append(tokens, id)
	}
	if err := f.rows(ctx, m, p, &e); err != nil {
		return err
	}
	effect, err := experiment.Measure(ctx, m, p, []experiment.Edit{e}, f.top, tokens, f.most)
	if err != nil {
		return err
	}
	effect.Model, effect.Template = cmp.Or(f.model, demoName), template
	effect.Edits = []string{f.words(effect.Nodes)}
	if !f.json {
		return effect.WriteText(c.OutOrStdout())
	}
	if effect.Fingerprint, err = m.Fingerprint(ctx); err != nil {
		return err
	}
	j := newEncoder(c.OutOrStdout())
	j.SetIndent("", "  ")
	return j.Encode(effect)
}

// words name the edited values.
func (f *interveneFlags) words(nodes []string) string {
	s := f.verb
	if f.mean {
		s = "set to the mean"
	}
	if f.verb == "scale" || f.verb == "steer" {
		s += fmt.Sprintf(" by %v", f.by)
	}
	nodes = slices.Compact(nodes)
	shown := nodes[:min(3, len(nodes))]
	s += " " + strings.Join(shown, ", ")
	if more := len(nodes) - len(shown); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	for _, x := range [][2]string{{"heads", f.heads}, {"elements", f.channels}} {
		if x[1] != "" {
			s += ", " + x[0] + " " + x[1]
		}
	}
	return s + ", positions " + cmp.Or(f.on, "all")
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/round"
	"github.com/spf13/cobra"
)

// recordFlags are the flags of lab record.
type recordFlags struct {
	prompts, out string
	taps         indices
	keep, decode int
	npy          bool
	class        class
	injected     injection
	arithmetic   arithmetic
}

func newRecordCommand() *cobra.Command {
	var f recordFlags
	c := &cobra.Command{
		Use:   "record [MODEL] --prompts FILE.json -o OUT.safetensors",
		Short: "Record the values that a model computes",
		Long: `Record computes prompts and writes OUT.safetensors: for prompt i the token ids
({i}.ids), the logits and hidden states of the last positions ({i}.logits,
{i}.hidden), and with --taps i the values of every module ({i}.tap.NAME, under
PyTorch's names). OUT.json beside it holds the prompts and the settings.

FILE.json is a list of objects, each with one of "text" (raw text), "chat" (a list of
messages with "role" and "content", for the model's chat template) and "ids".

With --numerics the float64 interpreter rounds like another engine, to show the effect
of its rounding alone. It is slow. CLASS is one or more of
  activations=f64|f32|f16|bf16       the type of all values; sums are float32, or float64 with f64
  activations=q8_32|q8_256|i16_32    products read rows as integers of 8 or 16 bits with a
                                     scale for every 32 or 256 (i16_32 with quantized
                                     weights only); everything else is float32
  activations=q8                     as in llama.cpp: by the weight's type
  kv=f64|f32|f16|bf16                the type of keys and values
  gelu=exact|f16-table               f16-table is llama.cpp's
  lanes=1|2|4|...|64                 partial sums of a float32 product

--inject builds faults into the engine, to try a diagnosis on. A fault is
ID[:NODES][=VALUE][@LAYERS]; separate several with semicolons. ID is one of "karat lab
causes". NODES are names of nodes without their layer, joined by +. VALUE is the wrong
value. LAYERS is all, full, sliding, shared, moe, outside, or numbers such as 0,2-3.`,
		Example: `  karat lab record model.gguf --prompts prompts.json -o mine.safetensors
  karat lab record ./tiny-qwen3 --prompts prompts.json -o f64.safetensors --precision f64 --taps 2
  karat lab record model.gguf --prompts prompts.json -o q8.safetensors --taps all --decode-last 4 --numerics activations=q8,gelu=f16-table
  karat lab record ./tiny-gemma4 --prompts prompts.json -o bad.safetensors --precision f64 --taps 2 --inject 'attention_scale@all; v_norm_missing@0,2-3'
  echo '[{"text": "Hello"}, {"ids": [2, 1882]}]' > p.json && karat lab record --prompts p.json -o demo.safetensors`,
		Args: atMost(1, "MODEL is one file or folder"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.Var((*name)(&f.prompts), "prompts", "`file` with the prompts")
	fs.VarP((*name)(&f.out), "output", "o", "`file` to write")
	fs.Var(&f.taps, "taps", "record the taps of these prompts: `all`, or indices from 0 as in 2,5; may be given again")
	fs.IntVar(&f.keep, "keep", 8, "how many last `positions` to record logits and hidden states of")
	fs.IntVar(&f.decode, "decode-last", 0, "how many last `tokens` of each prompt to decode one by one, after the others")
	alias(fs, "decode-last", "decode")
	fs.BoolVar(&f.npy, "npy", false, "write the folder OUT of NumPy files, too")
	fs.Var(&f.class, "numerics", "round like an engine of this `class`, instead of --precision and --kv")
	f.injected.add(c)
	f.arithmetic.add(c, karat.Fast)
	return leadModel(c, true)
}

func (f *recordFlags) run(c *cobra.Command, args []string) error {
	o, err := f.arithmetic.options()
	switch {
	case err != nil:
		return err
	case f.prompts == "" || f.out == "":
		return usagef("--prompts FILE.json and -o OUT.safetensors are needed")
	case filepath.Ext(f.out) != ".safetensors":
		return usagef("-o %s: want a name that ends in .safetensors", f.out)
	case f.keep < 1:
		return usagef("--keep %d: want 1 or more", f.keep)
	case f.decode < 0:
		return usagef("--decode-last %d: want 0 or more", f.decode)
	case f.class.said && (c.Flags().Changed("precision") && o.Precision != karat.Float64 || c.Flags().Changed("kv")):
		return usagef("--numerics runs in the float64 interpreter: it does not work with --kv or another --precision")
	}
	if f.class.said {
		o.Precision = karat.Float64 // which it runs on
	}
	if err := f.injected.check(o.Precision == karat.Float64, f.out, f.taps.all || len(f.taps.list) > 0); err != nil {
		return err
	}
	path, err := modelArgument(args)
	if err != nil {
		return err
	}
	inputs, err := lab.ReadInputs(f.prompts)
	if err != nil {
		return err
	}
	for _, i := range f.taps.list {
		if i >= len(inputs) {
			return usagef("--taps %d: the prompts are 0 to %d", i, len(inputs)-1)
		}
	}
	if err := f.spare(path); err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	w, err := lab.Create(f.out)
	if err != nil {
		return err
	}
	defer w.Close()
	prompts, err := tokenizePrompts(ctx, path, o, inputs, c.ErrOrStderr())
	if err == nil {
		err = f.injected.prompts(ctx, path, o, prompts, c.ErrOrStderr())
	}
	if err == nil {
		err = f.record(ctx, path, o, prompts, w, c.ErrOrStderr())
	}
	if err != nil && ctx.Err() != nil {
		fmt.Fprintln(c.ErrOrStderr(), "karat: interrupted")
		return failure{status: statusInterrupted}
	}
	return err
}

// folder is where the NumPy files go.
func (f *recordFlags) folder() string { return strings.TrimSuffix(f.out, ".safetensors") }

// spare refuses an output that would replace an input, or become a part of one.
func (f *recordFlags) spare(model string) error {
	if st, err := os.Stat(model); err == nil && st.IsDir() && sameFile(filepath.Dir(f.out), model) {
		return usagef("-o %s: a record cannot be written into the model's folder", f.out)
	}
	if err := spare("--key "+f.injected.key, f.injected.key, f.prompts, model); err != nil {
		return err
	}
	if f.npy {
		if err := atomicfile.CheckFolder(f.folder()); err != nil {
			return err
		}
	}
	for _, out := range []string{f.out, strings.TrimSuffix(f.out, ".safetensors") + ".json"} {
		if err := spare("-o "+f.out, out, f.prompts, model); err != nil {
			return err
		}
	}
	return nil
}

// tokenizePrompts makes the ids that run would feed the model at path. It loads the
// model as run does, which refuses one that will not fit in memory.
func tokenizePrompts(ctx context.Context, path string, o karat.Options, inputs []lab.Input, log io.Writer) ([]*lab.Prompt, error) {
	o.Backend = "" // nothing is computed
	m, err := loadModel(ctx, path, o, log)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	prompts := make([]*lab.Prompt, len(inputs))
	for i, in := range inputs {
		p := &lab.Prompt{Index: i, Input: in}
		var ids []int
		switch {
		case in.Text != nil:
			p.Text = *in.Text
			if ids, err = m.Tokenize(ctx, p.Text, karat.TokenizeOptions{}); err != nil {
				return nil, fmt.Errorf("prompt %d: %w", i, err)
			}
		case in.Chat != nil:
			var messages []karat.Message
			for _, x := range in.Chat {
				messages = append(messages, karat.TextMessage(karat.Role(x.Role), x.Content))
			}
			p.Text, err = m.Render(ctx, messages, karat.GenerateOptions{})
			if err == nil {
				ids, err = m.TokenizeChat(ctx, messages, karat.GenerateOptions{})
			}
			if err != nil {
				return nil, fmt.Errorf("prompt %d: %w", i, err)
			}
		default:
			for _, id := range in.IDs {
				ids = append(ids, int(id))
			}
			p.Text = m.Detokenize(ids)
		}
		if len(ids) == 0 {
			return nil, fmt.Errorf("prompt %d: %w", i, errEmpty)
		}
		if most := m.Info().MaxContext; most > 0 && len(ids) > most {
			fmt.Fprintf(log, "karat: note: prompt %d has %d tokens, but the model was made for %d\n", i, len(ids), most)
		}
		for _, id := range ids {
			p.IDs = append(p.IDs, int32(id))
		}
		prompts[i] = p
	}
	return prompts, nil
}

// record computes the prompts and writes them.
func (f *recordFlags) record(ctx context.Context, path string, o karat.Options, prompts []*lab.Prompt, w *lab.Writer, log io.Writer) error {
	m, err := openCheckpoint(path)
	if err != nil {
		return err
	}
	defer m.Close()
	t, err := m.Tokenizer()
	if err != nil {
		return err
	}
	longest := lab.Longest(prompts)
	g, _, err := model.Graph(ctx, m, longest)
	if err != nil {
		return err
	}
	b, computed, err := f.backend(o)
	if err != nil {
		return err
	}
	defer b.Close()
	if g, b, err = f.injected.plan(g, b); err != nil {
		return err
	}
	r, err := lab.NewRecorder(ctx, g, b, longest, f.keep)
	if err != nil {
		return err
	}
	defer r.Close()
	add := func(p *lab.Prompt) error {
		p.Next = t.Decode([]int{p.NextID}, false)
		err := w.Add(p)
		p.Logits, p.Hidden, p.Taps = nil, nil, nil // they are large
		return err
	}
	for _, p := range prompts {
		start := time.Now()
		p.Decode = min(f.decode, len(p.IDs))
		if err := r.Record(ctx, p, f.taps.has(p.Index)); err != nil {
			return err
		}
		if len(f.injected.probe) == 0 { // which may show one prompt's values as another's
			if err := add(p); err != nil {
				return err
			}
		}
		fmt.Fprintf(log, "karat: prompt %d: %s, %.1f s (%d of %d)\n", p.Index, count(len(p.IDs), "token"), time.Since(start).Seconds(), p.Index+1, len(prompts))
	}
	if err := f.injected.taps(g, prompts, add); err != nil {
		return err
	}
	if computed["hashes"], err = hashesOf(ctx, m, t); err != nil {
		return err
	}
	return f.commit(w, computed)
}

// commit ends the record, and writes what goes with it.
func (f *recordFlags) commit(w *lab.Writer, computed map[string]any) error {
	if err := w.Commit(computed); err != nil {
		return err
	}
	if f.npy {
		if err := lab.WriteNumpy(f.folder(), f.out); err != nil {
			return err
		}
	}
	return f.injected.writeKey()
}

// backend makes what computes, and says how for the record.
func (f *recordFlags) backend(o karat.Options) (backend.Backend, map[string]any, error) {
	n, err := numerics.Parse(string(o.Precision), string(o.KV))
	if err == nil {
		n, err = n.On(string(o.Backend))
	}
	if err != nil {
		return nil, nil, err
	}
	computed := map[string]any{"engine": "karat " + karat.Version(), "precision": n.Precision, "activations": n.Activations(), "kv": n.KV}
	if n.GPU > 0 {
		if computed["backend"], err = deviceName(n); err != nil {
			return nil, nil, err
		}
	}
	if !f.class.said {
		b, err := n.Backend(o.Threads)
		return b, computed, err
	}
	c := f.class.Class
	stored := cmp.Or(c.Activations.Stored(), round.F64)
	delete(computed, "precision")
	computed["activations"], computed["kv"] = cmp.Or(c.Activations, round.F64), cmp.Or(c.KV, stored)
	if c.GELU != "" {
		computed["gelu"] = c.GELU
	}
	if c.Lanes != 0 {
		computed["lanes"] = c.Lanes
	}
	return reference.Backend{Threads: o.Threads, Class: c}, computed, nil
}

// class is a flag that takes a class of numerics.
type class struct {
	round.Class
	said bool
}

func (c *class) Type() string { return "class" }

func (c *class) Set(s string) (err error) {
	c.Class, err = round.Parse(s)
	c.said = true
	return err
}

// indices is a flag that takes indices, or all.
type indices struct {
	all  bool
	list []int
}

func (x *indices) Type() string { return "indices" }

func (x *indices) String() string {
	if x.all {
		return "all"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(x.list), " ", ","), "[]")
}

func (x *indices) Set(s string) error {
	if s == "all" {
		x.all = true
		return nil
	}
	for _, part := range strings.Split(s, ",") {
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 {
			return fmt.Errorf("%q, want all, or indices from 0 as in 2,5", part)
		}
		x.list = append(x.list, i)
	}
	return nil
}

func (x *indices) has(i int) bool { return x.all || slices.Contains(x.list, i) }

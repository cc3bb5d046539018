package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/spf13/cobra"
)

type embedFlags struct {
	named modelArg
	arithmetic
	sharing
	model, file, prompt    string
	context, dimensions    int
	pooling                choice
	normalize              bool
	json, npy, safetensors bool
}

func newEmbedCommand() *cobra.Command {
	f := embedFlags{pooling: choice{values: []string{"mean", "cls", "last", "none"}}}
	c := &cobra.Command{
		Use:   "embed MODEL [TEXT...]",
		Short: "Turn texts into vectors",
		Long: `Embed prints a vector for each text, a line each: numbers with a space between them.
Texts with a similar meaning have similar vectors, if the model was made for that.

The texts are TEXT..., or the lines of the file after -f: each a JSON string, or an object
whose "text" is one. Without either, standard input is such a file.

How rows become a vector is what the model's files say: modules.json of
sentence-transformers with the folders that it names, or pooling_type in GGUF. Other models need
--pooling. A text's vector has the same bits beside any other texts.`,
		Example: `  karat embed embeddinggemma-300m "The sky is blue." "Le ciel est bleu."
  karat embed model.gguf --prompt-name query --dimensions 256 "color of the sky"
  karat embed model.gguf -f texts.jsonl --npy > vectors.npy`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.named.add(c, true)
	fs.VarP((*name)(&f.file), "file", "f", "read texts from the lines of this JSON Lines `file`; - is standard input")
	f.pooling.add(c, "pooling", "rows that make the vector: the mean of all, the first, the last, or none for the vectors of all rows (default: the model's)")
	fs.BoolVar(&f.normalize, "normalize", true, "normalize vectors to length 1 (default: the model's setting, or true)")
	fs.Lookup("normalize").DefValue = "" // the usage has it
	fs.IntVar(&f.dimensions, "dimensions", 0, "`number` of features to keep, the first ones (default: all)")
	fs.StringVar(&f.prompt, "prompt-name", "", "`name` of the model's prompt that comes before each text")
	fs.BoolVar(&f.json, "json", false, "print a JSON list of objects with index and embedding")
	fs.BoolVar(&f.npy, "npy", false, "write a NumPy array, [texts, features] in float32")
	fs.BoolVar(&f.safetensors, "safetensors", false, "write a safetensors file with the tensor embeddings, or with --pooling none a tensor for each text, by its index")
	addContext(fs, &f.context, "maximum `tokens` of a text (default: the model's own, at most 8192)")
	renamed(fs, "prompt", "p", "a TEXT is an argument; the name of a prompt of the model is --prompt-name")
	f.sharing.add(c, 0)
	f.arithmetic.add(c, karat.Fast)
	c.MarkFlagsMutuallyExclusive("json", "npy", "safetensors")
	return c
}

func (f *embedFlags) run(c *cobra.Command, args []string) error {
	args, err := f.named.take(args)
	if err != nil {
		return err
	}
	if f.named.name == "" {
		return usagef("MODEL is missing; for example: karat embed embeddinggemma-300m \"The sky is blue.\"")
	}
	for _, x := range []struct {
		flag string
		n    int
	}{{"dimensions", f.dimensions}, {"ctx", f.context}} {
		if x.n < 1 && c.Flags().Changed(x.flag) {
			return usagef("--%s %d: want 1 or more", x.flag, x.n)
		}
	}
	if (f.npy || f.safetensors) && isTerminal(c.OutOrStdout()) {
		return usagef("--npy and --safetensors write bytes: send them to a file")
	}
	if f.npy && f.pooling.value == "none" {
		return usagef("--npy has a vector for each text: take --safetensors with --pooling none")
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	if f.model, err = f.named.find(c); err != nil {
		return err
	}
	if err := f.sharing.set(&o, c.Flags().Changed); err != nil {
		return err
	}
	o.Context = f.context
	ctx, stop := untilSignal()
	defer stop()
	return orInterrupted(ctx, f.embed(ctx, c, args, o))
}

// orInterrupted is err, or that a signal is why: it has ended ctx.
func orInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return failure{statusInterrupted, errors.New("interrupted")}
	}
	return err
}

func (f *embedFlags) embed(ctx context.Context, c *cobra.Command, args []string, o karat.Options) error {
	texts := args
	if len(args) == 0 || f.file != "" {
		var err error
		if texts, err = readTexts(ctx, c, args, f.file, "TEXT, -f FILE, or texts"); err != nil {
			return err
		}
		if len(texts) == 0 {
			fmt.Fprintln(c.ErrOrStderr(), "karat: note: there are no texts")
		}
	}
	m, err := loadModel(ctx, f.model, o, c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer m.Close()
	e := karat.EmbedOptions{Pooling: karat.Pooling(f.pooling.value), Prompt: f.prompt, Progress: counted(c.ErrOrStderr())}
	if c.Flags().Changed("normalize") {
		e.Normalize = &f.normalize
	}
	features, err := m.EmbedSize(ctx, e)
	if err != nil {
		return err
	}
	if f.dimensions > features {
		return usagef("--dimensions %d: want 1 to %d, the features that the model has", f.dimensions, features)
	}
	if f.dimensions > 0 {
		e.Dimensions, features = f.dimensions, f.dimensions
	}
	vectors, err := m.Embed(ctx, texts, e)
	if err != nil {
		return err
	}
	return f.write(c.OutOrStdout(), vectors, features)
}

// readTexts are the texts of JSON Lines in the file, or on standard input. Where there are none, want says what could be given.
func readTexts(ctx context.Context, c *cobra.Command, args []string, file, want string) ([]string, error) {
	text, ok, err := readInput(ctx, c, args, file)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, usagef("give %s on standard input", want)
	}
	return lines(text)
}

// lines are the texts of JSON Lines.
func lines(file string) (texts []string, err error) {
	for i, line := range strings.Split(file, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var text *string
		var object struct {
			Text *string `json:"text"`
		}
		if json.Unmarshal([]byte(line), &text) != nil {
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				return nil, fmt.Errorf("line %d: want a JSON string, or an object with text: %w", i+1, err)
			}
			text = object.Text
		}
		if text == nil {
			return nil, fmt.Errorf("line %d: want a JSON string, or an object with text", i+1)
		}
		texts = append(texts, *text)
	}
	return texts, nil
}

// counted tells every few seconds how many texts are done.
func counted(w io.Writer) func(done, total int) {
	var mu sync.Mutex
	last := time.Now()
	return func(done, total int) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) >= 5*time.Second {
			last = now
			fmt.Fprintf(w, "karat: %d of %d texts\n", done, total)
		}
	}
}

func (f *embedFlags) write(w io.Writer, vectors [][]float32, features int) error {
	b := bufio.NewWriter(w)
	var err error
	switch {
	case f.npy:
		err = writeNPY(b, vectors, features)
	case f.safetensors:
		err = f.writeTensors(b, vectors, features)
	case f.json:
		err = f.writeJSON(b, vectors, features)
	default:
		for _, v := range vectors {
			for row := range slices.Chunk(v, features) { // one, but with --pooling none
				b.Write(append(numbers(nil, row, " "), '\n'))
			}
		}
	}
	if err != nil {
		return err
	}
	return b.Flush() // whose error is that of any write before
}

// numbers appends the shortest decimals that are the float32 numbers.
func numbers(b []byte, row []float32, between string) []byte {
	for i, v := range row {
		if i > 0 {
			b = append(b, between...)
		}
		b = strconv.AppendFloat(b, float64(v), 'g', -1, 32)
	}
	return b
}

func (f *embedFlags) writeJSON(w *bufio.Writer, vectors [][]float32, features int) error {
	for _, v := range vectors {
		for _, x := range v {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				return fmt.Errorf("a vector has the element %v, which JSON cannot say", x)
			}
		}
	}
	w.WriteString("[")
	for i, v := range vectors {
		if i > 0 {
			w.WriteString(",\n")
		}
		fmt.Fprintf(w, `{"index":%d,"embedding":`, i)
		var rows [][]byte
		for row := range slices.Chunk(v, features) {
			rows = append(rows, append(numbers([]byte{'['}, row, ","), ']'))
		}
		list := bytes.Join(rows, []byte(","))
		if f.pooling.value == "none" {
			list = append(append([]byte{'['}, list...), ']')
		}
		w.Write(append(list, '}'))
	}
	w.WriteString("]\n")
	return nil
}

// littleEndian are the bytes of numbers.
func littleEndian(b []byte, row []float32) []byte {
	for _, v := range row {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// writeNPY writes version 1 of NumPy's format.
func writeNPY(w io.Writer, vectors [][]float32, features int) error {
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", len(vectors), features)
	header += strings.Repeat(" ", -(10+len(header)+1)&63) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	if _, err := w.Write(append(b, header...)); err != nil {
		return err
	}
	for _, v := range vectors {
		if _, err := w.Write(littleEndian(nil, v)); err != nil {
			return err
		}
	}
	return nil
}

func (f *embedFlags) writeTensors(w io.Writer, vectors [][]float32, features int) error {
	var list []tensor.Tensor
	if f.pooling.value == "none" {
		for i, v := range vectors {
			list = append(list, tensor.Tensor{Name: strconv.Itoa(i), DType: tensor.F32, Shape: tensor.Shape{len(v) / features, features}, Data: littleEndian(nil, v)})
		}
	} else {
		list = []tensor.Tensor{{Name: "embeddings", DType: tensor.F32, Shape: tensor.Shape{len(vectors), features}, Data: littleEndian(nil, slices.Concat(vectors...))}}
	}
	return safetensors.Write(w, list, nil)
}

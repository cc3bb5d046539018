package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/npy"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/spf13/cobra"
)

// embedFlags are the flags of embed.
type embedFlags struct {
	file, prompt           string
	dimensions             int
	pooling                choice
	normalize              bool
	json, npy, safetensors bool
	engine                 engineFlags
}

func newEmbedCommand() *cobra.Command {
	f := embedFlags{pooling: choice{values: []string{"mean", "cls", "last", "none"}}, normalize: true}
	c := define("embed", f.run)
	c.takesModel()
	c.flags("file", file(&f.file), "pooling", &f.pooling, "normalize", &f.normalize, "dimensions", &f.dimensions,
		"prompt-name", &f.prompt, "json", &f.json, "npy", &f.npy, "safetensors", &f.safetensors, "ctx",
		&f.engine.context)
	c.Flags().Lookup("normalize").DefValue = "" // the usage has the default
	rename(c.Flags(), "prompt", "p", "a TEXT is an argument; the name of a prompt of the model is --prompt-name")
	f.engine.addSharing(c)
	f.engine.add(c, karat.Fast)
	c.MarkFlagsMutuallyExclusive("json", "npy", "safetensors")
	return c.Command
}

func (f *embedFlags) run(x *call) error {
	switch {
	case f.dimensions < 1 && x.changed("dimensions"):
		return usagef("--dimensions %d: want 1 or more", f.dimensions)
	case (f.npy || f.safetensors) && isTerminal(x.out):
		return usagef("--npy and --safetensors write bytes: send them to a file")
	case f.npy && f.pooling.value == "none":
		return usagef("--npy has a vector for each text: take --safetensors with --pooling none")
	}
	o := must(f.engine.options(x.changed))
	must(x.find())
	texts := x.args
	if len(texts) == 0 || f.file != "" {
		texts = must(x.readTexts(texts, f.file, "TEXT, -f FILE, or texts"))
		if len(texts) == 0 {
			x.note("there are no texts")
		}
	}
	m := must(x.load(o))
	defer m.Close()
	p := newProgress(x.log, "")
	defer p.end()
	e := karat.EmbedOptions{Pooling: karat.Pooling(f.pooling.value), Prompt: f.prompt,
		Progress: func(done, total int) { p.pieces("texts", done, total) }}
	if x.changed("normalize") {
		e.Normalize = &f.normalize
	}
	features := must(m.EmbedSize(x.ctx, e))
	if f.dimensions > features {
		return usagef("--dimensions %d: want 1 to %d, the features that the model has", f.dimensions, features)
	}
	if f.dimensions > 0 {
		e.Dimensions, features = f.dimensions, f.dimensions
	}
	vectors := must(m.Embed(x.ctx, texts, e))
	return f.write(x.out, vectors, features)
}

// readTexts returns the texts of JSON Lines in the file, or on standard input. Without texts, the error lists the
// possible sources, want.
func (x *call) readTexts(args []string, file, want string) ([]string, error) {
	text, ok := must2(x.readInput(args, file))
	if !ok {
		return nil, usagef("give %s on standard input", want)
	}
	return lines(text)
}

// lines returns the texts of JSON Lines.
func lines(file string) (texts []string, err error) {
	for i, line := range strings.Split(file, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		var text *string
		var object struct {
			Text  *string         `json:"text"`
			Image json.RawMessage `json:"image"`
		}
		if json.Unmarshal([]byte(line), &text) != nil {
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				return nil, fmt.Errorf("line %d: want a JSON string, or an object with text: %w", i+1, err)
			}
			if text = object.Text; object.Image != nil {
				return nil, fmt.Errorf("line %d: image: there are vectors of texts alone", i+1)
			}
		}
		if text == nil {
			return nil, fmt.Errorf("line %d: want a JSON string, or an object with text", i+1)
		}
		texts = append(texts, *text)
	}
	return texts, nil
}

func (f *embedFlags) write(w io.Writer, vectors [][]float32, features int) error {
	b := bufio.NewWriter(w)
	var err error
	switch {
	case f.npy, f.safetensors:
		err = f.writeTensors(b, vectors, features)
	case f.json:
		err = f.writeJSON(b, vectors, features)
	default:
		for _, v := range vectors {
			for row := range slices.Chunk(v, features) { // several with --pooling none
				b.Write(append(numbers(nil, row, " "), '\n'))
			}
		}
	}
	if err != nil {
		return err
	}
	return b.Flush() // Flush returns the error of any earlier write
}

// numbers appends the shortest decimals for the float32 numbers.
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

// writeTensors writes a NumPy array, [texts, features], or a safetensors file.
func (f *embedFlags) writeTensors(w io.Writer, vectors [][]float32, features int) error {
	bytesOf := func(v []float32) (data []byte) {
		for _, x := range v {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		return data
	}
	all := bytesOf(slices.Concat(vectors...))
	if f.npy {
		return npy.Write(w, &npy.Array{Type: "f4", Shape: []int{len(vectors), features}, Data: all})
	}
	list := []tensor.Tensor{{Name: "embeddings", DType: tensor.F32, Shape: tensor.Shape{len(vectors), features},
		Data: all}}
	if f.pooling.value == "none" {
		list = nil
		for i, v := range vectors {
			list = append(list, tensor.Tensor{Name: strconv.Itoa(i), DType: tensor.F32,
				Shape: tensor.Shape{len(v) / features, features}, Data: bytesOf(v)})
		}
	}
	return safetensors.Write(w, list, nil)
}

// rerankFlags are the flags of rerank.
type rerankFlags struct {
	file           string
	top            int
	truncate, json bool
	engine         engineFlags
}

func newRerankCommand() *cobra.Command {
	var f rerankFlags
	c := define("rerank", f.run)
	c.takesModel()
	c.flags("file", file(&f.file), "top", &f.top, "truncate", &f.truncate, "json", &f.json, "ctx", &f.engine.context)
	f.engine.addSharing(c)
	f.engine.add(c, karat.Fast)
	return c.Command
}

func (f *rerankFlags) run(x *call) error {
	if f.top < 0 {
		return usagef("--top %d: want 1 or more", f.top)
	}
	o := must(f.engine.options(x.changed))
	must(x.find())
	query, documents := x.args[0], x.args[1:]
	if len(documents) == 0 || f.file != "" {
		documents = must(x.readTexts(documents, f.file, "DOCUMENT, -f FILE, or documents"))
	}
	m := must(x.load(o))
	defer m.Close()
	p := newProgress(x.log, "")
	ranked, err := m.Rerank(x.ctx, query, documents, karat.RerankOptions{Truncate: f.truncate,
		Progress: func(done, total int) { p.pieces("documents", done, total) }})
	p.end()
	if err != nil {
		return err
	}
	if f.top > 0 {
		ranked = ranked[:min(f.top, len(ranked))]
	}
	if f.json {
		return writeRanked(x, ranked, documents)
	}
	b := bufio.NewWriter(x.out)
	for _, r := range ranked {
		text := strings.Join(strings.Fields(documents[r.Index]), " ")
		fmt.Fprintf(b, "%9s %5d  %s\n", strconv.FormatFloat(float64(r.Score), 'f', 4, 32), r.Index, text)
	}
	return b.Flush()
}

// writeRanked writes documents in JSON.
func writeRanked(x *call, ranked []karat.RerankResult, documents []string) error {
	type result struct {
		Index    int     `json:"index"`
		Score    float32 `json:"score"`
		Document string  `json:"document"`
	}
	results := []result{}
	for _, r := range ranked {
		results = append(results, result{r.Index, r.Score, documents[r.Index]})
	}
	if err := newEncoder(x.out).Encode(results); err != nil {
		return fmt.Errorf("a score is no number that JSON can say: %w", err)
	}
	return nil
}

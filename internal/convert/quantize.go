package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/imatrix"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/tensor"
)

// QuantizeOptions describe a quantized GGUF file. Type is required.
type QuantizeOptions struct {
	Type       string // of quantmix.Names, in any case
	Rules      []quantmix.Rule
	Imatrix    string // path of an importance matrix; "" is none
	Requantize bool   // quantized weights may be quantized again
	Threads    int    // 0 means a thread for each processor that the process may use

	// Progress is called with the bytes of tensors written so far, and in all.
	Progress func(done, total int64)
}

// ErrRequantize reports weights that are quantized already.
var ErrRequantize = errors.New("quantizing again must be allowed")

// CheckQuantize reports faults of o and dst without opening the model.
func CheckQuantize(dst string, o QuantizeOptions) error {
	m, ok := quantmix.Find(o.Type)
	if !ok {
		return unknownMix(o.Type)
	}
	if m.NeedsImportance() && o.Imatrix == "" && len(o.Rules) == 0 {
		return fmt.Errorf("a file of %s needs an importance matrix, which \"karat imatrix\" makes", m.Name)
	}
	for _, r := range o.Rules {
		if !r.Type.Quantized() && (!r.Type.Float() || r.Type == tensor.F64) {
			return fmt.Errorf("weights of %s: type %v cannot be written", r.Pattern, r.Type)
		}
	}
	if o.Threads < 0 {
		return fmt.Errorf("threads: %d, want 1 or more", o.Threads)
	}
	return atomicfile.Check(dst)
}

// Quantize makes the GGUF file dst from the file at src, of a split file any part, with the types and the bytes of
// llama-quantize. An error, including ctx's, leaves dst unchanged.
func Quantize(ctx context.Context, src, dst string, o QuantizeOptions) (*Result, error) {
	if err := CheckQuantize(dst, o); err != nil {
		return nil, err
	}
	f, err := gguf.Open(src)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &converter{src: src, dst: dst, reads: f.Paths(), progress: o.Progress, threads: o.Threads}
	c.result.Architecture, _ = f.Metadata.String("general.architecture") // quantmix.Of needs the architecture
	m, _ := quantmix.Find(o.Type)
	m.Rules, m.Weighed = o.Rules, o.Imatrix != ""
	jobs, err := c.quantizeJobs(f, m, o.Requantize)
	if err != nil {
		return nil, err
	}
	keys := quantizedKeys(f.Metadata, m)
	if o.Imatrix != "" {
		c.reads = append(c.reads, o.Imatrix)
		weights, err := c.readImportance(jobs, o.Imatrix)
		if err != nil {
			return nil, err
		}
		keys = append(keys, weights...)
	}
	if err := c.writeGGUF(ctx, keys, jobs); err != nil {
		return nil, err
	}
	return &c.result, nil
}

// checkOther refuses results that would replace an input.
func checkOther(src, dst []string) error {
	for _, path := range dst {
		to, err := os.Stat(path)
		if err != nil {
			continue // nothing is there
		}
		for _, path := range src {
			if from, err := os.Stat(path); err == nil && os.SameFile(from, to) {
				return fmt.Errorf("%s: it is what is read, and would be replaced", path)
			}
		}
	}
	return nil
}

// quantizeJobs returns the tensors in the order of llama-quantize's files, each with its new type.
func (c *converter) quantizeJobs(f *gguf.File, m quantmix.Mix, again bool) ([]job, error) {
	model, err := quantmix.Of(f.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.src, err)
	}
	jobs := make([]job, len(f.Tensors()))
	for i, t := range f.Tensors() {
		jobs[i] = job{in: t, out: t}
		jobs[i].out.Data, jobs[i].out.Shape = nil, t.Shape.Trimmed()
	}
	return jobs, c.applyMix(jobs, m, model, again)
}

// applyMix gives the results of jobs the types of a mix, and sorts them in its order.
func (c *converter) applyMix(jobs []job, m quantmix.Mix, model quantmix.Model, again bool) error {
	tensors := make([]tensor.Tensor, len(jobs))
	for i, j := range jobs {
		tensors[i] = j.out
	}
	types, err := m.Types(model, tensors)
	if err == nil {
		err = checkRules(m.Rules, tensors)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.src, err)
	}
	for i := range jobs {
		if d := jobs[i].in.DType; d.Quantized() && types[i] != d && !again {
			return fmt.Errorf("%s: tensor %q is %v already, and would lose more as %v than the original does: %w",
				c.src, tensors[i].Name, d, types[i], ErrRequantize)
		}
		jobs[i].out.DType = types[i]
	}
	c.result.Notes = append(c.result.Notes, replaced(m.Rules, tensors, types)...)
	slices.SortStableFunc(jobs, func(a, b job) int { return quantmix.Compare(a.out.Name, b.out.Name) })
	return nil
}

// replaced returns notes about weights with other types than their rules'.
func replaced(rules []quantmix.Rule, tensors []tensor.Tensor, types []tensor.DType) (notes []string) {
	type change struct {
		from, to tensor.DType
		k        int
	}
	count, first := map[change]int{}, []int{}
	of := func(i int) (x change, ok bool) {
		at := slices.IndexFunc(rules, func(r quantmix.Rule) bool { return r.Pattern.MatchString(tensors[i].Name) })
		if at < 0 || quantmix.Keeps(tensors[i]) || rules[at].Type == types[i] {
			return x, false
		}
		return change{rules[at].Type, types[i], tensors[i].Shape.Last()}, true
	}
	for i := range tensors {
		if x, ok := of(i); ok {
			if count[x]++; count[x] == 1 {
				first = append(first, i)
			}
		}
	}
	for _, i := range first {
		x, _ := of(i)
		others := ""
		if n := count[x] - 1; n > 0 {
			others = fmt.Sprintf(" and %d more", n)
		}
		notes = append(notes, fmt.Sprintf("%s%s: %v takes the place of %v, whose block of %d does not divide rows of "+
			"%d", tensors[i].Name, others, x.to, x.from, x.from.BlockSize(), x.k))
	}
	return notes
}

// checkRules returns an error for rules that match no tensor's name.
func checkRules(rules []quantmix.Rule, tensors []tensor.Tensor) error {
	for _, r := range rules {
		if !slices.ContainsFunc(tensors,
			func(t tensor.Tensor) bool { return !quantmix.Keeps(t) && r.Pattern.MatchString(t.Name) }) {
			return fmt.Errorf("no weight has a name with %s, which is to be %v", r.Pattern, r.Type)
		}
	}
	return nil
}

// The keys of a file quantized with an importance matrix.
const (
	imatrixFile    = "quantize.imatrix.file"
	imatrixDataset = "quantize.imatrix.dataset"
	imatrixEntries = "quantize.imatrix.entries_count"
	imatrixChunks  = "quantize.imatrix.chunks_count"
)

// quantizedKeys returns a file's keys and, at their end, the keys about its quantization, as llama-quantize does.
func quantizedKeys(m gguf.Metadata, to quantmix.Mix) (keys []gguf.KeyValue) {
	replaced := []string{"general.quantization_version", "general.file_type"}
	if to.Weighed {
		replaced = append(replaced, imatrixFile, imatrixDataset, imatrixEntries, imatrixChunks)
	}
	for _, key := range m.Keys() {
		if v, _ := m.Lookup(key); !gguf.IsPartKey(key) && !slices.Contains(replaced, key) {
			keys = append(keys, gguf.KeyValue{Key: key, Value: v})
		}
	}
	return append(keys, gguf.KeyValue{Key: replaced[0], Value: uint32(2)},
		gguf.KeyValue{Key: replaced[1], Value: to.FileType})
}

// readImportance reads an importance matrix for jobs, and returns the keys about the matrix.
func (c *converter) readImportance(jobs []job, path string) ([]gguf.KeyValue, error) {
	m, err := imatrix.Read(path)
	if err != nil {
		return nil, err
	}
	var without []string
	for i := range jobs {
		j := &jobs[i]
		if j.out.DType == j.in.DType || !j.out.DType.Quantized() {
			continue
		}
		k := j.in.Shape.Last()
		j.importance, err = m.Mean(j.in.Name, j.in.Shape.Size()/(k*j.matrixRows()), k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if j.importance == nil {
			without = append(without, j.out.Name)
		}
	}
	if n := len(without); n > 0 {
		names := strings.Join(without[:min(n, 3)], ", ")
		if n > 3 {
			names += ", ..."
		}
		c.result.Notes = append(c.result.Notes,
			fmt.Sprintf("%s has nothing of %d of the weights to quantize: %s", path, n, names))
	}
	keys := []gguf.KeyValue{{Key: imatrixFile, Value: path}}
	if len(m.Datasets) > 0 {
		keys = append(keys, gguf.KeyValue{Key: imatrixDataset, Value: m.Datasets[0]})
	}
	keys = append(keys, gguf.KeyValue{Key: imatrixEntries, Value: uint32(len(m.Entries))})
	if m.Chunks > 0 {
		keys = append(keys, gguf.KeyValue{Key: imatrixChunks, Value: uint32(m.Chunks)})
	}
	return keys, nil
}

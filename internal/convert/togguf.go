package convert

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/karat-run/karat/internal/tensor"
)

// hfToGGUF converts a folder.
func (c *converter) hfToGGUF(ctx context.Context, m *checkpoint.Checkpoint, weights []*graph.Weight) error {
	own, factors, err := m.MetadataGGUF(c.Ignore...)
	if err != nil {
		return err
	}
	text, notes, err := m.TextGGUF()
	if err != nil {
		return err
	}
	c.result.Notes = append(c.result.Notes, notes...)
	floats := slices.DeleteFunc(m.Tensors(), func(t tensor.Tensor) bool { return t.DType.Quantized() })
	plain, keep := commonType(floats), c.to.Name == ""
	if keep {
		c.to, _ = quantmix.Find(plain.String()) // every float type has a mix
	} else if !c.to.Most.Quantized() {
		plain = c.to.Most
	}
	var jobs []job
	var lost loss // by packed weights
	packed, changed := map[tensor.DType]int{}, 0
	sizes, most := map[tensor.DType]int{}, tensor.Invalid // of quantized types
	for _, f := range factors {
		v := vector(f.Name+".weight", f.Values)
		jobs = append(jobs, job{in: v, out: v})
	}
	for _, w := range weights {
		w.Tensor = quant.ToGGUF(w.Tensor)
		j := newJob(m, w.Tensor, w.GGUF, plain)
		if (w.IsDecoded() || m.Packing != "" && w.DType == tensor.F32) && len(w.Shape) > 1 {
			codes, by := factored(m, w)
			switch {
			case keep && (j.times != nil || j.value != nil):
				j.out.DType = tensor.F32
				changed++
			case keep && by != nil:
				j.in, j.out.DType = codes, codes.DType
				v := vector(w.GGUF+".scale", by)
				jobs = append(jobs, job{in: v, out: v})
				packed[codes.DType]++
			default:
				if packed[w.DType]++; keep {
					j.out.DType = w.DType
				} else {
					j.loss = &lost
				}
			}
		} else if keep && w.DType.Quantized() {
			j.out.DType = w.DType
		}
		if d := j.out.DType; d.Quantized() {
			if sizes[d] += d.RowBytes(j.out.Shape.Size()); sizes[d] > sizes[most] {
				most = d
			}
		}
		jobs = append(jobs, j)
	}
	if n, ok := quantmix.FileType(most); ok {
		c.to.FileType = n
	}
	c.notePacked(m.Packing, packed, changed, keep)
	keys := generalKeys(m.Arch, "model", c.src, jobs)
	if c.to.Most.Quantized() {
		metadata, err := gguf.MetadataOf(append(keys, own...))
		if err != nil {
			return err
		}
		model, err := quantmix.Of(metadata)
		if err != nil {
			return err
		}
		if err := c.applyMix(jobs, c.to, model, false); errors.Is(err, ErrRequantize) {
			return fmt.Errorf("%w: convert the folder without --type, and the file with "+
				"\"karat quantize --allow-requantize\"", err)
		} else if err != nil {
			return err
		}
	}
	keys = append(append(keys, own...), gguf.KeyValue{Key: "general.file_type", Value: c.to.FileType},
		gguf.KeyValue{Key: "general.quantization_version", Value: uint32(2)})
	err = c.writeGGUF(ctx, append(keys, text...), jobs)
	if note := lost.note("the packed weights", c.to.Name); err == nil && note != "" {
		c.result.Notes = append(c.result.Notes, note)
	}
	return err
}

// factored returns the codes of NVFP4 behind a weight's values, and a factor of each matrix, which hold the values as
// llama.cpp's converter writes them; nil where they do not.
func factored(m *checkpoint.Checkpoint, w *graph.Weight) (codes tensor.Tensor, by []float32) {
	if !checkpoint.HasFactor(m, w.GGUF, w.HF) {
		return codes, nil
	}
	var parts []tensor.Tensor
	for i := range w.Shape[:len(w.Shape)-2].Size() {
		t := w.Tensor
		if len(w.Shape) > 2 {
			t = w.Tensor.Matrix(i)
		}
		c, ok := t.Coded()
		f := factorOf(c.Mul, c.Div)
		if !ok || c.DType != tensor.NVFP4 || c.Columns != nil || f == 0 {
			return codes, nil
		}
		parts, by = append(parts, c.Tensor), append(by, f)
	}
	if len(w.Shape) == 2 {
		return parts[0], by
	}
	codes, _ = tensor.Join(w.Name, parts) // of one type and shape
	return codes, by
}

// factorOf returns the number that takes all scales of NVFP4 where mul/div takes them, 0 for none: a product has the
// rounding of the quotient.
func factorOf(mul, div float32) float32 {
	if div == 1 {
		return mul
	}
	for _, f := range []float32{1 / div, math.Nextafter32(1/div, 0), math.Nextafter32(1/div, 1)} {
		fits := mul == 1 && f > 0x1p-100 && f < 0x1p100
		for m := float32(8); m < 16; m++ { // the mantissas of E4M3
			fits = fits && m*f == m/div
		}
		if fits {
			return f
		}
	}
	return 0
}

// notePacked adds notes about packed weights, of which so many have each type of GGUF that holds their values, and so
// many have other values in GGUF.
func (c *converter) notePacked(packing string, types map[tensor.DType]int, changed int, keep bool) {
	var all []string
	for _, d := range slices.Sorted(maps.Keys(types)) {
		all = append(all, fmt.Sprintf("%d as %v", types[d], d))
	}
	then := "which hold the same values"
	if !keep {
		then += ", and then to " + c.to.Name
	}
	if len(all) > 0 {
		c.result.Notes = append(c.result.Notes, fmt.Sprintf("packed weights (%s) are read %s, %s", packing,
			strings.Join(all, ", "), then))
	}
	if changed > 0 {
		c.result.Notes = append(c.result.Notes, fmt.Sprintf("packed weights (%s) become F32, %d of them: GGUF has the "+
			"values times the model's multipliers", packing, changed))
	}
}

// newJob brings a folder's tensor into GGUF under its name there, without .weight.
func newJob(m *checkpoint.Checkpoint, t tensor.Tensor, name string, to tensor.DType) job {
	h := m.Habit(name)
	t = h.Fill(t)
	j := job{in: t, out: t}
	if h.Permutes() {
		rows := t.Shape[0]
		j.from = func(r int) int { return h.HFRow(r, rows) }
	}
	j.times = h.Times
	if h.ChangesValues() {
		j.value = h.ToGGUF
	}
	t.Name = name
	j.out = GGUFTensor(m, t, to)
	return j
}

// GGUFTensor returns a tensor of m's model as listed by a GGUF file of type to, given GGUF's name without .weight.
func GGUFTensor(m *checkpoint.Checkpoint, t tensor.Tensor, to tensor.DType) tensor.Tensor {
	shape := m.Habit(t.Name).ToFile(checkpoint.GGUF, t.Shape)
	out := tensor.Tensor{Name: m.TensorName(checkpoint.GGUF, t.Name), DType: to, Shape: shape}
	if keepsF32(out.Name, shape) {
		out.DType = tensor.F32
	}
	return out
}

// vector returns an F32 tensor of one dimension.
func vector(name string, v []float32) tensor.Tensor {
	t := tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{len(v)}}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(x))
	}
	return t
}

// generalKeys returns the keys that describe a model to people.
func generalKeys(arch, kind, src string, jobs []job) []gguf.KeyValue {
	keys := []gguf.KeyValue{{Key: "general.architecture", Value: arch}, {Key: "general.type", Value: kind}}
	if abs, err := filepath.Abs(src); err == nil {
		keys = append(keys, gguf.KeyValue{Key: "general.name", Value: title(filepath.Base(abs))})
	}
	return append(keys, gguf.KeyValue{Key: "general.size_label", Value: sizeLabel(jobs)})
}

// title writes a folder's name as a model's (Metadata.id_to_title in llama.cpp's gguf-py).
func title(folder string) string {
	version := regexp.MustCompile(`^(v\d+(?:\.\d+)*|\d.*)$`)
	words := strings.Fields(strings.ReplaceAll(folder, "-", " "))
	for i, w := range words {
		if w != strings.ToLower(w) || version.MatchString(w) {
			continue
		}
		var b strings.Builder
		inWord := false
		for _, r := range w { // Python's str.title
			if !inWord {
				r = unicode.ToTitle(r)
			}
			b.WriteRune(r)
			inWord = unicode.IsLetter(r)
		}
		words[i] = b.String()
	}
	return strings.Join(words, " ")
}

// sizeLabel returns the number of weights. For a model with experts, "4x2.2M" counts the weights of all tokens and of a
// single expert (size_label in llama.cpp's gguf-py).
func sizeLabel(jobs []job) string {
	n, experts, sum, tensors := 0, 0, 0, 0
	for _, j := range jobs {
		size, shape := j.out.Shape.Size(), j.out.Shape
		if strings.Contains(j.out.Name, "_exps.") && len(shape) >= 3 {
			size /= shape[0]
			sum, tensors, experts = sum+shape[0], tensors+1, 1
		}
		n += size
	}
	label := roundCount(float64(n))
	if experts > 0 {
		label = fmt.Sprintf("%dx%s", sum/tensors, label)
	}
	return label
}

// roundCount returns a number of weights with at least two digits (model_weight_count_rounded_notation).
func roundCount(n float64) string {
	suffix := "T"
	for _, s := range []struct {
		above  float64
		suffix string
	}{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {0, "K"}} {
		if n > s.above {
			n, suffix = n/max(s.above, 1e3), s.suffix
			break
		}
	}
	digits := 2 - len(strings.TrimLeft(fmt.Sprintf("%.0f", n), "0"))
	return fmt.Sprintf("%.*f%s", max(digits, 0), n, suffix)
}

// output is a file to write.
type output struct {
	path string
	keys []gguf.KeyValue
	jobs []job
}

// writeGGUF writes jobs with metadata, in parts if the options ask for parts, and the tower's file.
func (c *converter) writeGGUF(ctx context.Context, metadata []gguf.KeyValue, jobs []job) error {
	parts := c.parts(jobs)
	if len(parts) > math.MaxUint16 { // as split.count can say
		return fmt.Errorf("%s: %d parts, want at most %d", c.dst, len(parts), math.MaxUint16)
	}
	var outputs []output
	for i, part := range parts {
		o := output{c.dst, metadata, part}
		if c.Split > 0 {
			if o.path = gguf.PartPath(c.dst, i+1, len(parts)); i > 0 {
				o.keys = nil
			}
			o.keys = append(o.keys[:len(o.keys):len(o.keys)], gguf.PartKeys(i+1, len(parts), len(jobs))...)
		}
		outputs = append(outputs, o)
	}
	if len(c.tower.jobs) > 0 {
		outputs = append(outputs, c.tower.finish(c.src, c.dst, c.to))
		jobs = slices.Concat(jobs, c.tower.jobs)
	}
	for _, o := range outputs {
		c.result.Files = append(c.result.Files, o.path)
	}
	c.count(checkpoint.GGUF, jobs)
	if err := checkOther(c.reads, c.result.Files); err != nil {
		return err
	}
	if err := sysinfo.CheckDisk(c.dst, c.result.Bytes); err != nil {
		return err
	}
	var files []*atomicfile.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, o := range outputs {
		f, err := atomicfile.Create(o.path)
		if err != nil {
			return err
		}
		files = append(files, f)
		if err := c.writePart(ctx, f, o.keys, o.jobs); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := atomicfile.CommitAll(files...); err != nil {
		return err
	}
	return nil
}

func (c *converter) writePart(ctx context.Context, w io.Writer, metadata []gguf.KeyValue, jobs []job) error {
	tensors := make([]tensor.Tensor, len(jobs))
	for i, j := range jobs {
		tensors[i] = j.out
	}
	g, err := gguf.NewWriter(w, metadata, tensors)
	if err != nil {
		return fmt.Errorf("%s: %w", c.dst, err)
	}
	if err := c.stream(ctx, g, jobs); err != nil {
		return err
	}
	return g.Close()
}

// parts divides jobs into parts of at most so many bytes of tensors, as llama.cpp's gguf-split counts.
func (c *converter) parts(jobs []job) (parts [][]job) {
	first, size := 0, int64(0)
	for i := range jobs {
		n := (totalBytes(jobs[i:i+1]) + 31) &^ 31
		if size += n; c.Split > 0 && size > c.Split && i > first {
			parts = append(parts, jobs[first:i])
			first, size = i, n
		}
	}
	return append(parts, jobs[first:])
}

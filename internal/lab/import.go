//go:build !karat_wasmsimd

package lab

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/logprob"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/tensor"
)

// The forms of dumps an Import reads.
const (
	FormDump     = "dump"      // what ReadDump opens
	FormLlamaCpp = "llama.cpp" // a record whose taps have llama.cpp's names
	FormHFDebug  = "hf-debug"  // folder of transformers' model_addition_debugger_context(use_repr=False)
	FormLogits   = "logits"    // llama-perplexity --kl-divergence-base's file
	FormTorch    = "torch"     // torch.save's file of a dict of tensors, or SGLang's dumper's folder of .pt files
	FormVLLM     = "vllm"      // vLLM's extract_hidden_states
	FormTensors  = "tensors"   // a safetensors file whose tensors have the names of taps, as nnsight and MLX write
	FormONNX     = "onnx"      // ONNX Runtime's folder of .tensorproto files, of a build that dumps nodes
	FormBin      = "bin"       // llama-debug --save-logits's NAME.bin, with NAME-tokens.bin beside it
)

// formEvalCallback is a text that cannot be read, since it lacks values.
const formEvalCallback = "eval-callback"

// Forms lists the forms.
var Forms = []string{FormDump, FormLlamaCpp, FormHFDebug, FormLogits, FormBin, FormTorch, FormVLLM, FormTensors,
	FormONNX}

// Import is another tool's dump, open to be read as a record's prompts.
type Import struct {
	Form     string
	Names    string          // of the taps
	Numerics json.RawMessage // a JSON object, or nil
	Notes    []string        // what the form cannot tell or has lost, a sentence each

	count  int
	prompt func(i int) (*Prompt, error)
	file   io.Closer
}

// OpenImport opens a dump of a form, or of the form that it looks like if form is "". layers are the layers of states
// whose file lacks them.
func OpenImport(path, form string, layers ...int) (*Import, error) {
	i, err := openImport(path, form, layers)
	if err != nil {
		return nil, fmt.Errorf("import: %s: %w", path, err)
	}
	return i, nil
}

func openImport(path, form string, layers []int) (i *Import, err error) {
	if form == "" {
		if form, err = formOf(path); err != nil {
			return nil, err
		}
	}
	switch form {
	case FormDump, FormLlamaCpp:
		return importDump(path, form)
	case FormHFDebug:
		return importDebug(path)
	case FormLogits:
		return importLogits(path)
	case FormBin:
		return importBin(path)
	case FormTorch:
		return importTorch(path)
	case FormONNX:
		return importONNX(path)
	case FormVLLM, FormTensors:
		return importTensors(path, form, layers)
	case formEvalCallback:
		return nil, errors.New("the text of llama-eval-callback, which shortens rows to six values: \"karat lab " +
			"hook --print llama.cpp\" prints a program that writes them whole")
	}
	return nil, fmt.Errorf("form %q: want %s", form, strings.Join(Forms, ", "))
}

// formOf finds the form of the dump at path.
func formOf(path string) (string, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return "", patherr.Plain(err)
	case st.IsDir():
		if _, err := debugClass(path); err == nil {
			return FormHFDebug, nil
		}
		if found, _ := filepath.Glob(filepath.Join(path, "*___*.pt")); len(found) > 0 {
			return FormTorch, nil
		}
		if len(onnxFolders(path)) > 0 {
			return FormONNX, nil
		}
		return FormDump, nil
	case filepath.Ext(path) == ".bin":
		return FormBin, nil
	case filepath.Ext(path) == ".pt":
		return FormTorch, nil
	}
	if kindOf(path) == "" {
		if form := tensorsForm(path); form != "" {
			return form, nil
		}
	}
	f, err := mmap.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	form := FormDump
	err = mmap.Guard(func() error {
		if bytes.Contains(f.Data()[:min(1<<16, len(f.Data()))], []byte("_debug:")) && kindOf(path) == kindText {
			form = formEvalCallback
		}
		if strings.HasPrefix(string(f.Data()[:min(8, len(f.Data()))]), logprob.Magic) {
			form = FormLogits
		}
		return nil
	})
	return form, err
}

// Close releases the files. No prompt's tensors are valid after it.
func (i *Import) Close() error {
	if i.file == nil {
		return nil
	}
	return i.file.Close()
}

// Each calls f for each prompt. Its tensors may point into mapped files.
func (i *Import) Each(f func(*Prompt) error) error {
	return mmap.Guard(func() error {
		for n := range i.count {
			p, err := i.prompt(n)
			if err == nil {
				err = f(p)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// llamaCppTap is a name with a layer or a use that llama.cpp's taps have.
var llamaCppTap = regexp.MustCompile(`-\d+$|#\d+\.[A-Z_]+$`)

func importDump(path, form string) (*Import, error) {
	r, err := ReadDump(path)
	if err != nil {
		return nil, err
	}
	i := &Import{Form: form, Names: r.Names, Numerics: r.Numerics, count: len(r.Prompts), file: r,
		prompt: func(n int) (*Prompt, error) { return r.Prompts[n], nil }}
	for _, p := range r.Prompts {
		for name := range p.Taps {
			if i.Names == "" && llamaCppTap.MatchString(name) {
				i.Form = FormLlamaCpp
			}
		}
	}
	if i.Form == FormLlamaCpp {
		i.Names = NamesLlamaCpp
	}
	return i, nil
}

// importBin reads the logits of a prompt's last position, and the ids beside them.
func importBin(path string) (*Import, error) {
	read := func(path string) (data []byte, err error) {
		f, err := mmap.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		err = mmap.Guard(func() error {
			if n := len(f.Data()); n == 0 || n%4 != 0 || n/4 > maxIDs {
				return fmt.Errorf("%s: %d bytes, want 4 to %d for each of the elements", path, n, 4*maxIDs)
			}
			data = append(data, f.Data()...)
			return nil
		})
		return data, err
	}
	logits, err := read(path)
	if err != nil {
		return nil, err
	}
	ids, err := read(strings.TrimSuffix(path, ".bin") + "-tokens.bin")
	if err != nil {
		return nil, fmt.Errorf("%w: llama-debug writes it; numbers alone need --shape", err)
	}
	p, err := binPrompt(logits, ids)
	if err != nil {
		return nil, err
	}
	return &Import{Form: FormBin, Numerics: json.RawMessage(`{"engine":"llama.cpp"}`), count: 1,
		prompt: func(int) (*Prompt, error) { return p, nil }}, nil
}

// binPrompt returns a prompt of numbers of 4 bytes each.
func binPrompt(logits, ids []byte) (*Prompt, error) {
	p := &Prompt{PositionsKept: 1, Logits: &tensor.Tensor{DType: tensor.F32, Shape: tensor.Shape{1, len(logits) / 4},
		Data: logits}}
	return p, p.addIDs(&tensor.Tensor{DType: tensor.I32, Shape: tensor.Shape{len(ids) / 4}, Data: ids})
}

// steps returns a note where passes of r may go on from the pass before, as decoding does: these are no prompts.
func steps(r *Record) []string {
	n := 0
	for _, p := range r.Prompts {
		if len(p.IDs) == 1 {
			n++
		}
	}
	if n == 0 || n == len(r.Prompts) {
		return nil
	}
	return []string{fmt.Sprintf("%d prompts have one token: a step of decoding goes on from the pass before, and is "+
		"read as a prompt from position 0. Leave out the files of such steps", n)}
}

// Take sets the parts of p's input that p lacks, from a prompt of a golden record. Ids that do not fit p are an
// error.
func (p *Prompt) Take(gold *Prompt) error {
	if gold == nil || p.IDs != nil {
		return nil
	}
	p.IDs = gold.IDs
	if p.Text == "" {
		p.Text, p.Input = gold.Text, gold.Input
	}
	return p.check()
}

// Translate gives p's taps the names and the order of values that g has, PyTorch's names where there are some,
// removes taps without a place in g from p, and returns them. Of several taps of the same value the tap with the
// most rows stays.
func (p *Prompt) Translate(g *graph.Graph, names string) ([]Unplaced, error) {
	l, err := Place(g, names, p)
	if err != nil {
		return nil, err
	}
	taps := map[string]*tensor.Tensor{}
	for i := range l.Taps {
		x := &l.Taps[i]
		if p.Taps[x.Name] != nil && taps[x.Tap] == nil { // logits and hidden states stay as they are
			taps[x.Tap] = x.tensor()
		}
	}
	p.Taps = taps
	return l.Unplaced, nil
}

// tensor returns all rows in the shape of the node, float64 if the tap is, else float32.
func (p *Placed) tensor() *tensor.Tensor {
	shape := append(tensor.Shape{p.Rows}, p.Node.Shape...)
	row := make([]float64, p.Width)
	var data []byte
	for i := range p.Rows {
		p.Read(row, i)
		for _, v := range row {
			if p.data.dtype == tensor.F64 {
				data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
			} else {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
			}
		}
	}
	d := tensor.F32
	if p.data.dtype == tensor.F64 {
		d = tensor.F64
	}
	return &tensor.Tensor{DType: d, Shape: shape, Data: data}
}

//go:build !karat_wasmsimd

package lab

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/npy"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/tensor"
)

// onnxEnding ends the names of the files that ONNX Runtime's debug build writes, a TensorProto each.
const onnxEnding = ".tensorproto"

// onnxFolders returns the folders of dir with values, each of one run: dir itself, or dir/0, dir/1 and so on.
func onnxFolders(dir string) (all []string) {
	for i := -1; ; i++ {
		d := dir
		if i >= 0 {
			d = filepath.Join(dir, strconv.Itoa(i))
		}
		found, err := filepath.Glob(filepath.Join(d, "*"+onnxEnding))
		switch {
		case err == nil && len(found) > 0:
			all = append(all, d)
		case i >= 0:
			return all
		}
		if i < 0 && len(all) > 0 {
			return all
		}
	}
}

// importONNX reads folders of ONNX Runtime's values of nodes. A value's name is that of the graph's edge, which has a
// module's path.
func importONNX(path string) (*Import, error) {
	folders := onnxFolders(path)
	if len(folders) == 0 {
		return nil, fmt.Errorf("no *%s in it, nor in its folder 0", onnxEnding)
	}
	var infos []arrayInfo
	var arrays []*npy.Array
	left, size := 0, 0
	for prompt, dir := range folders {
		files, err := os.ReadDir(dir)
		if err != nil {
			return nil, patherr.Plain(err)
		}
		best := map[string]onnxValue{}
		for _, f := range files {
			if filepath.Ext(f.Name()) != onnxEnding {
				continue
			}
			if len(best)+len(infos) >= maxArrays {
				return nil, fmt.Errorf("more than %d values", maxArrays)
			}
			v, err := onnxFile(f, filepath.Join(dir, f.Name()), maxUnpacked-size)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Name(), err)
			}
			if old, ok := best[v.tap]; v.tap == "" || ok && old.rank >= v.rank {
				left++
				continue
			} else if ok {
				left, size = left+1, size-len(old.array.Data)
			}
			best[v.tap], size = v, size+len(v.array.Data)
		}
		for _, tap := range slices.Sorted(maps.Keys(best)) {
			v := best[tap]
			infos = append(infos, arrayInfo{Name: tap, Prompt: &prompt, DType: v.dtype})
			arrays = append(arrays, v.array)
		}
	}
	r, err := (&Record{Path: path}).arrays(infos, arrays)
	if err != nil {
		return nil, err
	}
	i := &Import{Form: FormONNX, Names: NamesHF, Notes: steps(r), count: len(r.Prompts), file: r,
		prompt: func(n int) (*Prompt, error) { return r.Prompts[n], nil }}
	if left > 0 {
		i.Notes = append(i.Notes, fmt.Sprintf("%d values are left out: weights, and values within a module", left))
	}
	return i, nil
}

// onnxFile reads a file of at most so many bytes.
func onnxFile(f fs.DirEntry, path string, most int) (onnxValue, error) {
	st, err := f.Info()
	switch {
	case err != nil:
		return onnxValue{}, patherr.Plain(err)
	case !st.Mode().IsRegular() || st.Size() > int64(most):
		return onnxValue{}, fmt.Errorf("no regular file, or values of more than %d bytes", maxUnpacked)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return onnxValue{}, patherr.Plain(err)
	}
	return parseONNX(b)
}

// onnxValue is a value and the tap with that name, "" for none. Of several values of a tap the highest rank counts.
type onnxValue struct {
	tap   string
	rank  int
	array *npy.Array
	dtype string
}

// onnxTypes are the types of elements that are read, by their numbers in TensorProto: NumPy's.
var onnxTypes = map[uint64]string{1: "f4", 6: "i4", 7: "i8", 10: "f2", 11: "f8", 16: "u2"}

// The fields of TensorProto that are read, and the wires of protobuf.
const (
	onnxDims, onnxType, onnxName, onnxRaw, onnxLocation = 1, 2, 8, 9, 14

	wireVarint, wire64, wireBytes, wire32 = 0, 1, 2, 5
)

var errONNX = errors.New("no TensorProto of protobuf")

// parseONNX reads a TensorProto whose values are raw bytes, as ONNX Runtime writes it.
func parseONNX(b []byte) (v onnxValue, err error) {
	var name string
	var kind, location uint64
	var shape []int
	var raw []byte
	dim := func(n uint64) { shape = append(shape, int(min(n, 1<<40))) }
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return v, errONNX
		}
		b = b[n:]
		var value uint64
		var data []byte
		switch key & 7 {
		case wireVarint:
			if value, n = binary.Uvarint(b); n <= 0 {
				return v, errONNX
			}
		case wireBytes:
			value, n = binary.Uvarint(b)
			if n <= 0 || value > uint64(len(b)-n) {
				return v, errONNX
			}
			data = b[n : n+int(value)]
			n += len(data)
		case wire64:
			n = 8
		case wire32:
			n = 4
		default:
			return v, errONNX
		}
		if n > len(b) || len(shape) > 16 {
			return v, errONNX
		}
		b = b[n:]
		switch key {
		case onnxDims<<3 | wireVarint:
			dim(value)
		case onnxDims<<3 | wireBytes: // packed
			for len(data) > 0 {
				d, n := binary.Uvarint(data)
				if n <= 0 || len(shape) > 16 {
					return v, errONNX
				}
				dim(d)
				data = data[n:]
			}
		case onnxType<<3 | wireVarint:
			kind = value
		case onnxName<<3 | wireBytes:
			name = string(data)
		case onnxRaw<<3 | wireBytes:
			raw = data
		case onnxLocation<<3 | wireVarint:
			location = value
		}
	}
	if name == "" || kind == 0 {
		return v, errONNX
	}
	v.tap, v.rank = onnxTap(name)
	if v.array = (&npy.Array{Type: onnxTypes[kind], Shape: shape, Data: raw}); v.array.Type == "" {
		return onnxValue{}, nil // a mask, or text
	}
	if v.array.Type == "u2" {
		v.dtype = "bf16"
	}
	if v.tap == "" {
		return v, nil
	}
	size, err := tensor.Bytes(tensor.F32, shape)
	width, _ := strconv.Atoi(v.array.Type[1:])
	if err != nil || location != 0 || len(raw) != size/4*width {
		return v, fmt.Errorf("%q: shape %v with %d raw bytes, or values elsewhere", name, shape, len(raw))
	}
	if len(shape) > 2 && shape[0] == 1 { // the batch
		v.array.Shape = shape[1:]
	}
	return v, nil
}

var (
	// onnxEdge ends the name of a value: an operation and its number as torch.onnx has them, and which output.
	onnxEdge = regexp.MustCompile(`^(?:([A-Z]\w*?)(?:_(\d+))?_)?output_(\d+)$`)
	// onnxLayer is a layer's path, and a module in it.
	onnxLayer = regexp.MustCompile(`^(.*layers\.)(\d+)(?:\.(.+))?$`)
)

// onnxTap returns the tap of a value in the graphs of torch.onnx (/model/layers.0/mlp/up_proj/MatMul_output_0) and of
// onnxruntime-genai's builder (/model/layers.0/mlp/up_proj/MatMul/output_0), "" for a value within a module. Of several
// operations of a module the last gives its output, and has the highest rank.
func onnxTap(name string) (tap string, rank int) {
	switch name {
	case "input_ids":
		return "ids", 1
	case "logits":
		return name, 1
	}
	path, inside := strings.CutPrefix(name, "/")
	parts := strings.Split(path, "/")
	edge := onnxEdge.FindStringSubmatch(parts[len(parts)-1])
	if !inside || edge == nil || len(parts) < 2 {
		return "", 0
	}
	parts = parts[:len(parts)-1]
	op := edge[1]
	if last := parts[len(parts)-1]; op == "" && last != "" && last[0] >= 'A' && last[0] <= 'Z' {
		op, parts = last, parts[:len(parts)-1]
	}
	m := strings.Join(parts, ".")
	number, _ := strconv.Atoi(edge[2])
	at := onnxLayer.FindStringSubmatch(m)
	if at != nil && len(at[2]) < 6 {
		layer, _ := strconv.Atoi(at[2])
		inner := at[3]
		if rest, ok := strings.CutPrefix(inner, "attn"); ok && (rest == "" || rest[0] == '.') {
			inner = "self_attn" + rest // the builder's word
		}
		m = strings.TrimSuffix(at[1]+at[2]+"."+inner, ".")
		switch {
		case edge[3] == "3" && op == "" && (inner == "input_layernorm" || inner == "final_norm_layernorm") && layer > 0:
			return fmt.Sprintf("%s%d.out", at[1], layer-1), 1 // the stream, which the norm sums
		case inner == "final_norm_layernorm":
			m = strings.TrimSuffix(at[1], "layers.") + "norm"
		case inner == "" && op == "Add" && number == 1:
			return m + ".out", 1
		case inner == "mlp" && op == "Mul" && number == 0:
			return m + ".down_proj.in", 1
		case inner == "self_attn" && strings.HasSuffix(op, "Attention"):
			return m + ".o_proj.in", 1
		case op == "RotaryEmbedding":
			m = strings.Replace(m, "_rotary", "_rope", 1)
		}
	}
	if edge[3] != "0" || m == "" {
		return "", 0
	}
	last := m[strings.LastIndexByte(m, '.')+1:]
	norms := strings.Contains(last, "norm") || strings.HasPrefix(last, "ln_")
	switch {
	case op == "" && norms || strings.HasSuffix(op, "Normalization") || op == "RotaryEmbedding" || op == "Gather":
		rank = 9
	case norms && op == "Mul" && number == 1:
		rank = 8
	case norms && op == "Add" && number == 1:
		rank = 7
	case norms || op == "":
		return "", 0
	case last == "act_fn" && op == "Mul":
		rank = 1 + number
	case op == "Add" && strings.HasSuffix(last, "proj") && number == 0:
		rank = 6 // the bias
	case op == "Gemm" || strings.HasPrefix(op, "MatMul"):
		rank = cmp.Or(5-min(number, 4), 1)
	default:
		return "", 0
	}
	return m + ".out", rank
}

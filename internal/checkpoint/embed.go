package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/embed"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// ggufPooling are the values of KEY.pooling_type (LLAMA_POOLING_TYPE in llama.h).
var ggufPooling = []embed.Pooling{embed.None, embed.Mean, embed.CLS, embed.Last}

// ggufRank is the pooling of rerankers, which make a score and no vector.
const ggufRank = 4

// ggufDense are the tensors of dense layers behind the pooling.
var ggufDense = []string{"dense_2", "dense_3"}

// maxDense bounds a dense layer, in values.
const maxDense = 1 << 28

// Embedding returns the files' instructions for making a vector of the model's rows: sentence-transformers'
// modules.json and the files named there, or GGUF's pooling_type and dense layers. Without instructions the pooling is
// "", and vectors are normalized.
func (c *Checkpoint) Embedding() (*embed.Head, error) {
	read := c.embeddingGGUF
	if c.Format == HuggingFace {
		read = func() (*embed.Head, error) { return embeddingHF(c.Path) }
	}
	h, err := read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return h, nil
}

// embeddingGGUF returns the instructions of a GGUF file. GGUF has no prompts, and its readers normalize.
func (c *Checkpoint) embeddingGGUF() (*embed.Head, error) {
	h := &embed.Head{Normalize: true}
	if n := c.Pooling; n != nil {
		if *n < 0 || *n >= float64(len(ggufPooling)) || *n != float64(int(*n)) {
			return nil,
				fmt.Errorf("metadata key %s.pooling_type is %v: none of the poolings that make a vector, 0 to %d",
					c.Arch, *n, len(ggufPooling)-1)
		}
		h.Pooling = ggufPooling[int(*n)]
	}
	for _, name := range ggufDense {
		t, ok := c.set.ByName[name]
		if !ok {
			continue
		}
		d, err := denseOf(t, nil)
		if err != nil {
			return nil, err
		}
		h.Dense = append(h.Dense, d)
	}
	return h, nil
}

// denseOf returns the dense layer with the given tensors.
func denseOf(t tensor.Tensor, bias *tensor.Tensor) (d embed.Dense, err error) {
	if len(t.Shape) == 1 { // as llama-quantize writes one row
		t.Shape = tensor.Shape{1, t.Shape[0]}
	}
	if len(t.Shape) != 2 || t.Shape.Size() > maxDense {
		return d, fmt.Errorf("tensor %s: shape %v, want a matrix of at most %d values", t.Name, []int(t.Shape),
			maxDense)
	}
	d.Out, d.In = t.Shape[0], t.Shape[1]
	if d.W, err = floats(t); err != nil || bias == nil {
		return d, err
	}
	if bias.Shape.Size() != d.Out {
		return d, fmt.Errorf("tensor %s: shape %v, want [%d]", bias.Name, []int(bias.Shape), d.Out)
	}
	d.Bias, err = floats(*bias)
	return d, err
}

// floats returns a tensor's values.
func floats(t tensor.Tensor) ([]float32, error) {
	if !isWeight(t.DType) {
		return nil, fmt.Errorf("tensor %s: type %v is not supported for weights", t.Name, t.DType)
	}
	part, err := t.Part(0, t.Rows())
	if err != nil {
		return nil, err
	}
	out := make([]float32, t.Shape.Size())
	if err := quant.Dequantize(t.DType, out, part.Data); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return out, nil
}

// poolingConfig is 1_Pooling/config.json.
type poolingConfig struct {
	CLS     bool   `json:"pooling_mode_cls_token"`
	Mean    bool   `json:"pooling_mode_mean_tokens"`
	Last    bool   `json:"pooling_mode_lasttoken"`
	Max     bool   `json:"pooling_mode_max_tokens"`
	Root    bool   `json:"pooling_mode_mean_sqrt_len_tokens"`
	Weighed bool   `json:"pooling_mode_weightedmean_tokens"`
	Mode    string `json:"pooling_mode"`
	Include *bool  `json:"include_prompt"`
}

// embeddingHF returns the instructions of a folder.
func embeddingHF(root string) (*embed.Head, error) {
	h := &embed.Head{}
	if root == "" { // settings alone
		return h, nil
	}
	var modules []struct{ Path, Type string }
	if found, err := readJSON(root, ".", "modules.json", &modules); err != nil || !found {
		return &embed.Head{Normalize: true}, err
	}
	var own struct {
		Prompts map[string]string `json:"prompts"`
		Default *string           `json:"default_prompt_name"`
	}
	if _, err := readJSON(root, ".", "config_sentence_transformers.json", &own); err != nil {
		return nil, err
	}
	if h.Prompts = own.Prompts; own.Default != nil {
		h.Default = *own.Default
	}
	for i, m := range modules {
		kind := m.Type[strings.LastIndex(m.Type, ".")+1:]
		var err error
		switch {
		case kind == "Transformer" && i == 0:
		case kind == "Pooling" && i == 1:
			err = poolingModule(root, h, m.Path)
		case kind == "Dense" && h.Pooling != "" && !h.Normalize:
			err = denseModule(root, h, m.Path)
		case kind == "Normalize" && i == len(modules)-1:
			h.Normalize = true
		default:
			err = fmt.Errorf("modules.json: module %d is a %s: supported are a Transformer, a Pooling, Dense layers "+
				"and Normalize, in this order", i, family.Show(m.Type))
		}
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}

// poolingModule reads the kind of pooling.
func poolingModule(root string, h *embed.Head, folder string) error {
	var p poolingConfig
	found, err := readJSON(root, folder, "config.json", &p)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%s/config.json: missing, modules.json names it", folder)
	}
	var modes []embed.Pooling
	for _, m := range []struct {
		on   bool
		mode embed.Pooling
	}{{p.CLS, embed.CLS}, {p.Mean, embed.Mean}, {p.Last, embed.Last}, {p.Max, "max"}, {p.Root, "mean_sqrt_len"},
		{p.Weighed, "weightedmean"}} {
		if m.on {
			modes = append(modes, m.mode)
		}
	}
	if p.Mode != "" {
		modes = []embed.Pooling{embed.Pooling(strings.Replace(p.Mode, "lasttoken", "last", 1))}
	}
	if len(modes) != 1 {
		return fmt.Errorf("%s/config.json: poolings %q, supported is one of mean, cls and last", folder, modes)
	}
	if h.Pooling, err = embed.Parse(string(modes[0])); err != nil || h.Pooling == embed.None {
		return fmt.Errorf("%s/config.json: pooling %q, supported are mean, cls and last", folder, modes[0])
	}
	h.Apart = p.Include != nil && !*p.Include
	return nil
}

// denseModule reads a dense layer.
func denseModule(root string, h *embed.Head, folder string) error {
	var k struct {
		In   int    `json:"in_features"`
		Out  int    `json:"out_features"`
		Bias *bool  `json:"bias"`
		Act  string `json:"activation_function"`
	}
	found, err := readJSON(root, folder, "config.json", &k)
	if err != nil {
		return err
	}
	if act := k.Act[strings.LastIndex(k.Act, ".")+1:]; !found || act != "Identity" {
		return fmt.Errorf("%s/config.json: activation_function is %s, supported is Identity", folder,
			family.Show(k.Act))
	}
	path := filepath.Join(root, folder, "model.safetensors")
	f, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var w, bias *tensor.Tensor
	for i := range f.Tensors {
		switch t := &f.Tensors[i]; t.Name {
		case "linear.weight":
			w = t
		case "linear.bias":
			bias = t
		}
	}
	if w == nil || (bias == nil) != (k.Bias != nil && !*k.Bias) {
		return fmt.Errorf("%s: want tensors linear.weight and, but where bias is false in config.json, linear.bias",
			path)
	}
	d, err := denseOf(*w, bias)
	if err == nil && (d.In != k.In || d.Out != k.Out) {
		err = fmt.Errorf("tensor %s: shape %v, config.json says [%d %d]", w.Name, []int(w.Shape), k.Out, k.In)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	h.Dense = append(h.Dense, d)
	return nil
}

// poolingGGUF returns GGUF's keys for the instructions. GGUF's readers normalize.
func (c *Checkpoint) poolingGGUF() (keys []gguf.KeyValue, err error) {
	h, err := c.Embedding()
	if err != nil || h.Pooling == "" {
		return nil, err
	}
	if most := len(c.Family.Model.Dense()); len(h.Dense) > most {
		return nil, fmt.Errorf("modules.json: %d dense layers, GGUF has tensors for %d in architecture %s",
			len(h.Dense), most, c.Arch)
	}
	put := func(key string, n int) { keys = append(keys, gguf.KeyValue{Key: c.Arch + "." + key, Value: uint32(n)}) }
	for i, d := range h.Dense {
		put(fmt.Sprintf("dense_%d_feat_in", i+2), d.In)
		put(fmt.Sprintf("dense_%d_feat_out", i+2), d.Out)
	}
	put("pooling_type", slices.Index(ggufPooling, h.Pooling))
	return keys, nil
}

// openDense adds the tensors of the family's dense layers, if there are any.
func (c *Checkpoint) openDense() error {
	for _, folder := range c.Family.Model.Dense() {
		dir := filepath.Join(c.Path, folder)
		if isMissing(dir, "model.safetensors") {
			continue
		}
		if err := checkInside(c.Path, dir); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
		f, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
		if err != nil {
			return err
		}
		c.close = append(c.close, f)
		for _, t := range f.Tensors {
			if err := c.add(folder+"."+t.Name, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// readJSON reads a file of the root folder, or of a folder inside, into dst. The result is false where there is no such
// file.
func readJSON(root, folder, name string, dst any) (bool, error) {
	if folder == "" || !filepath.IsLocal(folder) {
		return false, fmt.Errorf("modules.json: path %s, want a folder inside the model's", family.Show(folder))
	}
	dir := filepath.Join(root, folder)
	if folder != "." {
		if err := checkInside(root, dir); err != nil {
			return false, err
		}
	}
	b, err := hf.ReadText(dir, name, hf.MaxConfig)
	if err != nil || b == nil {
		return false, err
	}
	if err := json.Unmarshal(b, dst); err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Join(folder, name), jsonerr.Plain(err, ""))
	}
	return true, nil
}

// checkInside refuses a folder outside root, and a folder with links to files outside.
func checkInside(root, dir string) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	to, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return errors.Join(fmt.Errorf("modules.json names a folder that is not there"), err)
	}
	if in, err := filepath.Rel(root, to); err != nil || !filepath.IsLocal(in) {
		return fmt.Errorf("%s: a link out of the model's folder, to %s", dir, to)
	}
	return hf.CheckLinks(dir)
}

// DenseFolder returns the folder inside a Hugging Face folder in which a tensor lies, and the tensor's name there; ""
// for the model's own files.
func (c *Checkpoint) DenseFolder(name string) (folder, own string) {
	for _, folder := range c.Family.Model.Dense() {
		if own, ok := strings.CutPrefix(name, folder+"."); ok {
			return folder, own
		}
	}
	return "", name
}

// modulesHF adds the files that tell sentence-transformers how to make a vector.
func (c *Checkpoint) modulesHF(files map[string][]byte) error {
	if c.Pooling != nil && *c.Pooling == ggufRank {
		return nil
	}
	h, err := c.Embedding()
	if err != nil || h.Pooling == "" || h.Pooling == embed.None {
		return err
	}
	if len(h.Dense) > len(c.Family.Model.Dense()) {
		return fmt.Errorf("%s: %d dense layers, %d are known in architecture %s", c.Path, len(h.Dense),
			len(c.Family.Model.Dense()), c.Arch)
	}
	var modules []map[string]any
	add := func(path, kind string, config map[string]any) {
		modules = append(modules, map[string]any{"idx": len(modules), "name": strconv.Itoa(len(modules)), "path": path,
			"type": "sentence_transformers.models." + kind})
		if b, e := hf.Marshal(config); config != nil {
			files[path+"/config.json"], err = b, errors.Join(err, e)
		}
	}
	add("", "Transformer", nil)
	add("1_Pooling", "Pooling",
		map[string]any{"word_embedding_dimension": c.Values["hidden_size"], "include_prompt": true,
			"pooling_mode_cls_token": h.Pooling == embed.CLS, "pooling_mode_mean_tokens": h.Pooling == embed.Mean,
			"pooling_mode_lasttoken":  h.Pooling == embed.Last,
			"pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false,
			"pooling_mode_weightedmean_tokens": false})
	for i, d := range h.Dense {
		add(c.Family.Model.Dense()[i], "Dense", map[string]any{"in_features": d.In, "out_features": d.Out,
			"bias": false, "activation_function": "torch.nn.modules.linear.Identity"})
	}
	if h.Normalize {
		add(fmt.Sprintf("%d_Normalize", len(modules)), "Normalize", nil)
	}
	b, e := hf.Marshal(modules)
	files["modules.json"] = b
	return errors.Join(err, e)
}

// rankHead lists the tensors of a reranker's head: a layer with tanh, and the layer making the score.
var rankHead = []struct{ gguf, hf string }{{"cls", "classifier.dense"}, {"cls.output", "classifier.out_proj"}}

// ranks reports whether the files have a reranker's whole head.
func (c *Checkpoint) ranks() bool {
	return !slices.ContainsFunc(rankHead, func(n struct{ gguf, hf string }) bool {
		_, ok := c.set.ByName[c.Name(n.gguf, n.hf)]
		return !ok
	})
}

// rankHF says how many scores the head makes. The library assumes two.
func (c *Checkpoint) rankHF(config map[string]any) {
	n, _ := settings.Rows(&c.set, rankHead[1].gguf).(float64)
	labels := map[string]string{}
	for i := range int(n) {
		labels[strconv.Itoa(i)] = fmt.Sprintf("LABEL_%d", i)
	}
	if n > 0 {
		config["id2label"] = labels
	}
}

// Ranking returns the files' instructions for making a score of the model's rows. The error names the missing part.
func (c *Checkpoint) Ranking() (*embed.Head, error) {
	h := &embed.Head{Pooling: embed.CLS}
	for i, n := range rankHead {
		name := c.Name(n.gguf, n.hf)
		t, ok := c.set.ByName[name]
		if !ok && i == 0 {
			continue // llama.cpp's converter leaves BERT's out
		}
		if !ok {
			return nil, fmt.Errorf("%s: it is no reranker: there is no tensor %s, which makes a score of the first row",
				c.Path, name)
		}
		var bias *tensor.Tensor
		if b, ok := c.set.ByName[name+".bias"]; ok {
			bias = &b
		}
		d, err := denseOf(t, bias)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Path, err)
		}
		d.Tanh = i == 0
		h.Dense = append(h.Dense, d)
	}
	if d := h.Dense[len(h.Dense)-1]; d.Out != 1 {
		return nil, fmt.Errorf("%s: it is no reranker: its head gives %d scores, by class, and not one", c.Path, d.Out)
	}
	return h, nil
}

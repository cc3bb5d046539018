package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/image/processor"
	"github.com/karat-run/karat/internal/tensor"
)

// commonKeys are the keys of all towers' files, in the converter's order.
var commonKeys = []string{"projection_dim", "image_size", "patch_size", "embedding_length", "feed_forward_length",
	"block_count", "attention.head_count", "image_mean", "image_std"}

// processorKey is a key of Karat's own: the folder's preprocessor_config.json, where the other keys do not say how
// pictures are prepared.
const processorKey = "karat.image_processor"

// KeysGGUF returns the keys of llama.cpp's file of a folder's tower, of tensors with these shapes by GGUF's names. lost
// are the settings without a place there, and notes tell which settings of pictures llama.cpp does not read.
func (t *Tower) KeysGGUF(shapes map[string]tensor.Shape) (keys []gguf.KeyValue, lost []settings.Entry, notes []string,
	err error) {
	var prepared family.Settings
	if t.Processor == nil {
		return nil, nil, nil, fmt.Errorf("%s: preprocessor_config.json is missing: it has the mean and the deviation "+
			"of pixels", t.Path)
	}
	if err := json.Unmarshal(t.Processor, &prepared); err != nil {
		return nil, nil, nil, fmt.Errorf("%s: preprocessor_config.json: %w", t.Path, err)
	}
	p, s := &t.Kind.Projector, maps.Clone(t.Values)
	how, err := processor.Read(t.Processor, "")
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", t.Path, err)
	}
	s["image_mean"], s["image_std"] = how.Means() // a folder may leave them out, llama.cpp's reader may not
	p.Write(s, prepared)
	keys = []gguf.KeyValue{{Key: "clip.has_vision_encoder", Value: true}}
	for _, key := range commonKeys {
		keys = t.appendKey(keys, "clip.vision."+key, s)
	}
	for _, key := range p.Order {
		keys = t.appendKey(keys, key, s)
	}
	metadata, err := gguf.MetadataOf(keys)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", t.Path, err)
	}
	back := newTower(t.Kind, settings.New(t.Path), GGUF)
	if err = back.readKeys(metadata); err == nil {
		err = back.complete(func(name string) []int { return shapes[name] })
	}
	if err != nil {
		return nil, nil, nil, err
	}
	back.Values["text_rms_norm_eps"] = s["text_rms_norm_eps"] // of the text's file
	if lost, err = t.differences(s, back.Values); err != nil {
		return nil, nil, nil, err
	}
	assumed, err := json.Marshal(back.Kind.Projector.Processor(back.Values))
	if err != nil {
		return nil, nil, nil, err
	}
	others, err := processor.Differences(t.Processor, assumed)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", t.Path, err)
	}
	for _, d := range others {
		notes = append(notes, fmt.Sprintf("preprocessor_config.json: %s is %v: GGUF has no key for it, and llama.cpp "+
			"takes its own rule or %v. Karat takes the folder's from the key %s", d.Name, d.A, d.B, processorKey))
	}
	if len(others) > 0 {
		var b bytes.Buffer
		if err := json.Compact(&b, t.Processor); err != nil {
			return nil, nil, nil, err
		}
		keys = append(keys, gguf.KeyValue{Key: processorKey, Value: b.String()})
	}
	return keys, lost, notes, nil
}

// appendKey appends a key with its value among the settings, if there is one.
func (t *Tower) appendKey(keys []gguf.KeyValue, key string, s family.Settings) []gguf.KeyValue {
	name := strings.TrimPrefix(key, "clip.vision.")
	setting := projectorKeys[name]
	if own := t.Kind.Projector.Keys[name]; own != "" {
		setting = own
	}
	var value any
	switch v := s[setting].(type) {
	case float64:
		if value = uint32(v); setting == "layer_norm_eps" {
			value = float32(v)
		}
	case []any:
		value = listGGUF(v)
	}
	switch {
	case strings.HasSuffix(key, "projector_type"):
		value = t.Kind.Name
	case key == family.ActKey:
		for use, act := range projectorActivations {
			if act == s[family.ActKey] {
				key, value = use, true
			}
		}
	}
	if value == nil {
		return keys
	}
	return append(keys, gguf.KeyValue{Key: key, Value: value})
}

// listGGUF returns a list of numbers, or of true and false, as package gguf writes it; nil for other lists.
func listGGUF(list []any) any {
	var numbers []float32
	var flags []bool
	for _, x := range list {
		switch x := x.(type) {
		case float64:
			numbers = append(numbers, float32(x))
		case bool:
			flags = append(flags, x)
		}
	}
	switch {
	case len(list) == 0:
	case len(numbers) == len(list):
		return numbers
	case len(flags) == len(list):
		return flags
	}
	return nil
}

// differences lists the settings of the forward pass with other values in back.
func (t *Tower) differences(s, back family.Settings) (lost []settings.Entry, err error) {
	var configs [2]reflect.Value
	for i, values := range []family.Settings{s, back} {
		config := t.Kind.Model.Config()
		configs[i] = reflect.ValueOf(config).Elem()
		err = errors.Join(err, t.Decode(configs[i], map[string]any(values), ""))
	}
	for i := range configs[0].NumField() {
		a, b := configs[0].Field(i), configs[1].Field(i)
		if equal := reflect.DeepEqual(a.Interface(), b.Interface()); !equal && (a.Kind() != reflect.Slice ||
			a.Len()+b.Len() > 0) {
			key := configs[0].Type().Field(i).Tag.Get("json")
			lost = append(lost, settings.Entry{Key: t.Key(key), Value: family.Show(s[key])})
		}
	}
	return lost, err
}

// A FilePart is a tensor of llama.cpp's file of a tower, and how it comes from the model's tensor.
type FilePart struct {
	Tensor tensor.Tensor // in the file's layout and order, with the file's name
	Habit  Habit         // of steps that remain
}

// Name returns the part's name without .weight.
func (p FilePart) Name() string { return strings.TrimSuffix(p.Tensor.Name, ".weight") }

// Whole returns the part as the file has it, perhaps in F32.
func (p FilePart) Whole() (tensor.Tensor, error) {
	x, err := p.Tensor.Whole()
	switch {
	case err != nil:
	case p.Habit.ChangesValues():
		return mapValues(x, p.Habit.ToGGUF)
	case p.Habit.Permutes():
		rows := x.Shape[0]
		size, data := len(x.Data)/rows, make([]byte, 0, len(x.Data))
		for r := range rows {
			at := p.Habit.HFRow(r, rows) * size
			data = append(data, x.Data[at:at+size]...)
		}
		x.Data = data
	}
	return x, err
}

// PartsGGUF returns the tensors of llama.cpp's file of a tower that hold a folder's tensor w.
func (t *Tower) PartsGGUF(w *graph.Weight) ([]FilePart, error) {
	p, x := &t.Kind.Projector, w.Tensor
	name := w.GGUF
	if layer, rest, ok := strings.Cut(strings.TrimPrefix(name, "v.deepstack."), "."); ok &&
		strings.HasPrefix(name, "v.deepstack.") {
		for i, at := range t.Values.List("deepstack_visual_indexes") {
			if layer == fmt.Sprint(i) {
				name = fmt.Sprintf("v.deepstack.%v.%s", at, rest)
			}
		}
	}
	part := FilePart{Tensor: x}
	if name == p.Plus {
		part.Habit.Plus = 1
	}
	if part.Tensor.Name = name + ".weight"; strings.HasSuffix(name, ".bias") || hasEnding(name, t.Kind.Folder.Bare) {
		part.Tensor.Name = name
	}
	if len(x.Shape) == 0 {
		part.Tensor.Shape = tensor.Shape{1}
	}
	switch {
	case name == "v.patch_embd" && p.Times:
		return splitTimes(part)
	case name == "v.patch_embd" && p.Last:
		return t.firstChannels(part)
	case p.Permuted && hasEnding(name, []string{".attn_q", ".attn_k"}):
		part.Habit.Heads = t.Values.Int("num_attention_heads")
	case p.Apart && strings.Contains(name, ".attn_qkv"):
		return splitRows(part)
	}
	return []FilePart{part}, nil
}

// splitTimes returns a tensor for each time of [out, channels, times, height, width].
func splitTimes(p FilePart) ([]FilePart, error) {
	x, err := p.Tensor.Whole()
	if err != nil {
		return nil, err
	}
	if len(x.Shape) != 5 || x.Shape[2] != 2 || x.DType.BlockSize() != 1 {
		return nil, fmt.Errorf("tensor %s: shape %v has no two times", x.Name, []int(x.Shape))
	}
	plane := len(x.Data) / (2 * x.Shape[0] * x.Shape[1])
	parts := []FilePart{p, p}
	for i := range parts {
		y := &parts[i].Tensor
		y.Shape, y.Source, y.Data = slices.Delete(slices.Clone(x.Shape), 2, 3), nil, nil
		for at := i * plane; at < len(x.Data); at += 2 * plane {
			y.Data = append(y.Data, x.Data[at:at+plane]...)
		}
	}
	parts[1].Tensor.Name += ".1"
	return parts, nil
}

// firstChannels turns [out, height·width·channels] into [out, channels, height, width].
func (t *Tower) firstChannels(p FilePart) ([]FilePart, error) {
	x, err := p.Tensor.Whole()
	if err != nil {
		return nil, err
	}
	side := t.Values.Int("patch_size")
	if len(x.Shape) != 2 || side < 1 || x.Shape[1] != 3*side*side || x.DType.BlockSize() != 1 {
		return nil, fmt.Errorf("tensor %s: shape %v has no patches of %d x %d pixels", x.Name, []int(x.Shape), side,
			side)
	}
	size, data := len(x.Data)/x.Shape.Size(), make([]byte, len(x.Data))
	for i := range x.Shape.Size() {
		out, at, c := i/x.Shape[1], i%x.Shape[1]/3, i%3
		copy(data[(out*x.Shape[1]+c*side*side+at)*size:], x.Data[i*size:(i+1)*size])
	}
	y := &p.Tensor
	y.Shape, y.Source, y.Data = tensor.Shape{x.Shape[0], 3, side, side}, nil, data
	return []FilePart{p}, nil
}

// splitRows returns the rows of queries, keys and values.
func splitRows(p FilePart) (parts []FilePart, err error) {
	x, err := p.Tensor.Whole()
	if err != nil {
		return nil, err
	}
	if len(x.Shape) == 0 || x.Shape[0]%3 != 0 {
		return nil, fmt.Errorf("tensor %s: shape %v has no rows of queries, keys and values", x.Name, []int(x.Shape))
	}
	for i, role := range []string{"attn_q", "attn_k", "attn_v"} {
		y, size := p, len(x.Data)/3
		y.Tensor.Name = strings.Replace(x.Name, "attn_qkv", role, 1)
		y.Tensor.Shape, y.Tensor.Source, y.Tensor.Data = slices.Clone(x.Shape), nil, x.Data[i*size:(i+1)*size]
		y.Tensor.Shape[0] /= 3
		parts = append(parts, y)
	}
	return parts, nil
}

// form returns the type of model that a tower makes with a text of an architecture.
func (t *Tower) form(arch string) (*family.Composite, error) {
	for i, f := range t.Kind.Folder.Forms {
		if f.Arch == arch {
			return &t.Kind.Folder.Forms[i], nil
		}
	}
	return nil, fmt.Errorf("%s: a part for pictures of type %s beside a text of architecture %s is in no folder",
		t.Path, t.Kind.Name, arch)
}

// configHF returns the config.json of a model with the tower, given its text's model and config.json. id finds a token.
func (t *Tower) configHF(of *settings.Model, text map[string]any, id func(token string) (int, bool)) (
	map[string]any, error) {
	form, err := t.form(of.Arch)
	if err != nil {
		return nil, err
	}
	if form.Text != "" {
		text["model_type"] = form.Text
		if _, ok := text["sliding_window"]; !ok { // the type's default may be a window
			text["sliding_window"] = nil
		}
	}
	if sections := of.Values["mrope_section"]; form.Rope != nil && sections != nil {
		rope := maps.Clone(form.Rope)
		rope["mrope_section"] = sections
		text["rope_scaling"] = rope
	}
	f := &t.Kind.Folder
	config := map[string]any{"model_type": form.Type, "architectures": []string{form.Class}, "text_config": text,
		"dtype": text["dtype"], "torch_dtype": text["torch_dtype"], "tie_word_embeddings": text["tie_word_embeddings"]}
	delete(text, "architectures")
	for key, token := range f.Tokens {
		if n, ok := id(token); ok {
			config[key] = n
		}
	}
	vision := map[string]any{}
	if f.Vision != "" {
		vision["model_type"] = f.Vision
	}
	if theta := t.Values["rope_theta"]; theta != nil {
		vision["rope_parameters"] = map[string]any{"rope_type": "axial", "rope_theta": theta}
	}
	put := func(to map[string]any, key, name string) {
		if v := t.Values[key]; v != nil {
			to[name] = v
		}
	}
	for _, key := range f.Settings {
		name := f.Inner[key]
		if name == "" {
			name = key
		}
		put(vision, key, name)
	}
	for key, name := range f.Outer {
		put(config, key, name)
	}
	config["vision_config"] = vision
	return config, t.findLost(config)
}

// findLost returns an error for a config.json of another tower than t.
func (t *Tower) findLost(config map[string]any) error {
	b, err := hf.Marshal(config)
	if err != nil {
		return err
	}
	back, err := ConfiguredTower(b)
	if err != nil || back == nil {
		return fmt.Errorf("%s: no config.json describes the part for pictures: %w", t.Path, err)
	}
	lost, err := t.differences(t.Values, back.Values)
	for _, e := range lost {
		err = errors.Join(err, fmt.Errorf("%s: the setting %s = %s would be lost: config.json has no key for it",
			t.Path, e.Key, e.Value))
	}
	return err
}

// FolderName returns the name in a folder of a tensor of the whole model, given the newest layout's.
func (t *Tower) FolderName(name string) string {
	for _, p := range t.Kind.Folder.Prefixes {
		if rest, ok := strings.CutPrefix(name, p[0]); ok {
			return p[1] + rest
		}
	}
	return name
}

// FolderTensor returns a tensor of the tower with its shape and its name in a folder.
func (t *Tower) FolderTensor(w *graph.Weight) tensor.Tensor {
	x, name := w.Tensor, t.FolderName(w.HF)
	if x.Name = name + ".weight"; strings.HasSuffix(name, ".bias") || hasEnding(name, t.Kind.Folder.Bare) {
		x.Name = name
	}
	if hasEnding(name, []string{"put_min", "put_max"}) {
		x.Shape = tensor.Shape{}
	}
	return x
}

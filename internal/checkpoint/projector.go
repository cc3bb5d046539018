package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// projectorKeys are the settings of towers by their keys behind clip.vision.
var projectorKeys = map[string]string{
	"embedding_length": "hidden_size", "feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers",
	"attention.head_count": "num_attention_heads", "attention.layer_norm_epsilon": "layer_norm_eps",
	"patch_size": "patch_size", "image_size": "image_size", "projection_dim": "out_hidden_size",
	"spatial_merge_size": "spatial_merge_size", "projector.scale_factor": "spatial_merge_size",
	"image_mean": "image_mean", "image_std": "image_std", "image_min_pixels": "min_pixels",
	"image_max_pixels": "max_pixels",
}

// projectorActivations are the activations of towers by the keys that are true for them.
var projectorActivations = map[string]string{"clip.use_gelu": "gelu_pytorch_tanh", "clip.use_silu": "silu"}

// FindProjectors returns the files of towers beside a GGUF file, the likeliest first: mmproj- with the model's name,
// then by the parts of the name that begin like the model's, then by types with fewer roundings.
func FindProjectors(model string) (paths []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(model))
	if err != nil {
		return nil, patherr.Plain(err)
	}
	for _, e := range entries {
		name := strings.ToLower(e.Name())
		if strings.Contains(name, "mmproj") && strings.HasSuffix(name, ".gguf") && e.Type().IsRegular() {
			paths = append(paths, filepath.Join(filepath.Dir(model), e.Name()))
		}
	}
	slices.SortStableFunc(paths, func(a, b string) int {
		return cmp.Or(alike(b, model)-alike(a, model), roundings(a)-roundings(b))
	})
	return paths, nil
}

// alike returns the bytes at the beginning that the name of a tower's file has in common with its model's, in whole
// parts.
func alike(path, model string) int {
	a := strings.Replace(strings.ToLower(filepath.Base(path)), "mmproj-", "", 1)
	b := strings.ToLower(filepath.Base(model))
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	if a == b {
		return n
	}
	return strings.LastIndexAny(a[:n], "-.") + 1
}

// roundings returns the place of a file among types of numbers, by the file's name.
func roundings(path string) int {
	name := strings.ToLower(filepath.Base(path))
	types := []string{"f32", "bf16", "f16", ""}
	return slices.IndexFunc(types, func(t string) bool { return strings.Contains(name, t) })
}

// OpenProjector opens llama.cpp's file of a tower, of the type mmproj. Its tensors are valid until it is closed.
func OpenProjector(path string) (*Tower, io.Closer, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, nil, err
	}
	t, err := projector(path, f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return t, f, nil
}

// FitProjector opens a file as the tower of c, a GGUF file of a model. An error closes c. For "" it opens the
// first fitting file beside the model, if any; without one, a file that cannot be read is a note.
func FitProjector(c *Checkpoint, path string) error {
	if path == "" {
		if c.Format != GGUF {
			return nil
		}
		paths, first := FindProjectors(c.Path)
		for _, path := range paths {
			err := addProjector(c, path)
			if err == nil {
				name := filepath.Base(path)
				if len(paths) > 1 && name != "mmproj-"+filepath.Base(c.Path) {
					c.Notes = append(c.Notes, fmt.Sprintf("pictures are read with %s, of %d files for it beside the "+
						"model: --mmproj chooses", name, len(paths)))
				}
				return nil
			}
			if first == nil && !errors.Is(err, errUnfit) {
				first = err
			}
		}
		if first != nil {
			c.Notes = append(c.Notes, fmt.Sprintf("pictures are not read: %v", first))
		}
		return nil
	}
	var err error
	if c.Format != GGUF {
		err = fmt.Errorf("%s: a folder has its own part for pictures, and needs no file for it", c.Path)
	} else {
		err = addProjector(c, path)
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	return nil
}

// errUnfit is the error of a tower made for another model.
var errUnfit = errors.New("it was made for another model")

// addProjector opens the file of a tower as the tower of c, which closes it.
func addProjector(c *Checkpoint, path string) error {
	t, f, err := OpenProjector(path)
	if err != nil {
		return err
	}
	if size := c.Values.Int("hidden_size"); t.Values.Int("out_hidden_size") != size {
		err := fmt.Errorf("%s: its rows have %d numbers, and the model's have %d: %w", path,
			t.Values.Int("out_hidden_size"), size, errUnfit)
		return errors.Join(err, f.Close())
	}
	if _, err := t.form(c.Arch); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", err, errUnfit), f.Close())
	}
	if t.Values["text_rms_norm_eps"] != nil { // the text's file knows
		t.Values["text_rms_norm_eps"] = c.Values["rms_norm_eps"]
	}
	c.Tower, c.close = t, append(c.close, f)
	return nil
}

// projector returns the tower of an open file.
func projector(path string, f *gguf.File) (t *Tower, err error) {
	kind, err := f.Metadata.String("general.architecture")
	if err != nil || kind != "clip" {
		return nil, fmt.Errorf("%s: its architecture is %q, and clip in files of the part for pictures", path, kind)
	}
	name, err := f.Metadata.String("clip.vision.projector_type")
	if err != nil { // in files without sound
		name, err = f.Metadata.String("clip.projector_type")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	tower := registry.ProjectorOf(name)
	if tower == nil {
		return nil, fmt.Errorf("%s: projector %q %w", path, name, ErrUnsupported)
	}
	m := settings.New(path)
	m.Arch = tower.Name
	err = mmap.Guard(func() error {
		t = newTower(tower, m, GGUF)
		if err := t.readKeys(f.Metadata); err != nil {
			return err
		}
		if err := t.readTensors(f.Tensors()); err != nil {
			return err
		}
		if err := t.complete(t.shape); err != nil {
			return err
		}
		return t.finish()
	})
	return t, err
}

// complete adds the settings that follow from others and from the shapes of tensors, and checks all.
func (t *Tower) complete(shape func(tensor string) []int) error {
	if read := t.Kind.Projector.Read; read != nil {
		read(t.Values, shape)
	}
	return hf.CheckTower(t.Kind, t.Model)
}

// readKeys sets the settings.
func (t *Tower) readKeys(m gguf.Metadata) error {
	for _, key := range m.Keys() {
		name, ok := strings.CutPrefix(key, "clip.vision.")
		setting := projectorKeys[name]
		if own := t.Kind.Projector.Keys[name]; own != "" {
			setting = own
		}
		v, _ := m.Lookup(key)
		switch {
		case key == processorKey:
			text, err := m.String(key)
			if err != nil {
				return fmt.Errorf("%s: %w", t.Path, err)
			}
			t.Processor = []byte(text)
		case projectorActivations[key] != "":
			if on, err := m.Bool(key); err != nil {
				return fmt.Errorf("%s: %w", t.Path, err)
			} else if on {
				t.Values["hidden_act"] = projectorActivations[key]
			}
		case !ok || setting == "":
		case v.Len() > maxProjectorList:
			return fmt.Errorf("%s: %s has %d elements, the limit is %d", t.Path, key, v.Len(), maxProjectorList)
		default:
			x, err := v.Any()
			if err != nil {
				return fmt.Errorf("%s: %s: %w", t.Path, key, err)
			}
			b, err := json.Marshal(x) // numbers and lists as config.json has them
			if err == nil {
				err = json.Unmarshal(b, &x)
			}
			if err != nil {
				return fmt.Errorf("%s: %s: %w", t.Path, key, err)
			}
			t.Spelling[setting] = key
			t.Values[setting] = x
		}
	}
	return nil
}

// maxProjectorList bounds the lists of a tower's settings.
const maxProjectorList = 1 << 10

// secondTime is the end of the tensor of the second of two equal times.
const secondTime = ".weight.1"

// readTensors takes the tensors of the part for pictures. Sound is left out.
func (t *Tower) readTensors(all []tensor.Tensor) error {
	for _, x := range all {
		if strings.HasPrefix(x.Name, "a.") || strings.HasPrefix(x.Name, "mm.a.") {
			continue
		}
		if err := t.add(x.Name, x); err != nil {
			return err
		}
	}
	return nil
}

// shape returns the shape of a tensor, nil if absent.
func (t *Tower) shape(name string) []int {
	x, ok := t.set.ByName[name]
	if !ok {
		return nil
	}
	return x.Shape
}

// finish undoes the converter's changes, and makes the processor's settings.
func (t *Tower) finish() error {
	p := &t.Kind.Projector
	if p.Times {
		if err := t.joinTimes("v.patch_embd", "v.patch_embd"+secondTime); err != nil {
			return err
		}
	}
	if p.Last {
		if err := t.change("v.patch_embd", channelsLast); err != nil {
			return err
		}
	}
	if p.Plus != "" {
		if err := t.change(p.Plus, func(x tensor.Tensor) (tensor.Tensor, error) {
			return mapValues(x, Habit{Plus: 1}.FromGGUF)
		}); err != nil {
			return err
		}
	}
	if p.Half != "" { // turned for the product, as no type of blocks can be
		if err := t.change(p.Half, func(x tensor.Tensor) (tensor.Tensor, error) {
			if !x.DType.Quantized() {
				return x, nil
			}
			return mapValues(x, Habit{}.FromGGUF)
		}); err != nil {
			return err
		}
	}
	for i := range t.Values.Int("num_hidden_layers") {
		layer := fmt.Sprintf("v.blk.%d.", i)
		if p.Permuted {
			h := Habit{Heads: t.Values.Int("num_attention_heads")}
			for _, name := range []string{"attn_q", "attn_k"} {
				if err := t.change(layer+name, func(x tensor.Tensor) (tensor.Tensor, error) {
					if len(x.Shape) != 2 || x.Shape[0]%(2*h.Heads) != 0 {
						return x, fmt.Errorf("shape %v for %d heads", []int(x.Shape), h.Heads)
					}
					return unpermute(x, h.GGUFRow), nil
				}); err != nil {
					return err
				}
			}
		}
		if p.Apart {
			for _, end := range []string{"", ".bias"} {
				if err := t.stackRows(layer+"attn_qkv"+end, layer+"attn_q"+end, layer+"attn_k"+end,
					layer+"attn_v"+end); err != nil {
					return err
				}
			}
		}
	}
	if err := t.numberDeep(); err != nil {
		return err
	}
	config := p.Processor(t.Values)
	for _, key := range []string{"image_mean", "image_std", "min_pixels", "max_pixels"} {
		if v := t.Values.Take(key); v != nil {
			config[key] = v
		}
	}
	if t.Processor != nil { // the file has it
		return nil
	}
	var err error
	t.Processor, err = json.Marshal(config)
	return err
}

// change replaces a tensor; an absent tensor is bind's to report.
func (t *Tower) change(name string, f func(tensor.Tensor) (tensor.Tensor, error)) error {
	x, ok := t.set.ByName[name]
	if !ok {
		return nil
	}
	x, err := x.Whole()
	if err == nil {
		x, err = f(x)
	}
	if err != nil {
		return fmt.Errorf("%s: tensor %s: %w", t.Path, name, err)
	}
	t.set.ByName[name] = x
	return nil
}

// take removes a tensor and returns it.
func (t *Tower) take(name string) (x tensor.Tensor, ok bool) {
	if x, ok = t.set.ByName[name]; ok {
		delete(t.set.ByName, name)
		t.set.Names = slices.DeleteFunc(t.set.Names, func(s string) bool { return s == name })
	}
	return x, ok
}

// joinTimes makes a weight [out, channels, times, height, width] of one for each time, [out, channels, height, width].
func (t *Tower) joinTimes(first, second string) error {
	b, ok := t.take(second)
	if !ok {
		return nil
	}
	return t.change(first, func(a tensor.Tensor) (tensor.Tensor, error) {
		if len(a.Shape) != 4 || !slices.Equal(a.Shape, b.Shape) || a.DType != b.DType || a.DType.BlockSize() != 1 {
			return a, fmt.Errorf("shapes %v and %v of two times, or other types", []int(a.Shape), []int(b.Shape))
		}
		plane := len(a.Data) / (a.Shape[0] * a.Shape[1])
		data := make([]byte, 0, 2*len(a.Data))
		for i := 0; i < len(a.Data); i += plane {
			data = append(append(data, a.Data[i:i+plane]...), b.Data[i:i+plane]...)
		}
		a.Data = data
		a.Shape = tensor.Shape{a.Shape[0], a.Shape[1], 2, a.Shape[2], a.Shape[3]}
		return a, nil
	})
}

// channelsLast turns a weight [out, channels, height, width] into [out, height·width·channels].
func channelsLast(x tensor.Tensor) (tensor.Tensor, error) {
	if len(x.Shape) != 4 || x.DType.BlockSize() != 1 {
		return x, fmt.Errorf("shape %v, type %v: want four dimensions of single numbers", []int(x.Shape), x.DType)
	}
	size := len(x.Data) / x.Shape.Size()
	channels, places := x.Shape[1], x.Shape[2]*x.Shape[3]
	data := make([]byte, len(x.Data))
	for i := range x.Shape.Size() {
		out, c, at := i/(channels*places), i/places%channels, i%places
		copy(data[(out*channels*places+at*channels+c)*size:][:size], x.Data[i*size:])
	}
	x.Data, x.Shape = data, tensor.Shape{x.Shape[0], channels * places}
	return x, nil
}

// stackRows makes a tensor of the rows of others, in order.
func (t *Tower) stackRows(name string, parts ...string) error {
	var all tensor.Tensor
	for i, part := range parts {
		x, ok := t.take(part)
		switch {
		case !ok && i == 0:
			return nil
		case !ok:
			return fmt.Errorf("%s: tensor %s: missing beside %s", t.Path, part, parts[0])
		case i == 0:
			all = x
			all.Name, all.Shape, all.Data = name, slices.Clone(x.Shape), slices.Clone(x.Data)
		case x.DType != all.DType || !slices.Equal(x.Shape[1:], all.Shape[1:]):
			return fmt.Errorf("%s: tensor %s: another type or shape than %s", t.Path, part, parts[0])
		default:
			all.Shape[0] += x.Shape[0]
			all.Data = append(all.Data, x.Data...)
		}
	}
	return t.add(name, all)
}

// numberDeep numbers the mergers behind layers, which files name by their layers, in order.
func (t *Tower) numberDeep() error {
	layers, _ := t.Values["deepstack_visual_indexes"].([]any)
	for i, layer := range layers {
		from, to := fmt.Sprintf("v.deepstack.%v.", layer), fmt.Sprintf("v.deepstack.%d.", i)
		for _, name := range slices.Clone(t.set.Names) {
			rest, ok := strings.CutPrefix(name, from)
			if !ok || from == to {
				continue
			}
			x, _ := t.take(name)
			if err := t.add(to+rest, x); err != nil {
				return err
			}
		}
	}
	return nil
}

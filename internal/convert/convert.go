// Package convert converts the files of a model: a Hugging Face folder to GGUF, GGUF to a folder, and GGUF to GGUF of
// another type or in other parts. Tensors are written in sequence, in pieces made by all cores, so that memory does not
// grow with the model. The output appears when it is complete.
//
// Package checkpoint holds the changes to tensors and settings, and the tags of the architectures hold the names of
// tensors. A tensor or a setting without a place in the other format is an error.
//
// Files in reading order: convert.go, gguf.go, quantize.go, repair.go, edit.go, tohf.go, togguf.go, tower.go,
// stream.go, types.go, job.go, loss.go.
package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/patherr"
)

// Options describe the output. The zero value keeps the types of the tensors.
type Options struct {
	// Type is the type of the weights: a name of package mix, into a folder the name of a float type. "" stands, from a
	// folder, for the type of most of its weights, from GGUF into GGUF for the type of each tensor, and into a folder
	// for F32 if the file is quantized.
	Type string
	// Split is the maximum of bytes of tensors in a file; 0 puts all in the same file. A larger tensor has a separate
	// file. Files have the names NAME-00001-of-00003.gguf, in a folder model-00001-of-00003.safetensors.
	Split int64
	// Projector is the GGUF file of the part for pictures of a GGUF model on its way to a folder; "" is a fitting one
	// beside the model, if any.
	Projector string
	// Ignore lists settings, in the source's spelling, that may be lost though no rule converts them.
	Ignore []string
	// Progress is called with the bytes of tensors written so far, and in all.
	Progress func(done, total int64)
}

// Result describes the files made.
type Result struct {
	Format       string
	Architecture string
	Files        []string // files with tensors
	Tensors      int
	Bytes        int64          // of tensors
	Types        map[string]int // how many tensors there are of each type
	Notes        []string       // settings lost, and tensors set aside
}

// Check reports faults of o and dst without opening the model.
func Check(dst string, o Options) error {
	if _, err := parseType(o.Type, dst); err != nil {
		return err
	}
	if o.Split < 0 {
		return fmt.Errorf("parts of %d bytes", o.Split)
	}
	if isGGUF(dst) {
		if o.Split == 0 && gguf.IsPart(dst) {
			return fmt.Errorf("%s: that is the name of a part of a split model; without a size to split at, the "+
				"result is one file", dst)
		}
		if o.Split > 0 {
			dst = gguf.PartPath(dst, 1, 1) // other parts may lie beside the file
		}
		return atomicfile.Check(dst)
	}
	return atomicfile.CheckFolder(dst)
}

// Convert makes dst, a GGUF file if its name ends in .gguf and else a folder, of the model at src. After an error,
// including ctx's, nothing new is left at dst.
func Convert(ctx context.Context, src, dst string, o Options) (*Result, error) {
	if err := Check(dst, o); err != nil {
		return nil, err
	}
	c := &converter{Options: o, src: src, dst: dst, progress: o.Progress}
	c.to, _ = parseType(o.Type, dst) // checked
	st, err := os.Stat(src)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	switch from, to := !st.IsDir(), isGGUF(dst); {
	case o.Projector != "" && (!from || to):
		return nil, fmt.Errorf("%s: a part for pictures is joined to a GGUF model on its way to a folder", o.Projector)
	case from && to && len(o.Ignore) > 0:
		return nil,
			fmt.Errorf("%s: from GGUF to GGUF all settings are copied: there is no %s to ignore", src, o.Ignore[0])
	case from && to:
		err = c.ggufToGGUF(ctx)
	case from:
		err = c.convertModel(ctx, c.ggufToHF)
	case to:
		err = c.convertModel(ctx, c.hfToGGUF)
	default:
		return nil, fmt.Errorf("%s: from one Hugging Face folder to another there is nothing to convert; a GGUF "+
			"file's name ends in .gguf", dst)
	}
	if err != nil {
		return nil, err
	}
	return &c.result, nil
}

// convertModel opens the source as a model and calls convert.
func (c *converter) convertModel(ctx context.Context,
	convert func(context.Context, *checkpoint.Checkpoint, []*graph.Weight) error) error {
	m, err := checkpoint.Open(c.src)
	if err != nil {
		return err
	}
	if err := checkpoint.FitProjector(m, c.Projector); err != nil {
		return err
	}
	defer m.Close()
	c.readTower(m)
	weights, err := c.weights(m)
	if err != nil {
		return err
	}
	return convert(ctx, m, weights)
}

// weights returns the model's tensors. A setting that is not read would be lost, and is an error.
func (c *converter) weights(m *checkpoint.Checkpoint) ([]*graph.Weight, error) {
	weights, notes, err := arch.Weights(m)
	if err != nil {
		return nil, err
	}
	c.result.Notes = slices.Concat(m.Notes, notes, c.tower.notes)
	var errs []error
	ignored := map[string]bool{}
	for _, e := range append(arch.Unread(m), c.tower.lost...) {
		switch {
		case m.Idle(e.Key):
		case slices.Contains(c.Ignore, e.Key):
			ignored[e.Key] = true
			c.result.Notes = append(c.result.Notes, fmt.Sprintf("the setting %s = %s is ignored", e.Key, e.Value))
		default:
			errs = append(errs, fmt.Errorf("%s: the setting %s = %s would be lost: Karat does not convert it; if "+
				"the model computes the same without it, --ignore %s leaves it out", c.src, e.Key, e.Value, e.Key))
		}
	}
	for _, key := range c.Ignore {
		if !ignored[key] {
			errs = append(errs, fmt.Errorf("%s: there is no setting %s to ignore", c.src, key))
		}
	}
	c.result.Architecture = m.Arch
	return weights, errors.Join(errs...)
}

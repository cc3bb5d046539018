package parity

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/tensor"
)

// seen is what the dump shows of a set of faults: one behind which another multiplies by
// zeros is not in it, nor is a layer where that is so. Without it the engine computes the
// same numbers.
func (c *example) seen(ctx context.Context, injected []mistake.Injected) ([]mistake.Injected, error) {
	all, err := c.outputs(ctx, c.faults)
	if err != nil {
		return nil, err
	}
	var shown []mistake.Injected
	for _, in := range injected {
		at := slices.IndexFunc(c.faults, func(f mistake.Fault) bool { return f.String() == in.Fault })
		if len(in.Layers) == 0 || at < 0 {
			shown = append(shown, in)
			continue
		}
		var layers []int
		for _, l := range in.Layers {
			others := slices.Clone(c.faults)
			others[at].Layers = without(in.Layers, l)
			if others[at].Layers == "" {
				others = slices.Delete(others, at, at+1)
			}
			if less, err := c.outputs(ctx, others); err != nil || !slices.EqualFunc(all, less, equal) {
				layers = append(layers, l) // shown, or not to be had without it
			}
		}
		if in.Layers = layers; len(layers) > 0 {
			shown = append(shown, in)
		}
	}
	return shown, ctx.Err()
}

// shown reports whether a dump of the engine differs from one of the right engine by more than the rounding of float32,
// in which it is written: by a unit in the last place at each of two operations, anywhere.
func (c *example) shown(ctx context.Context) (bool, error) {
	if len(c.faults) == 0 {
		return true, nil
	}
	wrong, err := c.outputs(ctx, c.faults)
	if err != nil {
		return true, nil // a fault of the input or the probe: no engine has it
	}
	right, err := c.outputs(ctx, nil)
	if err != nil {
		return false, err
	}
	for i, p := range right {
		q := wrong[i]
		if differs(p.Logits, q.Logits) {
			return true, nil
		}
		for name, t := range p.Taps {
			if u := q.Taps[name]; u == nil || differs(t, u) {
				return true, nil
			}
		}
	}
	return false, nil
}

// differs reports whether a row of y lies farther from x's than rounding takes it.
func differs(x, y *tensor.Tensor) bool {
	if len(x.Data) != len(y.Data) {
		return true
	}
	width := 4 * x.Shape.Last()
	for at := 0; at+width <= len(x.Data); at += width {
		var off, size float64
		for i := at; i < at+width; i += 4 {
			a := float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:])))
			b := float64(math.Float32frombits(binary.LittleEndian.Uint32(y.Data[i:])))
			off, size = off+(a-b)*(a-b), size+a*a
		}
		if !(off <= 0x1p-44*size) {
			return true
		}
	}
	return false
}

// without is a fault's layers but for one.
func without(layers []int, l int) string {
	var list []string
	for _, x := range layers {
		if x != l {
			list = append(list, strconv.Itoa(x))
		}
	}
	return strings.Join(list, ",")
}

// outputs are the prompts as the engine with some faults computes them.
func (c *example) outputs(ctx context.Context, faults []mistake.Fault) ([]*lab.Prompt, error) {
	prompts, err := c.model.prompts(c.seed, c.longest)
	if err != nil {
		return nil, err
	}
	engine, input, probe, looks := mistake.Split(faults)
	if len(input)+len(probe) > 0 {
		return nil, errors.New("no engine has the fault")
	}
	g, edits, _, err := mistake.Inject(c.model.Graph, engine)
	if err == nil && c.model.Eye != nil {
		_, err = c.look(ctx, prompts, looks)
	}
	if err != nil {
		return nil, err
	}
	return prompts, c.record(ctx, g, edits, prompts)
}

// equal reports whether two dumps of a prompt have the same numbers.
func equal(a, b *lab.Prompt) bool {
	return same(a.Logits, b.Logits) && maps.EqualFunc(a.Taps, b.Taps, same)
}

// same reports whether two float32 tensors have the same numbers: 0 is -0.
func same(x, y *tensor.Tensor) bool {
	if len(x.Data) != len(y.Data) {
		return false
	}
	for i := 0; i < len(x.Data); i += 4 {
		a, b := binary.LittleEndian.Uint32(x.Data[i:]), binary.LittleEndian.Uint32(y.Data[i:])
		if a != b && (a|b)<<1 != 0 {
			return false
		}
	}
	return true
}

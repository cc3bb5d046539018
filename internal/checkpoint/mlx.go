package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/tensor"
)

// ofMLX replaces MLX's modules of experts.
var ofMLX = strings.NewReplacer(".switch_mlp.", ".experts.", ".switch_glu.", ".")

// renameParts gives a folder's tensors the model's names in place of synonyms.
func renameParts(c *weights) error {
	for i, name := range c.set.Names {
		for end, own := range c.Family.Synonyms {
			stem, ok := strings.CutSuffix(name, end)
			if !ok {
				continue
			}
			t := c.set.ByName[name]
			if _, twice := c.set.ByName[stem+own]; twice {
				return fmt.Errorf("%s: tensor %s: it is there as %s%s, too", c.Path, t.Name, stem, own)
			}
			delete(c.set.ByName, name)
			c.set.Names[i], c.set.ByName[stem+own] = stem+own, t
			break
		}
	}
	return nil
}

// readMLX undoes the changes of MLX's converter to values. Its convolutions, [channels, kernel, 1], tell of them
// (sanitize in mlx_lm's models/qwen3_5.py and models/falcon_h1.py).
func readMLX(c *weights) error {
	converted := false
	for _, name := range c.set.Names {
		t := c.set.ByName[name]
		if s := t.Shape; len(s) == 3 && s[1] > 1 && s[2] == 1 && hasEnding(name, []string{"conv1d", ".conv.conv"}) {
			t.Shape, converted = tensor.Shape{s[0], 1, s[1]}, true
			c.set.ByName[name] = t
		}
	}
	folds := slices.ContainsFunc(c.Family.Habits, func(h family.Habit) bool { return h.Times != nil })
	if converted && folds && c.Values["multipliers_folded"] != true {
		return errors.New(c.Path + ": MLX's converter multiplied weights by config.json's multipliers, except " +
			"key_multiplier, and its own logits are others: take the publisher's folder")
	}
	for _, name := range c.set.Names {
		if t := c.set.ByName[name]; converted && hasEnding(name, c.Family.Shifted) && len(t.Shape) == 1 {
			t, err := mapValues(t, func(x float32) float32 { return x - 1 })
			if err != nil {
				return err
			}
			c.set.ByName[name] = t
		}
	}
	return nil
}

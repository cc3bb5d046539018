package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// runTower checks llama.cpp's file of a part for pictures, which has no text.
func (c *checker) runTower(path string) error {
	c.arch = c.files.arch
	c.report.Architecture = c.files.arch
	t, f, err := checkpoint.OpenProjector(path)
	if err == nil {
		defer f.Close()
		_, err = arch.TowerWeights(t)
	}
	judgeRefusal(c, err)
	if err := c.scan(); err != nil {
		return err
	}
	judgeValues(c)
	judgeSiblings(c)
	c.listUnproven()
	if c.Against == "" {
		return nil
	}
	source, err := checkpoint.Open(c.Against)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	defer source.Close()
	if source.Tower == nil {
		return fmt.Errorf("the source: %s has no part for pictures", c.Against)
	}
	return compareTowerFile(c, source.Tower)
}

// judgeTower judges the part for pictures of a folder, as the loader does.
func judgeTower(c *checker) {
	if c.model == nil || c.model.Tower == nil || len(c.model.Tower.Names()) == 0 {
		return
	}
	_, err := arch.TowerWeights(c.model.Tower)
	judgeRefusal(c, err)
}

// compareTowerFile compares llama.cpp's file of a part for pictures with the file that its source makes.
func compareTowerFile(c *checker, source *checkpoint.Tower) error {
	weights, err := arch.TowerWeights(source)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	shapes := map[string]tensor.Shape{}
	var pairs []pair
	for _, w := range weights {
		err := mmap.Guard(func() error {
			parts, err := source.PartsGGUF(w)
			for _, p := range parts {
				shapes[p.Name()] = p.Tensor.Shape
				theirs, e := p.Whole()
				err = errors.Join(err, e)
				at := slices.IndexFunc(c.files.tensors, func(t tensor.Tensor) bool { return t.Name == theirs.Name })
				if at >= 0 {
					pairs = append(pairs,
						pair{hf: theirs.Name, source: theirs, model: c.files.tensors[at], plain: true})
				} else if !c.hasFinding("tensor-missing") {
					c.add("source-missing", []string{theirs.Name}, "the source's %s is not in the model", theirs.Name)
				}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("the source: %w", err)
		}
	}
	keys, _, _, err := source.KeysGGUF(shapes)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	if err := comparePairs(c, pairs); err != nil {
		return err
	}
	return compareKeys(c, keys)
}

// compareKeys compares keys with the source's.
func compareKeys(c *checker, keys []gguf.KeyValue) error {
	source, err := gguf.MetadataOf(keys)
	if err != nil {
		return err
	}
	for _, key := range source.Keys() {
		v, _ := source.Lookup(key)
		want, err := v.Any()
		if err != nil {
			return err
		}
		var got any = "missing"
		if v, ok := c.files.gguf.Metadata.Lookup(key); ok {
			if got, err = v.Any(); err != nil {
				got = err
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			c.addAs(Error, "source-settings", []string{key}, "%s is %v, in the source %v", key, got, want)
		}
	}
	return nil
}

// compareTowers compares the parts for pictures of two folders.
func compareTowers(c *checker) error {
	a, b := c.model.Tower, c.source.Tower
	if a == nil || b == nil || a.Format != b.Format || a.Kind != b.Kind {
		return nil
	}
	weights, err := arch.TowerWeights(b)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	var pairs []pair
	for _, w := range weights {
		if x, ok := a.Tensor(w.GGUF, w.HF); ok {
			pairs = append(pairs, pair{hf: w.HF, source: w.Tensor, model: x, plain: true})
		}
	}
	return comparePairs(c, pairs)
}

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tokenizer"
	"github.com/karat-run/karat/internal/vision"
)

// look computes the pictures of prompts, and their ids with the pictures' marks.
func (f *recordFlags) look(x *call, m *model.Files, prompts []*lab.Prompt) error {
	var e *lab.Eye
	for _, p := range prompts {
		if len(p.Pictures) == 0 {
			continue
		}
		for i := range p.Pictures {
			if err := p.Pictures[i].Move(filepath.Dir(f.prompts), filepath.Dir(f.out)); err != nil {
				return err
			}
		}
		if e == nil {
			if m.Checkpoint.Tower == nil {
				return fmt.Errorf("prompt %d: %w; --mmproj names the file for pictures of a GGUF model", p.Index,
					karat.ErrBlind)
			}
			n, err := f.engine.numerics()
			if err != nil {
				return err
			}
			b, _, err := f.backend(n)
			if err != nil {
				return err
			}
			defer b.Close()
			if e, err = lab.OpenEye(m.Checkpoint, m.Tokenizer, b, filepath.Dir(f.out)); err != nil {
				return err
			}
			if e, err = f.injected.eye(m.Checkpoint, b, e); err != nil {
				return err
			}
			defer e.Close()
		}
		var encode func(string) ([]int32, error)
		if p.Input.IDs == nil {
			encode = func(text string) ([]int32, error) {
				return idsAs[int32](m.Tokenizer.Encode(text, tokenizer.Options{AddSpecial: p.Input.Text != nil,
					ParseSpecial: true})), nil
			}
		}
		if err := e.Look(x.ctx, p, f.taps.has(p.Index), encode); err != nil {
			return fmt.Errorf("prompt %d: %w", p.Index, err)
		}
	}
	if e == nil && len(f.injected.looks) > 0 {
		return errors.New("--inject: faults of pictures need a prompt with images")
	}
	return nil
}

// eye returns the eye with the faults of preparing pictures and of the tower.
func (j *injection) eye(c *checkpoint.Checkpoint, b backend.Backend, right *lab.Eye) (*lab.Eye, error) {
	e, err := mistake.InjectSight(right.Model, j.looks)
	if err != nil {
		return nil, err
	}
	j.done = append(j.done, e.Done...)
	if r, ok := b.(reference.Backend); ok && e.Edits != nil {
		r.Edits = e.Edits
		b = r
	}
	m, err := vision.Open(c.Tower, b, "")
	if err != nil {
		return nil, err
	}
	return e.Eye(right, m), nil
}

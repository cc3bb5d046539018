package parity

import (
	"bytes"
	"errors"
	"fmt"
	stdimage "image"
	"image/color"
	"image/jpeg"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// pictured lists the faults shown by pictures alone: of preparation, of the place in a prompt, of the tower, and of
// rows in the text.
func (m *Model) pictured() (all []mistake.Fault) {
	if m.Eye == nil {
		return nil
	}
	for _, l := range append(mistake.Looks(m.Eye.Model), mistake.Around()...) {
		words := []string{""}
		for _, v := range slices.Sorted(maps.Keys(l.Detail)) {
			if word, ok := l.Detail[v].(string); ok {
				words = append(words, word)
			}
		}
		for _, word := range words { // the shortest name of the look
			f := mistake.Fault{ID: l.Cause, Value: word}
			e, err := mistake.InjectSight(m.Eye.Model, []mistake.Fault{f})
			if err == nil && e.Looks[0].Computed == l.Computed {
				all = append(all, f)
				break
			}
		}
	}
	for _, f := range m.tower() {
		if !strings.HasPrefix(f.ID, "same_") {
			all = append(all, f)
		}
	}
	return append(all, mistake.Pictured(m.Graph)...)
}

// tower lists the possible faults and equal functions of the tower.
func (m *Model) tower() (all []mistake.Fault) {
	if m.Eye == nil {
		return nil
	}
	for _, f := range mistake.Applicable(m.Eye.Graph) {
		f.Tower = true
		all = append(all, f)
	}
	return all
}

// draw takes faults at random, in a model with eyes some before the text.
func (m *Model) draw(wrong []mistake.Fault, count int, r *rand.Rand) (set []mistake.Fault) {
	if m.Eye == nil {
		return mistake.Draw(m.Graph, wrong, count, r)
	}
	var tower, looks []mistake.Fault
	for _, f := range m.pictured() {
		switch {
		case f.Tower:
			f.Tower = false
			tower = append(tower, f)
		case !slices.ContainsFunc(mistake.Around(), func(l *mistake.Look) bool { return l.Cause == f.ID }) &&
			strings.HasPrefix(f.ID, "image_") || f.ID == "patch_order":
			looks = append(looks, f)
		default:
			wrong = append(wrong, f)
		}
	}
	for _, f := range mistake.Draw(m.Eye.Graph, tower, 1+r.IntN(2), r) {
		f.Tower = true
		set = append(set, f)
	}
	if r.IntN(2) > 0 {
		set = append(set, looks[r.IntN(len(looks))])
	}
	return append(set, mistake.Draw(m.Graph, wrong, max(1, count-len(set)), r)...)
}

// shown are the names of the prompts' pictures, behind the seed.
var shown = [][]string{{"noise.png"}, {"photo.jpg", "glass.png"}}

// seeing returns prompts with a picture, and with a photo and a transparent picture of equal size, for mix-ups. The
// seed decides texts and pictures. The last tokens of the second prompt are decoded singly.
func (m *Model) seeing(seed uint64) ([]*lab.Prompt, error) {
	r := random(seed, m.Name+"prompts")
	text := func(count int) string {
		var ids []int
		for range count {
			ids = append(ids, r.IntN(min(m.Graph.Result().Shape.Size(), 490)))
		}
		return m.Tokenizer.Decode(ids, false)
	}
	kind := m.Eye.Kind
	mark := kind.Around[0] + kind.Image + kind.Around[1]
	var prompts []*lab.Prompt
	for i, pictures := range shown {
		t := text(3)
		p := &lab.Prompt{Index: i, Decode: 2 * i}
		for _, name := range pictures {
			path, err := filepath.Abs(filepath.Join(m.Eye.Folder, fmt.Sprintf("%d-%s", seed, name)))
			if err != nil {
				return nil, err
			}
			p.Pictures = append(p.Pictures, lab.Picture{Path: path})
			t += mark + text(4)
		}
		p.Text = t
		p.Input = lab.Input{Text: &p.Text}
		prompts = append(prompts, p)
	}
	return prompts, nil
}

// Draw writes the pictures of prompts of a seed into a folder.
func Draw(folder string, seed uint64) error {
	var all error
	for _, name := range slices.Concat(shown...) {
		w, h := 90, 50
		if name == "noise.png" {
			w, h = 37, 100
		}
		r := rand.New(rand.NewPCG(seed, uint64(1000*w+len(name))))
		m := stdimage.NewNRGBA(stdimage.Rect(0, 0, w, h))
		fast, slow := 0.3+r.Float64(), 0.02+0.1*r.Float64()
		for y := range h {
			for x := range w {
				wave := func(f float64) byte { return byte(127.5 + 127*math.Sin(f*float64(x)+2*f*float64(y))) }
				c := color.NRGBA{wave(slow), wave(fast), byte(255 * x / w), 255}
				switch {
				case name == "noise.png":
					c = color.NRGBA{byte(r.UintN(256)), byte(r.UintN(256)), byte(r.UintN(256)), 255}
				case name == "glass.png":
					c.A = byte(255 * y / h)
				}
				m.SetNRGBA(x, y, c)
			}
		}
		var b bytes.Buffer
		var err error
		if strings.HasSuffix(name, ".jpg") {
			err = jpeg.Encode(&b, m, &jpeg.Options{Quality: 80})
		} else {
			err = png.Encode(&b, m)
		}
		path := filepath.Join(folder, fmt.Sprintf("%d-%s", seed, name))
		all = errors.Join(all, err, os.WriteFile(path, b.Bytes(), 0o666))
	}
	return all
}

package diagnose

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	stdimage "image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/image/processor"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/vision"
)

// TestPeerMask names llama.cpp's mistakes behind the pixels of Gemma 4 26B's shape (d32676d): the activation of the tower, and
// the mask of full layers. KARAT_PEER also has hook, the program of "karat lab hook --print llama.cpp". The picture has a
// size that no processor changes.
func TestPeerMask(t *testing.T) {
	peer := os.Getenv("KARAT_PEER")
	if peer == "" {
		t.Skip("KARAT_PEER is not set")
	}
	s := openSight(t, "gemma4-moe")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	golden.Tokenizer(t, s.c.Path, map[int]string{514: "<|image_pad|>"}, "")
	picture := stdimage.NewRGBA(stdimage.Rect(0, 0, 384, 384))
	for i, x := 0, uint32(12345); i < len(picture.Pix); i++ {
		x = x*1664525 + 1013904223
		picture.Pix[i] = byte(x>>26) + byte(i/4%384/3)
		if i%4 == 3 {
			picture.Pix[i] = 255
		}
	}
	var b bytes.Buffer
	if err := errors.Join(png.Encode(&b, picture), os.WriteFile(file("p.png"), b.Bytes(), 0o666), os.WriteFile(file("p.txt"),
		[]byte("ids: 52 72 106 154 216 292 512 <image:"+file("p.png")+"> 513 114 134 168 216 278\n"), 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"karat", "convert", s.c.Path, "-o", file("m.gguf")},
		{"hook", file("m.gguf"), file("p.txt"), file("out.safetensors"), "--mmproj", file("mmproj-m.gguf")}} {
		if b, err := exec.Command(filepath.Join(peer, args[0]), args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b[max(0, len(b)-400):])
		}
	}
	dump, err := lab.ReadDump(file("out.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer dump.Close()
	d, err := Run(context.Background(), Options{Model: "gemma4-moe", Graph: s.text, Dump: dump, Eye: s.eye})
	if err != nil {
		t.Fatal(err)
	}
	causes := map[string][]int{}
	for _, f := range d.Findings {
		causes[f.Cause] = f.Layers
		t.Log("   ", f.Cause, f.Op, f.Layers, f.Computed, f.Detail, f.Evidence)
	}
	if !slices.Equal(causes["mask"], []int{2, 5}) || len(causes["activation"]) != 3 {
		t.Errorf("%v", causes)
	}
}

// TestPeer names llama.cpp's mistakes in preparing pictures (d32676d). KARAT_PEER is a folder with the programs karat
// and dump, of testdata/dump.cpp.
func TestPeer(t *testing.T) {
	peer := os.Getenv("KARAT_PEER")
	if peer == "" {
		t.Skip("KARAT_PEER is not set")
	}
	for _, name := range []string{"qwen3vl", "qwen25vl", "gemma4"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Rename(golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name)), dir); err != nil {
			t.Fatal(err)
		}
		golden.Tokenizer(t, dir, map[int]string{512: "<|vision_start|>", 513: "<|vision_end|>",
			514: "<|image_pad|>"}, "")
		out := filepath.Join(t.TempDir(), "m.gguf")
		convert := exec.Command(filepath.Join(peer, "karat"), "convert", dir, "-o", out)
		if b, err := convert.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		c, err := checkpoint.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		m, err := vision.Open(c.Tower, reference.Backend{}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, picture := range []string{"noise"} {
			data, err := os.ReadFile(golden.Shared(t, "goldens/vision/images/"+picture+".png"))
			if err != nil {
				t.Fatal(err)
			}
			pixels, err := image.Decode(data, image.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			rgb, bin := filepath.Join(t.TempDir(), "rgb"), filepath.Join(t.TempDir(), "out")
			if err := os.WriteFile(rgb, pixels.Pix, 0o666); err != nil {
				t.Fatal(err)
			}
			mmproj := filepath.Join(filepath.Dir(out), "mmproj-m.gguf")
			b, err := exec.Command(filepath.Join(peer, "dump"), mmproj, fmt.Sprint(pixels.Width),
				fmt.Sprint(pixels.Height), rgb, bin).CombinedOutput()
			if err != nil {
				t.Errorf("%s %s: %v: %s", name, picture, err, b[max(0, len(b)-400):])
			}
			got, err := os.ReadFile(bin)
			if err != nil {
				t.Log(err)
				continue
			}
			r := bytes.NewReader(got)
			var size [2]int32
			binary.Read(r, binary.LittleEndian, &size)
			w, h := int(size[0]), int(size[1])
			v := make([]float32, 3*w*h)
			binary.Read(r, binary.LittleEndian, v)
			right, err := mistake.See(m, data, "")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s: %dx%d pixels, the model's %d x %d patches", name, picture, w, h,
				right.Tiles[0].Grid.Width, right.Tiles[0].Grid.Height)
			x := sighted{data: data}
			x.size = [2]int{w, h}
			e, err := mistake.See(m, data, "", mistake.OfSize(w, h))
			if err != nil {
				t.Fatal(err)
			}
			side := m.Takes().Patch
			for i, p := range e.Tiles[0].Parts {
				row := make([]float32, len(e.Tiles[0].Embeddings[i]))
				for k := range row {
					n := side * side
					ch, at := k/n, k%n
					switch m.Order() {
					case processor.BlocksTwice:
						ch, at = k/(2*n), k%n
					case processor.ChannelLast:
						ch, at = k%3, k/3
					}
					y, xx := int(p[1])*side+at/side, int(p[2])*side+at%side
					row[k] = v[3*(y*w+xx)+ch]
					if s := m.Takes(); s.By != 0 {
						row[k] = float32(s.By)*row[k] - s.Less
					}
				}
				x.rows = append(x.rows, row)
			}
			s := &sightings{m: m, all: []sighted{x}}
			j, exact, err := s.name(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var causes []string
			for _, f := range s.findings(j, exact) {
				causes = append(causes, f.Cause)
				t.Log("   ", f.Cause, f.Op, f.Computed, f.Detail, f.Evidence)
			}
			if !exact || !slices.Equal(causes, []string{"image_size", "image_filter", "image_fit"}) {
				t.Errorf("%s: %v, exact %v", name, causes, exact)
			}
		}
	}
}

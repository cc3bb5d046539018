package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// records are what Pillow and torchvision made, by testdata/make.py.
type records struct {
	Files map[string]struct {
		Size   [2]int
		SHA256 string
	}
	Resized      []resized
	TorchResized []resized `json:"torch_resized"`
}

type resized struct {
	Picture  string
	From, To [2]int
	Filter   Filter
	SHA256   string
}

func readRecords(t testing.TB) (r records) {
	t.Helper()
	b, err := os.ReadFile("testdata/records.json")
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || len(r.Files) < 100 || len(r.Resized) < 50 || len(r.TorchResized) < 50 {
		t.Fatalf("%d files, %d and %d resized, %v", len(r.Files), len(r.Resized), len(r.TorchResized), err)
	}
	return r
}

func (m *Image) digest() string {
	h := sha256.Sum256(m.Pix)
	return hex.EncodeToString(h[:])
}

// TestFiles wants the pixels that Pillow reads in each file.
func TestFiles(t *testing.T) {
	for name, want := range readRecords(t).Files {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(data, Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if size := [2]int{m.Width, m.Height}; size != want.Size || m.digest() != want.SHA256 {
			t.Errorf("%s: other pixels than Pillow's, size %v of %v", name, size, want.Size)
		}
		if w, h, err := Size(data, Limits{}); err != nil || want.Size != [2]int{w, h} {
			t.Errorf("%s: the header says %dx%d, %v, want %v", name, w, h, err, want.Size)
		}
	}
}

// draw returns the picture of testdata/make.py.
func draw(name string, w, h int) *Image {
	m := newImage(w, h)
	for y := range h {
		for x := range w {
			p := m.Pix[3*(y*w+x):][:3]
			dx, dy, side := 2*x-w, 2*y-h, min(w, h)
			switch {
			case name == "noise":
				v := uint64(y*w+x) + 0x9E3779B97F4A7C15
				v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
				v = (v ^ v>>27) * 0x94D049BB133111EB
				v ^= v >> 31
				p[0], p[1], p[2] = byte(v), byte(v>>8), byte(v>>16)
			case dx*dx+dy*dy < side*side/4:
				p[0], p[1], p[2] = 255, 220, 0
			default:
				p[0], p[1] = byte(255*x/max(w-1, 1)), byte((x*x+3*y*y)/16)
				p[2] = byte(255 * (x + y) / max(w+h-2, 1))
			}
		}
	}
	return m
}

// TestResize wants the bytes of Pillow and of torchvision.
func TestResize(t *testing.T) {
	r := readRecords(t)
	for library, all := range map[Resizer][]resized{Pillow: r.Resized, Torchvision: r.TorchResized} {
		for _, c := range all {
			m, err := draw(c.Picture, c.From[0], c.From[1]).Resize(c.To[0], c.To[1], c.Filter, library)
			if err != nil {
				t.Fatal(err)
			}
			if m.digest() != c.SHA256 || m.Width != c.To[0] || m.Height != c.To[1] {
				t.Errorf("%s, %s of %v to %v by %s: other pixels", library, c.Picture, c.From, c.To, c.Filter)
			}
		}
	}
	for _, c := range []struct {
		w, h int
		f    Filter
	}{{0, 1, Bicubic}, {1, -1, Bicubic}, {1, 1, "box"}} {
		if m, err := draw("noise", 3, 3).Resize(c.w, c.h, c.f, Pillow); err == nil {
			t.Errorf("%v: a picture of %dx%d", c, m.Width, m.Height)
		}
	}
}

// TestLimits: the size is checked before any pixel.
func TestLimits(t *testing.T) {
	for _, name := range []string{"big.jpg", "rgb.png", "lossless.webp", "frames.webp", "palette.gif", "rgb.bmp"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []Limits{{Pixels: 61*47 - 1}, {Bytes: len(data) - 1}} {
			if _, err := Decode(data, l); !errors.Is(err, ErrLarge) {
				t.Errorf("%s, %+v: %v", name, l, err)
			}
		}
		head := len(data) / 4
		if m, err := Decode(data[:head:head], Limits{}); err == nil {
			t.Errorf("%s: a quarter of the file is a picture of %dx%d", name, m.Width, m.Height)
		}
	}
	data, err := os.ReadFile("testdata/waves-61x47-2-92-progressive.jpg")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(data) {
		if _, err := Decode(data[:n:n], Limits{}); err == nil {
			t.Errorf("%d of %d bytes of a progressive file are a picture", n, len(data))
		}
	}
	data, err = os.ReadFile("testdata/lossy-61x47-10.webp")
	if err != nil {
		t.Fatal(err)
	}
	large := []byte("RIFF\x00\x00\x01\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	large = append(large, data[12:]...)
	if m, err := Decode(large, Limits{}); err == nil {
		t.Errorf("a canvas of one pixel and a frame of %dx%d are a picture", m.Width, m.Height)
	}
	for _, data := range []string{"", "hello", "II*\x00....", "<svg>", "....ftypheic...."} {
		if _, err := Decode([]byte(data), Limits{}); err == nil {
			t.Errorf("%q is a picture", data)
		}
	}
}

// FuzzDecode: any bytes are a picture of the size that it says, or an error.
func FuzzDecode(f *testing.F) {
	for name := range readRecords(f).Files {
		if data, err := os.ReadFile(filepath.Join("testdata", name)); err == nil && len(data) < 1500 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data, Limits{Pixels: 1 << 16})
		if err == nil && (m.Width < 1 || m.Height < 1 || len(m.Pix) != 3*m.Width*m.Height || m.Width*m.Height > 1<<16) {
			t.Fatal(fmt.Sprint(m.Width, m.Height, len(m.Pix)))
		}
	})
}

// Package image reads pictures as models that see were trained on them: the RGB pixels that Pillow reads, turned as
// EXIF says, and Pillow's resizing, byte for byte.
//
// Files in reading order: image.go (Decode), formats.go (PNG, GIF, BMP), webp.go, orient.go (EXIF), resize.go,
// pixels.go.
package image

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/image/jpeg"
)

// Limits bound pictures; zeros are the defaults.
type Limits struct {
	Pixels int // 64 Mi; no side has more than longest
	Bytes  int // of a file: 64 MiB

	Stop func() error // its error ends decoding, at some of the file's parts; nil for none
}

// ErrLarge is the error of a picture over its limits.
var ErrLarge = errors.New("the picture is too large")

// longest bounds a picture's sides: a few old pixels of a side have weights in each new one.
const longest = 1 << 16

// checkBytes checks a file's size.
func (l Limits) checkBytes(n int) error {
	if most := orDefault(l.Bytes); n > most {
		return fmt.Errorf("%w: a file of %d bytes, the limit is %d", ErrLarge, n, most)
	}
	return nil
}

// check checks a picture's size.
func (l Limits) check(width, height int) error {
	most := orDefault(l.Pixels)
	switch {
	case width < 1 || height < 1:
		return fmt.Errorf("the picture has %dx%d pixels", width, height)
	case max(width, height) > longest:
		return fmt.Errorf("%w: %dx%d pixels, a side has at most %d", ErrLarge, width, height, longest)
	case height > most/width:
		return fmt.Errorf("%w: %dx%d pixels, the limit is %d", ErrLarge, width, height, most)
	}
	return nil
}

func orDefault(n int) int {
	if n == 0 {
		return 64 << 20
	}
	return n
}

// format reads one kind of file.
type format struct {
	name   string
	magic  string // dots are any byte
	size   func(data []byte) (width, height int, err error)
	decode func(data []byte, stop func() error) (*Image, error)
	orient func(data []byte) int
}

var formats = []format{
	{"JPEG", "\xff\xd8", sizeOfJPEG, decodeJPEG, orientationOfJPEG},
	{"PNG", "\x89PNG\r\n\x1a\n", sizeOfPNG, decodePNG, orientationOfPNG},
	{"WebP", "RIFF....WEBP", sizeOfWebP, decodeWebP, orientationOfWebP},
	{"GIF", "GIF8", sizeOfGIF, decodeGIF, upright},
	{"BMP", "BM", sizeOfBMP, decodeBMP, upright},
}

// Size returns the size of the picture in a file, turned as EXIF says, without decoding any pixel.
func Size(data []byte, l Limits) (width, height int, err error) {
	f, err := formatOf(data, l)
	if err != nil {
		return 0, 0, err
	}
	width, height, err = f.size(data)
	if err == nil {
		err = l.check(width, height)
	}
	if err == nil && f.orient(data) > 4 {
		width, height = height, width
	}
	return width, height, f.explain(err)
}

// explain returns an error of a file of the form.
func (f *format) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the file is truncated")
	}
	return fmt.Errorf("a %s file: %w", f.name, err)
}

// Decode returns the picture in a JPEG, PNG, WebP, GIF or BMP file, of an animation the first frame. Alpha is dropped,
// as by Pillow's convert("RGB"). The size is checked before any pixel is decoded.
func Decode(data []byte, l Limits) (*Image, error) {
	f, err := formatOf(data, l)
	if err != nil {
		return nil, err
	}
	m, err := f.read(data, l)
	return m, f.explain(err)
}

// formatOf returns the form of a file of the allowed size.
func formatOf(data []byte, l Limits) (*format, error) {
	if err := l.checkBytes(len(data)); err != nil {
		return nil, err
	}
	for i, f := range formats {
		if hasMagic(data, f.magic) {
			return &formats[i], nil
		}
	}
	switch {
	case len(data) == 0:
		return nil, errors.New("the file is empty")
	case bytes.HasPrefix(data, []byte("II*\x00")) || bytes.HasPrefix(data, []byte("MM\x00*")):
		return nil, errUnknown("TIFF")
	case len(data) > 12 && string(data[4:8]) == "ftyp":
		return nil, errUnknown("HEIF, AVIF or a film")
	case bytes.HasPrefix(data, []byte("version https://git-lfs")):
		return nil, errors.New("the file is a Git LFS pointer, not fetched: git lfs pull fetches it")
	case bytes.HasPrefix(bytes.TrimSpace(data[:min(len(data), 256)]), []byte("<")):
		return nil, errUnknown("SVG or HTML")
	}
	return nil, errUnknown("unknown")
}

func errUnknown(what string) error {
	return fmt.Errorf("the file's form is %s: convert it to JPEG, PNG, WebP, GIF or BMP", what)
}

func hasMagic(data []byte, magic string) bool {
	if len(data) < len(magic) {
		return false
	}
	for i, c := range []byte(magic) {
		if c != '.' && data[i] != c {
			return false
		}
	}
	return true
}

// read decodes a file, and turns the picture upright.
func (f *format) read(data []byte, l Limits) (*Image, error) {
	w, h, err := f.size(data)
	if err == nil {
		err = l.check(w, h)
	}
	if err != nil {
		return nil, err
	}
	m, err := f.decode(data, l.Stop)
	if err != nil && l.Stop != nil { // not all decoders wrap it
		err = cmp.Or(l.Stop(), err)
	}
	if err != nil {
		return nil, err
	}
	return m.turn(f.orient(data)), nil
}

func sizeOfJPEG(data []byte) (width, height int, err error) {
	h, err := jpeg.ReadHeader(data)
	return h.Width, h.Height, err
}

func decodeJPEG(data []byte, stop func() error) (*Image, error) {
	rgb, h, err := jpeg.Decode(data, stop)
	if err != nil {
		return nil, err
	}
	return &Image{h.Width, h.Height, rgb}, nil
}

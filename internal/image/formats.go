package image

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"io"

	"golang.org/x/image/bmp"
)

func sizeOf(config func(r *bytes.Reader) (image.Config, error), data []byte) (width, height int, err error) {
	c, err := config(bytes.NewReader(data))
	return c.Width, c.Height, err
}

// source reads a file's bytes until stop, if not nil, returns an error.
type source struct {
	*bytes.Reader
	stop func() error
}

func (s source) Read(b []byte) (int, error) {
	if s.stop != nil {
		if err := s.stop(); err != nil {
			return 0, err
		}
	}
	return s.Reader.Read(b[:min(len(b), 1<<16)])
}

func newSource(data []byte, stop func() error) io.Reader {
	return struct{ io.Reader }{source{bytes.NewReader(data), stop}} // only Read
}

func sizeOfPNG(data []byte) (width, height int, err error) {
	return sizeOf(func(r *bytes.Reader) (image.Config, error) { return png.DecodeConfig(r) }, data)
}

func decodePNG(data []byte, stop func() error) (*Image, error) {
	src, err := png.Decode(newSource(data, stop))
	if err != nil {
		return nil, err
	}
	switch g := src.(type) {
	case *image.Gray16:
		return fromGray16(g.Rect, g.Pix, 2), nil
	case *image.NRGBA64:
		if len(data) > 25 && data[24] == 16 && data[25] == 0 { // grey with a transparent level
			return fromGray16(g.Rect, g.Pix, 8), nil
		}
	}
	return rgbOf(src), nil
}

// fromGray16 returns grey samples of 16 bits, so many bytes apart, as Pillow's convert does: cut off at 255.
func fromGray16(r image.Rectangle, samples []byte, apart int) *Image {
	m := newImage(r.Dx(), r.Dy())
	for i := range m.Width * m.Height {
		v := samples[apart*i+1]
		if samples[apart*i] > 0 {
			v = 255
		}
		m.Pix[3*i], m.Pix[3*i+1], m.Pix[3*i+2] = v, v, v
	}
	return m
}

func sizeOfBMP(data []byte) (width, height int, err error) {
	return sizeOf(func(r *bytes.Reader) (image.Config, error) { return bmp.DecodeConfig(r) }, data)
}

func decodeBMP(data []byte, stop func() error) (*Image, error) {
	src, err := bmp.Decode(newSource(data, stop))
	if err != nil {
		return nil, err
	}
	return rgbOf(src), nil
}

func sizeOfGIF(data []byte) (width, height int, err error) {
	return sizeOf(func(r *bytes.Reader) (image.Config, error) { return gif.DecodeConfig(r) }, data)
}

// decodeGIF returns the first frame, on a screen of the background's color.
func decodeGIF(data []byte, stop func() error) (*Image, error) {
	src, err := gif.Decode(newSource(data, stop))
	if err != nil {
		return nil, err
	}
	w, h, err := sizeOfGIF(data)
	if err != nil {
		return nil, err
	}
	frame, ok := src.(*image.Paletted)
	global, local := tablesOfGIF(data)
	if !ok || global == nil && local == nil {
		return nil, errors.New("the first frame has no colors")
	}
	m := newImage(w, h)
	if at := 3 * int(data[11]); at+3 <= len(global) {
		for i := range w * h {
			copy(m.Pix[3*i:], global[at:at+3])
		}
	}
	// The standard library has black for the transparent color; Pillow drops the alpha of its color.
	colors := global
	if local != nil {
		colors = local
	}
	for i := range frame.Palette {
		if 3*i+3 <= len(colors) {
			frame.Palette[i] = color.NRGBA{colors[3*i], colors[3*i+1], colors[3*i+2], 255}
		}
	}
	m.paste(rgbOf(frame), frame.Rect.Min.X, frame.Rect.Min.Y)
	return m, nil
}

// tablesOfGIF returns the table of colors of all frames, and the first frame's own; nil for none.
func tablesOfGIF(data []byte) (global, local []byte) {
	table := func(data []byte, at int, flags byte) []byte {
		n := 3 << (flags&7 + 1)
		if flags&0x80 == 0 || at+n > len(data) {
			return nil
		}
		return data[at : at+n]
	}
	const header, descriptor = 13, 10
	if len(data) < header {
		return nil, nil
	}
	global = table(data, header, data[10])
	for at := header + len(global); at+descriptor < len(data); {
		if data[at] == 0x2c { // a frame
			return global, table(data, at+descriptor, data[at+descriptor-1])
		}
		for at += 2; at < len(data) && data[at] != 0; at += 1 + int(data[at]) { // an extension's parts
		}
		at++
	}
	return global, nil
}

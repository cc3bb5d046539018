package image

import (
	"image"
	"image/color"
)

// Image is a picture's pixels: RGB by rows, [Height, Width, 3]; nil where the size alone is asked for.
type Image struct {
	Width, Height int
	Pix           []byte
}

// newImage returns a black picture.
func newImage(w, h int) *Image { return &Image{w, h, make([]byte, 3*w*h)} }

func (m *Image) set(x, y int, p [3]byte) { copy(m.Pix[3*(y*m.Width+x):], p[:]) }

// paste puts a picture at a place of m, as far as it lies within.
func (m *Image) paste(p *Image, x, y int) {
	n := min(p.Width, m.Width-x)
	for i := range min(p.Height, m.Height-y) {
		if n > 0 {
			copy(m.Pix[3*((y+i)*m.Width+x):][:3*n], p.Pix[3*i*p.Width:])
		}
	}
}

// rgbOf returns the pixels of a picture of the standard library without alpha. Of samples of 16 bits the upper 8 count.
func rgbOf(src image.Image) *Image {
	b := src.Bounds()
	m := newImage(b.Dx(), b.Dy())
	for y := range m.Height {
		row := m.Pix[3*y*m.Width:][:3*m.Width]
		for x := range m.Width {
			p := row[3*x : 3*x+3]
			switch src := src.(type) {
			case *image.RGBA:
				copy(p, src.Pix[src.PixOffset(b.Min.X+x, b.Min.Y+y):][:3])
			case *image.NRGBA:
				copy(p, src.Pix[src.PixOffset(b.Min.X+x, b.Min.Y+y):][:3])
			case *image.Gray:
				v := src.Pix[src.PixOffset(b.Min.X+x, b.Min.Y+y)]
				p[0], p[1], p[2] = v, v, v
			case *image.Paletted:
				p[0], p[1], p[2] = colorOf(src.Palette[src.Pix[src.PixOffset(b.Min.X+x, b.Min.Y+y)]])
			default:
				p[0], p[1], p[2] = colorOf(src.At(b.Min.X+x, b.Min.Y+y))
			}
		}
	}
	return m
}

// colorOf returns a color without alpha, not multiplied by alpha.
func colorOf(c color.Color) (r, g, b byte) {
	switch c := c.(type) {
	case color.NRGBA:
		return c.R, c.G, c.B
	case color.NRGBA64:
		return byte(c.R >> 8), byte(c.G >> 8), byte(c.B >> 8)
	}
	r16, g16, b16, _ := c.RGBA()
	return byte(r16 >> 8), byte(g16 >> 8), byte(b16 >> 8)
}

// Part returns a copy of a rectangle of m.
func (m *Image) Part(x, y, width, height int) *Image {
	if m.Pix == nil {
		return &Image{Width: width, Height: height}
	}
	to := newImage(width, height)
	for i := range height {
		copy(to.Pix[3*i*width:][:3*width], m.Pix[3*((y+i)*m.Width+x):])
	}
	return to
}

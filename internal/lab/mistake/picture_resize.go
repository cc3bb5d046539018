package mistake

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/image"
)

// filters are ways to resize. A wide one weighs the whole area of a new pixel where a picture shrinks.
var filters = []struct {
	kernel image.Filter
	wide   bool
	word   string
	by     filter
}{
	{image.Bilinear, true, "bilinear weights over a pixel's area", pillow(image.Bilinear)},
	{image.Bicubic, true, "bicubic weights over a pixel's area", pillow(image.Bicubic)},
	{image.Lanczos, true, "Lanczos weights over a pixel's area", pillow(image.Lanczos)},
	{image.Bilinear, false, "bilinear weights of 4 pixels", few(1, triangle)},
	{image.Bicubic, false, "bicubic weights of 16 pixels", few(2, cubic(-0.75))},
	{image.Bicubic, false, "bicubic weights of 16 pixels, a = -0.5", few(2, cubic(-0.5))},
	{image.Bilinear, false, "bilinear weights of 4 pixels, corners aligned, rounded down", cornered},
	{image.Bicubic, false, "bicubic weights of 16 pixels from a pixel's corner", fromCorner},
	{"nearest", false, "the nearest pixel", nearestPixel},
}

func pillow(f image.Filter) filter {
	return func(m *image.Image, width, height int, _ image.Filter) (*image.Image, error) {
		return m.Resize(width, height, f, image.Pillow)
	}
}

func triangle(x float64) float64 { return max(0, 1-math.Abs(x)) }

func cubic(a float64) func(float64) float64 {
	return func(x float64) float64 {
		switch x = math.Abs(x); {
		case x < 1:
			return ((a+2)*x-(a+3))*x*x + 1
		case x < 2:
			return a * (((x-5)*x+8)*x - 4)
		}
		return 0
	}
}

// made returns a picture by a function of places.
func made(width, height int, pixel func(x, y, c int) byte) *image.Image {
	to := &image.Image{Width: width, Height: height, Pix: make([]byte, 3*width*height)}
	for y := range height {
		row := to.Pix[3*y*width:]
		for x := range width {
			row[3*x], row[3*x+1], row[3*x+2] = pixel(x, y, 0), pixel(x, y, 1), pixel(x, y, 2)
		}
	}
	return to
}

// level rounds a level.
func level(v float64) byte { return byte(max(0, min(255, math.Floor(v+0.5)))) }

// at returns a level, of places outside the nearest.
func at(m *image.Image, x, y, c int) float64 {
	x, y = max(0, min(x, m.Width-1)), max(0, min(y, m.Height-1))
	return float64(m.Pix[3*(y*m.Width+x)+c])
}

// few weighs the pixels around the middle of a new pixel, at most reach away on each side.
func few(reach int, kernel func(float64) float64) filter {
	return func(m *image.Image, width, height int, _ image.Filter) (*image.Image, error) {
		if width == m.Width && height == m.Height {
			return m, nil
		}
		along := func(i, size, old int) (first int, weights []float64) {
			x := (float64(i)+0.5)*float64(old)/float64(size) - 0.5
			first = int(math.Floor(x)) - reach + 1
			for j := range 2 * reach {
				weights = append(weights, kernel(x-float64(first+j)))
			}
			return first, weights
		}
		type reached struct {
			first   int
			weights []float64
		}
		across := make([]reached, width)
		for x := range across {
			across[x].first, across[x].weights = along(x, width, m.Width)
		}
		to := &image.Image{Width: width, Height: height}
		for y := range height {
			top, down := along(y, height, m.Height)
			for _, r := range across {
				for c := range 3 {
					sum := 0.0
					for j, v := range down {
						for i, w := range r.weights {
							sum += float64(v * w * at(m, r.first+i, top+j, c))
						}
					}
					to.Pix = append(to.Pix, level(sum))
				}
			}
		}
		return to, nil
	}
}

// nearestPixel takes the pixel that has the middle of a new one.
func nearestPixel(m *image.Image, width, height int, _ image.Filter) (*image.Image, error) {
	return made(width, height, func(x, y, c int) byte {
		return byte(at(m, (2*x+1)*m.Width/(2*width), (2*y+1)*m.Height/(2*height), c))
	}), nil
}

// cornered is llama.cpp's resize_bilinear in float32. (tools/mtmd/mtmd-image.cpp)
func cornered(m *image.Image, width, height int, _ image.Filter) (*image.Image, error) {
	if width == m.Width && height == m.Height {
		return m, nil
	}
	ratio := func(old, size int) float32 {
		if size < 2 {
			return 0
		}
		return float32(old-1) / float32(size-1)
	}
	along, down := ratio(m.Width, width), ratio(m.Height, height)
	lerp := func(a, b, t float32) float32 { return a + float32((b-a)*t) }
	return made(width, height, func(x, y, c int) byte {
		px, py := float32(float32(x)*along), float32(float32(y)*down)
		x0, y0 := min(int(px), m.Width-1), min(int(py), m.Height-1)
		v := func(x, y int) float32 { return float32(at(m, x, y, c)) }
		top := lerp(v(x0, y0), v(x0+1, y0), px-float32(x0))
		return byte(lerp(top, lerp(v(x0, y0+1), v(x0+1, y0+1), px-float32(x0)), py-float32(y0)))
	}), nil
}

// fromCorner is llama.cpp's resize_bicubic.
func fromCorner(m *image.Image, width, height int, _ image.Filter) (*image.Image, error) {
	if width == m.Width && height == m.Height {
		return m, nil
	}
	curve := func(v [4]float64, d float64) float64 {
		d0, d2, d3 := v[0]-v[1], v[2]-v[1], v[3]-v[1]
		a1, a2, a3 := -d0/3+d2-d3/6, d0/2+d2/2, -d0/6-d2/2+d3/6
		return v[1] + a1*d + a2*d*d + a3*d*d*d
	}
	along, down := float64(m.Width)/float64(width), float64(m.Height)/float64(height)
	return made(width, height, func(x, y, c int) byte {
		x0, y0 := int(along*float64(x)), int(down*float64(y))
		var rows [4]float64
		for j := range rows {
			var v [4]float64
			for i := range v {
				v[i] = at(m, x0-1+i, y0-1+j, c)
			}
			rows[j] = curve(v, along*float64(x)-float64(x0))
		}
		return level(curve(rows, down*float64(y)-float64(y0)))
	}), nil
}

// fitted is a way to fit a picture into a size.
type fitted struct {
	detail   detail
	computed string
	by       fit
}

// fits are the ways that keep a picture's shape: padding and cropping.
func fits() []fitted {
	all := []fitted{{detail{"fit": "crop"}, "crops the middle of the picture, and does not stretch the picture", crop}}
	for _, p := range []struct {
		word   string
		level  byte
		corner bool
		round  func(float64) float64
	}{
		{"black", 0, false, math.Ceil}, {"black", 0, false, math.Round}, {"grey", 127, false, math.Ceil},
		{"white", 255, false, math.Ceil}, {"black", 0, true, math.Ceil},
	} {
		where := "around"
		if p.corner {
			where = "behind"
		}
		all = append(all, fitted{detail{"fit": "pad", "color": p.word, "where": where},
			fmt.Sprintf("pads the picture with %s %s, and does not stretch the picture", p.word, where),
			pad(p.level, p.corner, p.round)})
	}
	return all
}

// pad keeps the shape and fills the rest of the size.
func pad(color byte, corner bool, round func(float64) float64) fit {
	return func(m *image.Image, width, height int, by resize) (*image.Image, error) {
		scale := min(float32(width)/float32(m.Width), float32(height)/float32(m.Height))
		side := func(old, size int) int { return max(1, min(int(round(float64(float32(old)*scale))), size)) }
		in, err := by(m, side(m.Width, width), side(m.Height, height))
		if err != nil {
			return nil, err
		}
		left, top := (width-in.Width)/2, (height-in.Height)/2
		if corner {
			left, top = 0, 0
		}
		return made(width, height, func(x, y, c int) byte {
			if x, y := x-left, y-top; x >= 0 && y >= 0 && x < in.Width && y < in.Height {
				return in.Pix[3*(y*in.Width+x)+c]
			}
			return color
		}), nil
	}
}

// crop keeps the shape and cuts off the rest.
func crop(m *image.Image, width, height int, by resize) (*image.Image, error) {
	scale := max(float64(width)/float64(m.Width), float64(height)/float64(m.Height))
	side := func(old, size int) int { return max(int(math.Round(float64(old)*scale)), size) }
	in, err := by(m, side(m.Width, width), side(m.Height, height))
	if err != nil {
		return nil, err
	}
	return in.Part((in.Width-width)/2, (in.Height-height)/2, width, height), nil
}

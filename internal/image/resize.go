package image

import (
	"fmt"
	"math"
)

// Filter is a kernel of resizing.
type Filter string

// The filters. A picture made smaller is filtered over the whole area of each new pixel.
const (
	Bilinear Filter = "bilinear" // a triangle, 1 pixel to each side
	Bicubic  Filter = "bicubic"  // Keys's cubic with a = -0.5, 2 pixels
	Lanczos  Filter = "lanczos"  // a windowed sinc, 3 pixels
)

// support returns the pixels to each side that the filter reaches.
func (f Filter) support() (float64, error) {
	switch f {
	case Bilinear:
		return 1, nil
	case Bicubic:
		return 2, nil
	case Lanczos:
		return 3, nil
	}
	return 0, fmt.Errorf("filter %q, want %s, %s or %s", string(f), Bilinear, Bicubic, Lanczos)
}

// at returns the filter's weight at a distance.
func (f Filter) at(x float64) float64 {
	x = math.Abs(x)
	switch f {
	case Bilinear:
		return max(0, 1-x)
	case Bicubic:
		const a = -0.5
		switch {
		case x < 1:
			return ((a+2)*x-(a+3))*x*x + 1
		case x < 2:
			return (((x-5)*x+8)*x - 4) * a
		}
		return 0
	}
	if x < 3 {
		return sinc(x) * sinc(x/3)
	}
	return 0
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// Resizer is the library whose resizing is meant.
type Resizer string

// The libraries. Their bytes differ by a level in some pixels, since the bits of their weights differ.
const (
	Pillow      Resizer = "pillow"      // 22 bits
	Torchvision Resizer = "torchvision" // as many as let the largest weight fit 16 bits, by the kernels of AVX2
)

// bits returns the bits of weights up to a largest.
func (r Resizer) bits(largest float64) (n int) {
	if r != Torchvision {
		return 32 - 8 - 2
	}
	for n < 22 && int(0.5+largest*float64(int(2)<<n)) < 1<<15 {
		n++
	}
	return n
}

// reach is the old pixels of a new one.
type reach struct {
	from    int
	weights []int32 // times 1<<bits
	bits    int
}

// reaches returns the old pixels of each of size new ones.
func (f Filter) reaches(old, size int, r Resizer) ([]reach, error) {
	support, err := f.support()
	if err != nil {
		return nil, err
	}
	scale := float64(old) / float64(size)
	wide := max(scale, 1)
	support *= wide
	all, weights, largest := make([]reach, size), make([][]float64, size), 0.0
	for i := range all {
		center := (float64(i) + 0.5) * scale
		from := max(int(center-support+0.5), 0)
		to := min(int(center+support+0.5), old)
		w, sum := make([]float64, to-from), 0.0
		for j := range w {
			w[j] = f.at((float64(j+from) - center + 0.5) * (1 / wide))
			sum += w[j]
		}
		for j := range w {
			if sum != 0 {
				w[j] /= sum
			}
			largest = max(largest, w[j])
		}
		all[i].from, weights[i] = from, w
	}
	bits := r.bits(largest)
	for i, w := range weights {
		all[i].bits, all[i].weights = bits, make([]int32, len(w))
		for j, v := range w {
			v *= float64(int(1) << bits)
			all[i].weights[j] = int32(v + math.Copysign(0.5, v))
		}
	}
	return all, nil
}

// Resize returns the picture in another size, with the bytes of Pillow's Image.resize or of torchvision's resize with
// antialias: first along rows, then along columns, each time rounded to 8 bits. (Pillow, libImaging/Resample.c;
// PyTorch, aten/src/ATen/native/cpu/UpSampleKernel.cpp)
func (m *Image) Resize(width, height int, f Filter, r Resizer) (*Image, error) {
	if width < 1 || height < 1 {
		return nil, fmt.Errorf("a size of %dx%d pixels", width, height)
	}
	if width == m.Width && height == m.Height {
		return m, nil
	}
	across, err := f.reaches(m.Width, width, r)
	if err != nil {
		return nil, err
	}
	down, err := f.reaches(m.Height, height, r)
	if err != nil {
		return nil, err
	}
	if width != m.Width {
		to := newImage(width, m.Height)
		for y := range m.Height {
			row := m.Pix[3*y*m.Width:][:3*m.Width]
			for x, r := range across {
				to.set(x, y, r.sum(row[3*r.from:], 3))
			}
		}
		m = to
	}
	if height != m.Height {
		to := newImage(width, height)
		for y, r := range down {
			for x := range width {
				to.set(x, y, r.sum(m.Pix[3*(r.from*width+x):], 3*width))
			}
		}
		m = to
	}
	return m, nil
}

// sum returns the weighed sum of pixels that are stride bytes apart.
func (r *reach) sum(pix []byte, stride int) [3]byte {
	half := int32(1) << (r.bits - 1)
	s := [3]int32{half, half, half}
	for i, w := range r.weights {
		p := pix[i*stride:][:3]
		s[0] += w * int32(p[0])
		s[1] += w * int32(p[1])
		s[2] += w * int32(p[2])
	}
	var out [3]byte
	for i, v := range s {
		out[i] = byte(min(max(v>>r.bits, 0), 255))
	}
	return out
}
